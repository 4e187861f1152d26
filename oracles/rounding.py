"""One rounding, from FP64 or from an exact rational, to the dtype of a result; and the bits of a tensor.

torch's own cast from FP64 to a 16-bit dtype rounds twice, through FP32, and changes up to 1,302 of the 63,488
finite FP16 inputs that it rounds to BF16.
"""

from __future__ import annotations

from fractions import Fraction

import torch
from torch import Tensor

from oracles.formats import format_of, round_to_format
from oracles.ulp import spacing

_BITS: dict[int, torch.dtype] = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def round_once(value: Tensor, dtype: torch.dtype) -> Tensor:
    """FP64 `value` rounded once to `dtype`: to nearest, ties to even, subnormals kept, overflow to infinity.

    Dividing by a power of two and multiplying by it again are exact, so the one rounding is that to an
    integer count of spacings; the cast that follows is exact, or overflows. NaN stays NaN, zeros keep their
    sign. Raises TypeError when `value` is not FP64 or `dtype` not a format of the oracles.
    """
    unit = spacing(value, dtype)
    return (value / unit).round_().mul_(unit).to(dtype)


def round_exact(value: Fraction, dtype: torch.dtype, side: int = 0) -> float:
    """An exact rational rounded once to `dtype` (as `round_once`), as a Python float.

    `side` = +1 or -1: `value` is an open end and what is rounded lies just above or just below it.
    """
    return round_to_format(value, format_of(dtype), side)


def to_bits(t: Tensor) -> Tensor:
    """The encodings of a floating-point tensor: int16, int32 or int64 of its width, same shape.

    Of its values: a tensor whose negation is one bit of the whole (`is_neg()`) is negated first.
    """
    return t.detach().resolve_neg().contiguous().view(_BITS[t.element_size()])


def from_bits(bits: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor of `dtype` whose encodings are `bits`: any integer dtype, taken modulo 2**width."""
    width = _BITS[dtype.itemsize]
    if bits.element_size() > dtype.itemsize:
        half = 1 << (8 * dtype.itemsize - 1)
        bits = ((bits + half) & (2 * half - 1)) - half
    return bits.to(width).contiguous().view(dtype)


def neighbour(t: Tensor, steps: int) -> Tensor:
    """The value `steps` encodings above (below, when negative) each element; it stops at the infinities.

    Both zeros are one place on this ladder, and a zero that is reached keeps the sign of where it came from.
    NaN stays as it is.
    """
    bits = to_bits(t).to(torch.int64)
    magnitude_mask = (1 << (8 * t.element_size() - 1)) - 1
    top = to_bits(torch.tensor(torch.inf, dtype=t.dtype)).to(torch.int64).item()
    rung = torch.where(bits < 0, -(bits & magnitude_mask), bits)
    moved = (rung + steps).clamp(-int(top), int(top))
    negative = (moved < 0) | ((moved == 0) & (bits < 0))
    encoded = torch.where(negative, moved.abs() - (magnitude_mask + 1), moved.abs())
    return torch.where(t.isnan(), t, from_bits(encoded, t.dtype))
