"""One failing element out of many: the one that a person recognises."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from invariance.fuzz.grid import Grid
from invariance.fuzz.scan import Part
from oracles.rounding import to_bits


@dataclass(frozen=True)
class Element:
    """One failing element: the bits of x, and the upstream gradient in FP32 bits."""

    x: int
    grad_y: int | None
    wrong: int
    total: int


def simplest_element(grid: Grid, part: Part) -> Element:
    """Of the failing elements the one that a person recognises: few digits, near 1, positive."""
    x = grid.both[part.wrong]
    order = torch.argsort(_plainness(x), stable=True)
    index = int(part.wrong[order[0]])
    grad_y = None if part.grad_y is None else int(to_bits(part.grad_y[index].to(torch.float32))) & 0xFFFFFFFF
    return Element(grid.pattern(index), grad_y, part.wrong.numel(), part.elements)


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
