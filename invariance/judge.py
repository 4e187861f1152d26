"""One function compares: checkers state claims, `judge` decides them, keeps the first mismatch and the worst error."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from oracles.acceptance import accept
from oracles.rounding import to_bits
from oracles.truth import Truth


@dataclass(frozen=True)
class Claim:
    """`got` must be `want`: in bits where `within` is None, within a rule of the contract where it names one.

    want: a Tensor (the same dtype, shape, device and bits; NaN equals NaN whatever its payload, +0 is not
    -0), a `Truth` (then `within` names a rule of `oracles.acceptance`), or any plain value (compared by ==).
    of: the inputs, element by element, that `got` was computed from; only for the failure message.
    where: where `got` holds only some elements, the mask that chose them, in the shape of all: a mismatch is then
    named by its place among all of them, from which a failing case is shrunk.
    """

    label: str
    got: Any
    want: Any
    within: str | None = None
    of: tuple[Tensor, ...] | None = None
    where: Tensor | None = None


@dataclass(frozen=True)
class Mismatch:
    """The first element that breaks a claim. Bits are hexadecimal; `exact` is decimal, from mpmath."""

    label: str
    what: str
    index: tuple[int, ...] | None = None
    flat: int | None = None
    input: str | None = None
    grad_y: str | None = None
    got: str | None = None
    want: str | None = None
    exact: str | None = None
    ulps: float | None = None
    wrong: int = 1
    total: int = 1


@dataclass(frozen=True)
class Worst:
    """The largest accepted or refused error: forward in ulp, gradient in units of 2^-24 * |grad_y|."""

    error: float
    input: str
    got: str
    grad_y: str | None = None


@dataclass
class Judgement:
    """What judging a stream of claims found. `elements` counts compared elements, a plain value as one."""

    tolerated: int = 0
    rounding: str = "once"
    elements: int = 0
    flushed: int = 0
    escalated: int = 0
    worst: Worst | None = None
    mismatch: Mismatch | None = None


def judge(claims: Iterable[Claim], tolerated: int = 0, rounding: str = "once") -> Judgement:
    """Decide claims in order, up to and including the first that does not hold.

    tolerated: how many elements of one bitwise claim may differ, the contract's `bitwise` row of the law.
    rounding: "chain" takes the contract of an eager chain of three roundings in the input dtype for the rule "ulp".
    """
    found = Judgement(tolerated=tolerated, rounding=rounding)
    for claim in claims:
        found.mismatch = _decide(claim, found)
        if found.mismatch is not None:
            break
    return found


def _decide(claim: Claim, found: Judgement) -> Mismatch | None:
    if not isinstance(claim.want, (Tensor, Truth)):
        found.elements += 1
        same = type(claim.got) is type(claim.want) and claim.got == claim.want
        return None if same else Mismatch(claim.label, "not as wanted", got=str(claim.got), want=str(claim.want))
    if not isinstance(claim.got, Tensor):
        found.elements += 1
        return Mismatch(claim.label, "is not a tensor", got=type(claim.got).__name__, want="a tensor")
    expected = claim.want.x if isinstance(claim.want, Truth) else claim.want
    if claim.got.shape != expected.shape:
        found.elements += 1
        return Mismatch(
            claim.label, "has another shape", got=str(tuple(claim.got.shape)), want=str(tuple(expected.shape))
        )
    if isinstance(claim.want, Truth):
        return _decide_accuracy(claim, found)
    found.elements += max(1, claim.got.numel())
    return _decide_bits(claim, found.tolerated)


def _decide_bits(claim: Claim, tolerated: int) -> Mismatch | None:
    got, want = claim.got, claim.want
    if got.dtype != want.dtype:
        return Mismatch(claim.label, "has another dtype", got=str(got.dtype), want=str(want.dtype))
    if got.device != want.device:
        return Mismatch(claim.label, "is on another device", got=str(got.device), want=str(want.device))
    wrong = differs(got, want)
    if int(wrong.sum()) <= tolerated:
        return None
    return _at_first(claim, wrong, "differ in bits", want=want)


def differs(got: Tensor, want: Tensor) -> Tensor:
    """Where two tensors of one dtype and shape differ in bits; two NaNs do not."""
    wrong = to_bits(got) != to_bits(want)
    if got.dtype.is_floating_point:
        wrong &= ~(got.isnan() & want.isnan())
    return wrong


def _decide_accuracy(claim: Claim, found: Judgement) -> Mismatch | None:
    truth: Truth = claim.want
    if claim.got.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        found.elements += 1
        return Mismatch(claim.label, "has a dtype that no contract knows", got=str(claim.got.dtype))
    assert claim.within is not None, "a truth is compared within a rule"
    rule = "chain" if found.rounding == "chain" and claim.within == "ulp" else claim.within
    accepted = accept(rule, claim.got, truth)
    # What the rule does not judge (outside the judged domain, say) was not compared; an empty tensor's form was.
    found.elements += int(accepted.judged.sum()) if claim.got.numel() else 1
    found.flushed += int(accepted.flushed.sum())
    found.escalated += accepted.escalated
    _keep_worst(claim, accepted.error, accepted.flushed, found)
    wrong = ~accepted.ok
    if not bool(wrong.any()):
        return None
    of = (truth.x,) if truth.grad_y is None else (truth.x, truth.grad_y)
    explained = Claim(claim.label, claim.got, truth, claim.within, of)
    return _at_first(explained, wrong, f"break the {rule} rule", errors=accepted.error)


def _keep_worst(claim: Claim, error: Tensor, flushed: Tensor, found: Judgement) -> None:
    """Quantised to 2^-20 before the argmax, so that the last bits of an FP64 oracle never choose the element."""
    seen = torch.where(error.isfinite() & ~flushed, error, torch.zeros_like(error)).flatten()
    if seen.numel() == 0:
        return
    at = int(torch.round(seen * 2.0**20).argmax())
    value = float(seen[at])
    if found.worst is None or value > found.worst.error:
        truth: Truth = claim.want
        grad_y = None if truth.grad_y is None else show(truth.grad_y.flatten()[at])
        found.worst = Worst(
            float(f"{value:.5g}"), show(truth.x.flatten()[at]), show(claim.got.flatten()[at]), grad_y
        )


def _at_first(
    claim: Claim, wrong: Tensor, what: str, *, want: Tensor | None = None, errors: Tensor | None = None
) -> Mismatch:
    flat = int(wrong.flatten().to(torch.uint8).argmax())
    place, shape = _among_all(claim, flat, wrong.shape)
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), shape)) if shape else ()
    got = claim.got.flatten()[flat]
    of = claim.of if claim.of and all(t.shape == wrong.shape for t in claim.of) else None
    return Mismatch(
        claim.label,
        what,
        index=index,
        flat=place,
        input=show(of[0].flatten()[flat]) if of else None,
        grad_y=show(of[1].flatten()[flat]) if of and len(of) > 1 else None,
        got=show(got),
        want=None if want is None else show(want.flatten()[flat]),
        exact=claim.want.explain(flat) if isinstance(claim.want, Truth) else None,
        ulps=_ulps(
            got,
            None if want is None else want.flatten()[flat],
            None if errors is None else errors.flatten()[flat],
        ),
        wrong=int(wrong.sum()),
        total=wrong.numel(),
    )


def _among_all(claim: Claim, flat: int, shape: torch.Size) -> tuple[int, torch.Size]:
    """The place of a compared element, and the shape in which it is one."""
    if claim.where is None:
        return flat, shape
    return int(claim.where.flatten().nonzero()[flat]), claim.where.shape


def _ulps(got: Tensor, want: Tensor | None, error: Tensor | None) -> float | None:
    if error is not None:
        return float(f"{float(error):.5g}") if bool(error.isfinite()) else None
    if want is None or not got.dtype.is_floating_point or not bool(got.isfinite() & want.isfinite()):
        return None
    if bool(got.signbit() != want.signbit()):
        return None  # the values between them say nothing of a wrong sign
    return float(abs(_ordinal(got) - _ordinal(want)))


def _ordinal(value: Tensor) -> int:
    """Counts representable values from zero; both zeros are 0."""
    bits = int(to_bits(value))
    return bits if bits >= 0 else -(bits & ((1 << (8 * value.element_size() - 1)) - 1))


def show(value: Tensor) -> str:
    """A 0-d tensor in decimal and in bits, as in `30.0 (0x41f00000)`."""
    width = 2 * value.element_size()
    bits = int(to_bits(value)) & ((1 << (4 * width)) - 1)
    return f"{value.item()!r} (0x{bits:0{width}x})"
