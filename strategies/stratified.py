"""A dense sample of FP32: a stratum a point, so that no stretch of the format is left out, and every seam.

For one cap and seed. Magnitudes only: whoever judges them takes both signs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from strategies.draws import Draw
from strategies.dtypes import FORMATS
from strategies.values import BEND, around_seams, beside_powers, special_magnitudes

__all__ = ["stratified"]

_SHORT = range(-8, 9)  # exponents of the plain inputs that a reader recognises


def stratified(cap: float, seed: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """At least `count` (from 2^12 on) different magnitude patterns of FP32, ascending: int64, 1-D.

    Two thirds of the strata are in the bend, a third over all finite patterns. Besides: three steps around
    each z of `values.SEAMS`, both sides of every power of two, plain inputs, infinity and NaN.
    """
    form = FORMATS["fp32"]
    draw = Draw(index=torch.arange(count, device=device), seed=seed, dtype="fp32", cap=cap)
    lowest, highest = (draw.scale(z) for z in BEND)
    dense = max(min(count * 2 // 3, (highest - lowest) // 2), 1)
    points = [
        _strata(draw.at(draw.index[:dense]), lowest, highest),
        _strata(draw.at(draw.index[: count - dense + count // 32]), 0, form.largest),
        around_seams(draw),
        beside_powers(draw),
        special_magnitudes(draw),
        _plain(device),
    ]
    unique: Tensor = torch.unique(torch.cat(points))
    return unique


def _strata(draw: Draw, low: int, high: int) -> Tensor:
    """One pattern of each of as many equal stretches as there are elements."""
    count = draw.index.numel()
    width = max((high - low) // count, 1)
    start = low + (high - low) * torch.arange(count, device=draw.index.device) // count
    return (start + draw.below(f"from {low}", width)).clamp(max=high)


def _plain(device: torch.device | str) -> Tensor:
    """Six bits of significand near 1."""
    fraction = FORMATS["fp32"].digits - 1
    exponents = torch.tensor([(127 + k) << fraction for k in _SHORT], device=device)
    return (exponents[:, None] + (torch.arange(32, device=device) << (fraction - 5))).flatten()
