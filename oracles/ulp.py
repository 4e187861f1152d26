"""Spacing of a format, and the distance from an exact value measured in it."""

from __future__ import annotations

import torch
from torch import Tensor

from oracles.formats import format_of

_EXPONENT_BIAS = 1023
_FRACTION_BITS = 52


def spacing(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Spacing of `dtype` in the binade of each FP64 value: FP64, same shape.

    Below the normal range it is the subnormal spacing. Above the largest finite value it goes on as if the
    exponent had no end, and an infinity or NaN counts as the top FP64 binade, so that the result is always
    a finite power of two.
    """
    fmt = format_of(dtype)
    _expect_fp64(value)
    exponent = (value.view(torch.int64) >> _FRACTION_BITS) & 0x7FF
    exponent = exponent.clamp(fmt.emin + _EXPONENT_BIAS, 2046) - (fmt.precision - 1)
    return (exponent << _FRACTION_BITS).view(torch.float64)


def distance(got: Tensor, exact: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """|got - exact| in units of the spacing of `dtype` (that of `got` unless given) at `exact`: FP64.

    0 where both are NaN or the same infinity; inf where only one of them is NaN or infinite.
    """
    _expect_fp64(exact)
    wide = got.to(torch.float64)
    ulps = (wide - exact).abs() / spacing(exact, dtype or got.dtype)
    same = (wide == exact) | (wide.isnan() & exact.isnan())
    return torch.where(same, 0.0, torch.where(wide.isfinite() & exact.isfinite(), ulps, torch.inf))


def _expect_fp64(value: Tensor) -> None:
    if value.dtype != torch.float64:
        raise TypeError(f"an exact value is held in torch.float64, not in {value.dtype}")
