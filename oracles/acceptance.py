"""The rules by which a result is accepted, element by element, against a certified truth.

Rule "ulp" and rule "chain" (see `oracles.margins` for their tolerances, `oracles.intervals` for the test),
with the special values of the operator beside them, and ±0 accepted as a flush where |E| or, forward, |x/c|
is below 2**-126: GPU math libraries flush subnormals. (A flushed x/c leaves the gradient at grad_y, so it
excuses nothing there.)

Rule "specification": |got - RN(E)| <= atol + rtol * |RN(E)|, the row chosen by got's dtype, gradient atol
times max(1, |grad_y|); not judged where a flush was accepted or where got, RN(E - tol) or RN(E + tol) is
infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from oracles import special
from oracles.formats import format_of
from oracles.intervals import Band, exactly_below, exactly_within, possibly_within, surely_within
from oracles.margins import Margin, margin_of
from oracles.rounding import round_once
from oracles.tolerances import Contract, load_contract
from oracles.truth import Truth
from oracles.ulp import distance

RULES = ("ulp", "specification", "chain")


@dataclass(frozen=True)
class Acceptance:
    """The outcome by element; every tensor has the shape of what was judged.

    `ok` (bool): accepted, or not judged. `judged` (bool). `flushed` (bool): accepted only as a flushed zero.
    `error` (FP64): forward in spacings of got's dtype at the exact value, gradient in units of 2**-24 *
    |grad_y|; 0 where an infinity or NaN is right, inf where it is not. `escalated`: how many elements the
    exact oracle decided.
    """

    ok: Tensor
    judged: Tensor
    flushed: Tensor
    error: Tensor
    escalated: int

    @property
    def all_ok(self) -> bool:
        """Whether nothing that is judged was refused."""
        return bool(self.ok.all())


def accept(
    rule: str, got: Tensor, truth: Truth, contract: Contract | None = None, *, everywhere: bool = False
) -> Acceptance:
    """Judge `got` (FP16, BF16 or FP32, the shape and device of the truth) by a rule of `RULES`.

    Outside the contract's judged domain of caps and upstream gradients `judged` is False and `ok` True,
    unless `everywhere`. Comparisons are by value: -0 is +0 here. Raises ValueError for an unknown rule,
    another shape or device, TypeError for another dtype.
    """
    _expect(rule, got, truth)
    contract = contract or load_contract()
    got = got.detach().contiguous()
    judge = _specification if rule == "specification" else partial(_margins, rule)
    found = judge(got, truth, contract)
    judged = found.judged if everywhere else found.judged & _domain(truth, contract)
    return Acceptance(found.ok | ~judged, judged, found.flushed, found.error, found.escalated)


def _expect(rule: str, got: Tensor, truth: Truth) -> None:
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}: there are {', '.join(RULES)}")
    format_of(got.dtype)
    if got.shape != truth.x.shape:
        raise ValueError(f"a result of shape {tuple(got.shape)} for a truth of shape {tuple(truth.x.shape)}")
    if got.device != truth.x.device:
        raise ValueError(f"a result on {got.device} for a truth on {truth.x.device}")


def _domain(truth: Truth, contract: Contract) -> Tensor:
    if truth.grad_y is not None:
        return contract.judges(truth.cap, truth.grad_y)
    return torch.full_like(truth.x, contract.judges_cap(truth.cap), dtype=torch.bool)


def _margins(rule: str, got: Tensor, truth: Truth, contract: Contract) -> Acceptance:
    """Rules "ulp" and "chain"."""
    margin = margin_of(rule, truth, contract)
    ok, escalated = _within_margin(got, truth, margin)
    where, right = special.verdicts(got, truth, contract.infinite_gradient_z)
    ok = torch.where(where, right, ok)
    flushed, asked = _flushed(truth, (got == 0) & ~ok & ~where, contract.flush_below)
    ok = ok | flushed
    judged = torch.ones_like(ok)
    return Acceptance(ok, judged, flushed, _error(got, truth, ok, contract), escalated + asked)


def _within_margin(got: Tensor, truth: Truth, margin: Margin) -> tuple[Tensor, int]:
    """Where got is within the margin of the exact value, where it is finite; and how many were escalated."""
    direct = truth.grad_y is None and got.dtype == torch.float32
    flat, floor = got.reshape(-1), margin.floor.expand(got.shape).reshape(-1)
    band = Band.around(truth.value.reshape(-1), truth.error.reshape(-1), margin, floor)
    ok = surely_within(flat, band, direct)
    rest = (~ok & truth.value.reshape(-1).isfinite()).nonzero().flatten()
    rest = rest[possibly_within(flat[rest], band[rest], direct)]
    known: dict[object, bool] = {}
    for index, value in zip(rest.tolist(), flat[rest].tolist(), strict=True):
        key = (truth.arguments(index), value)
        if key not in known:
            known[key] = exactly_within(truth, index, value, got.dtype, margin, float(floor[index]), direct)
        ok[index] = known[key]
    return ok.reshape(got.shape), len(rest)


def _flushed(truth: Truth, zero: Tensor, limit: float) -> tuple[Tensor, int]:
    """Where a zero that is too far from the exact value (`zero`) is accepted as a flush."""
    size = truth.value.abs()
    flushed = zero & (size + truth.error < limit)
    if truth.grad_y is None:
        flushed |= zero & (truth.x.to(torch.float64).abs() < truth.cap * limit)
    unsure = (zero & ~flushed & (size - truth.error < limit)).reshape(-1).nonzero().flatten().tolist()
    flat = flushed.view(-1)
    for index in unsure:
        flat[index] = exactly_below(truth, index, limit)
    return flushed, len(unsure)


def _error(got: Tensor, truth: Truth, ok: Tensor, contract: Contract) -> Tensor:
    if truth.grad_y is None:
        error = distance(got, truth.value)
    else:
        unit = truth.grad_y.to(torch.float64).abs() * contract.gradient_unit
        off = (got.to(torch.float64) - truth.value).abs()
        error = torch.where(off == 0, 0.0, off / unit)
    special_got = ~got.isfinite()
    return torch.where(special_got | error.isnan(), torch.where(ok, 0.0, torch.inf), error)


def _specification(got: Tensor, truth: Truth, contract: Contract) -> Acceptance:
    """The atol/rtol rows, against the exact value rounded once."""
    base = _margins("ulp", got, truth, contract)
    want, row = truth.rounded(got.dtype).to(torch.float64), contract.tolerance(got.dtype)
    atol = torch.full_like(want, row.atol)
    if truth.grad_y is not None:
        atol *= truth.grad_y.to(torch.float64).abs().clamp_min(1.0)
    near = (got.to(torch.float64) - want).abs() <= atol + row.rtol * want.abs()
    ok = torch.where(truth.is_nan, got.isnan(), near)
    judged = ~(base.flushed | _infinite(got, truth, contract))
    escalated = int(truth.undecided(got.dtype).sum())
    return Acceptance(ok | ~judged, judged, base.flushed, base.error, base.escalated + escalated)


def _infinite(got: Tensor, truth: Truth, contract: Contract) -> Tensor:
    """Where got, RN(E - tol) or RN(E + tol) is infinite; no NaN, which is judged."""
    margin = margin_of("ulp", truth, contract)
    width = margin.at(truth.value, margin.floor) + truth.error
    ends = [round_once(truth.value + side * width, got.dtype).isinf() for side in (-1.0, 1.0)]
    return (got.isinf() | ends[0] | ends[1]) & ~truth.is_nan
