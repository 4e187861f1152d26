"""What a power of two may be pulled out of: x and the cap together, and the upstream gradient.

Multiplying by a power of two is exact while everything stays normal and finite, so every rounding of any formula in
which the cap only divides x and multiplies tanh falls alike. Where something may leave that range, nothing is stated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from invariance.candidate import Map
from invariance.checkers import Pick, checker
from invariance.checkers.accuracy import Args, judged_cap, unfit
from invariance.checkers.views import each, plain
from invariance.judge import Claim
from oracles.tolerances import load_contract

# Scaling by up to 2^±8 leaves room for the judged caps and gradients in FP16 too.
_OCTAVES = 8

# The smallest intermediate result that a scaling law trusts to be normal, for example (g * c) * (1 - t * t).
_SAFE = 2.0**-120


def any_cap(convention: str) -> str | None:
    """A configured instance has one cap; a law that tries others is not about it."""
    return "the candidate is an instance with a cap of its own" if convention == "instance" else None


@checker(
    judgement="accuracy",
    inputs="small",
    explored=True,
    applies=any_cap,
    bugs=("Dao-AILab/flash-attention#2402", "sgl-project/sglang#33915", "pytorch/pytorch#190340"),
)
def cap_scaling(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Scaling x and the cap by a power of two scales y by it, and leaves dx as it is."""
    args, cap = each(args, plain), judged_cap(f)
    powers = [
        k for k in range(-_OCTAVES, _OCTAVES + 1) if k and load_contract().judges_cap(math.ldexp(cap, k))
    ]
    k = powers[pick("power", 0, len(powers) - 1)]
    base = f.at(cap)(*args)
    if (misfit := unfit(base, args[0])) is not None:
        yield misfit
        return
    scaled = _scaled(args[0], k)
    got = f.at(math.ldexp(cap, k))(scaled, *args[1:])
    want = base if len(args) == 2 else _scaled(base, k)
    sure = _exactly_scaled(args[0], scaled, k) & (
        _normal(base) & _normal(want) | (base == 0) & (args[0] == 0)
    )
    if len(args) == 2:
        sure &= load_contract().judges(cap, args[1]) & (_size(base) * cap * min(1.0, 2.0**k) >= _SAFE)
    yield from _where(sure, f"2^{k} x at the cap 2^{k} c", got, want, (scaled, *args[1:]))


@checker(
    judgement="accuracy",
    passes=("backward",),
    inputs="small",
    explored=True,
    bugs=("linkedin/Liger-Kernel#1268",),
)
def gradient_linearity(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Scaling grad_y by a power of two scales dx by it."""
    args, cap, contract = each(args, plain), judged_cap(f), load_contract()
    k = pick("power", 1, _OCTAVES) * (1 - 2 * pick("down", 0, 1))
    base = f(*args)
    if (misfit := unfit(base, args[0])) is not None:
        yield misfit
        return
    scaled = _scaled(args[1], k)
    want = _scaled(base, k)
    sure = _exactly_scaled(args[1], scaled, k) & _normal(base) & _normal(want)
    sure &= contract.judges(cap, args[1]) & contract.judges(cap, scaled)
    sure &= _size(base) * cap * min(1.0, 2.0**k) >= _SAFE
    yield from _where(sure, f"dx for 2^{k} grad_y", f(args[0], scaled), want, (args[0], scaled))


def _where(sure: Tensor, label: str, got: Tensor, want: Tensor, of: Args) -> Iterator[Claim]:
    """One claim on the elements where the scaling is exact; none where there is no such element."""
    if got.shape != want.shape or got.dtype != want.dtype:
        yield Claim(label, got=got, want=want)
    elif bool(sure.any()):
        chosen = tuple(t[sure] for t in of)
        yield Claim(label, got=got[sure], want=want[sure], of=chosen, where=sure)


def _size(t: Tensor) -> Tensor:
    return t.to(torch.float64).abs()


def _scaled(t: Tensor, power: int) -> Tensor:
    return (t.to(torch.float64) * 2.0**power).to(t.dtype)


def _normal(t: Tensor) -> Tensor:
    """Where a result is in the normal range, with an octave of room at both ends: it was rounded there too."""
    limits = torch.finfo(t.dtype)
    return (_size(t) >= 2.0 * limits.smallest_normal) & (_size(t) <= limits.max / 2.0)


def _exactly_scaled(t: Tensor, scaled: Tensor, power: int) -> Tensor:
    """Where the scaling of an argument was exact, and both are zero, or both normal and finite."""
    smallest = torch.finfo(t.dtype).smallest_normal
    exact = (t.to(torch.float64) * 2.0**power == scaled) & scaled.isfinite()
    return exact & ((t == 0) | (torch.minimum(_size(t), _size(scaled)) >= smallest))
