"""Is a result within a margin of the exact value? Decided from value ± error where that suffices, exactly
elsewhere.

There are two tests. Direct (FP32 results of the forward pass): |got - E| <= margin(E). Bracketed
(everything else): RN(E - margin(E)) <= got <= RN(E + margin(E)), RN one rounding to got's dtype, overflow
to infinity.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from oracles.exact import Enclosure, decide
from oracles.margins import Margin
from oracles.rounding import round_once
from oracles.truth import Truth

_SLACK = 2.0**-50
"""Relative room for the FP64 additions of this module, a handful of half an ulp each."""


@dataclass(frozen=True)
class Band:
    """Where the exact value may lie, and the least and greatest margin it may have: FP64, one shape."""

    value: Tensor
    error: Tensor
    narrow: Tensor
    wide: Tensor

    @classmethod
    def around(cls, value: Tensor, error: Tensor, margin: Margin, floor: Tensor) -> Band:
        """The band of FP64 values with their error bounds."""
        size = value.abs()
        narrow = margin.at((size - error).clamp_min(0.0), floor)
        wide = margin.at(size + error, floor)
        return cls(value, error + (size + wide) * _SLACK, narrow, wide)

    def __getitem__(self, index: Tensor) -> Band:
        return Band(*(part[index] for part in (self.value, self.error, self.narrow, self.wide)))


def surely_within(got: Tensor, band: Band, direct: bool) -> Tensor:
    """Where the test holds for every exact value that the band allows: bool."""
    if direct:
        off = (got.to(torch.float64) - band.value).abs()
        return off * (1.0 + _SLACK) + band.error <= band.narrow
    near = band.narrow - band.error
    return _bracketed(got, band.value, near)


def possibly_within(got: Tensor, band: Band, direct: bool) -> Tensor:
    """Where the test holds for some exact value that the band allows: bool. Never for NaN."""
    if direct:
        off = (got.to(torch.float64) - band.value).abs()
        return off * (1.0 - _SLACK) - band.error <= band.wide
    far = band.wide + band.error
    return _bracketed(got, band.value, far)


def _bracketed(got: Tensor, value: Tensor, width: Tensor) -> Tensor:
    return (got >= round_once(value - width, got.dtype)) & (got <= round_once(value + width, got.dtype))


def exactly_within(
    truth: Truth, index: int, got: float, dtype: torch.dtype, margin: Margin, floor: float, direct: bool
) -> bool:
    """The test for one element of the truth, decided by the exact oracle."""

    def question(value: Enclosure) -> bool | None:
        width = margin.exactly(value, floor)
        if width is None:
            return None
        if direct:
            return _reaches(value.shifted(-Fraction(got)), width)
        low, high = value.shifted(-width).rounded(dtype), value.shifted(width).rounded(dtype)
        return None if low is None or high is None else low <= got <= high

    return decide(lambda bits: truth.exact(index, bits), question)


def exactly_below(truth: Truth, index: int, limit: float) -> bool:
    """|E| < limit for one element of the truth, decided by the exact oracle."""
    return decide(lambda bits: truth.exact(index, bits), lambda value: value.below(Fraction(limit)))


def _reaches(value: Enclosure, width: Fraction) -> bool | None:
    """|value| <= width."""
    if -width <= value.lo and value.hi <= width:
        return True
    return False if value.is_exact or value.lo >= width or value.hi <= -width else None
