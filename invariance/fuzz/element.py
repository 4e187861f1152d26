"""One failing element out of many: the one that a person recognises."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from invariance.fuzz.grid import Grid
from invariance.fuzz.scan import LAW, Part
from invariance.judge import Mismatch, show
from oracles.rounding import to_bits
from oracles.truth import Truth


@dataclass(frozen=True)
class Element:
    """One failing element: the bits of x, and the upstream gradient in FP32 bits.

    told: what came out in the call of the whole grid, for a failure that needs all of it.
    """

    x: int
    grad_y: int | None
    wrong: int
    total: int
    told: Mismatch | None = None


def simplest_element(grid: Grid, part: Part, cap: float) -> Element:
    """Of the failing elements at a cap the one that a person recognises: few digits, near 1, positive."""
    x = grid.both[part.wrong]
    order = torch.argsort(_plainness(x), stable=True)
    index = int(part.wrong[order[0]])
    grad_y = None if part.grad_y is None else int(to_bits(part.grad_y[index].to(torch.float32))) & 0xFFFFFFFF
    told = _told(grid, part, cap, index) if part.law == LAW else None
    return Element(grid.pattern(index), grad_y, part.wrong.numel(), part.elements, told)


def _told(grid: Grid, part: Part, cap: float, index: int) -> Mismatch:
    """The element as a verdict tells one."""
    grad_y = None if part.grad_y is None else part.grad_y[index]
    truth = Truth.of(grid.both[index : index + 1], cap, *(() if grad_y is None else (grad_y.reshape(1),)))
    return Mismatch(
        "in the call of a whole grid",
        "break the ulp rule",
        index=(index,),
        input=show(grid.both[index]),
        grad_y=None if grad_y is None else show(grad_y),
        got=show(part.got[index]),
        exact=truth.explain(0),
        wrong=part.wrong.numel(),
        total=part.elements,
    )


def _plainness(x: Tensor) -> Tensor:
    """Less is plainer: significant bits first, then distance of the exponent from 0, then the sign. int64."""
    value = x.to(torch.float32)
    bits = value.view(torch.int32).to(torch.int64)
    fraction = bits & 0x7FFFFF
    last = (fraction & -fraction).clamp(min=1).to(torch.float64).log2().to(torch.int64)
    digits = torch.where(fraction == 0, 0, 23 - last)
    exponent = (((bits >> 23) & 0xFF) - 127).abs()
    plain = digits * 4096 + exponent * 4 + (bits < 0)
    return torch.where(value.isfinite() & (value != 0), plain, 1 << 20)
