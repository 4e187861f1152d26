"""The three formats that a softcap kernel reads or writes, and the cap as the FP32 value that it is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch


@dataclass(frozen=True)
class Format:
    """An IEEE 754 binary format: `precision` bits of significand, normal exponents from `emin` to `emax`."""

    name: str
    precision: int
    emin: int
    emax: int

    @property
    def smallest_log2(self) -> int:
        """log2 of the spacing of the subnormals, which is the smallest positive value too."""
        return self.emin - self.precision + 1

    @property
    def smallest(self) -> float:
        """Spacing of the subnormals."""
        return math.ldexp(1.0, self.smallest_log2)

    @property
    def overflow(self) -> Fraction:
        """2**(emax + 1): what a rounded magnitude reaches when it overflows to infinity."""
        return Fraction(2) ** (self.emax + 1)


FORMATS: dict[torch.dtype, Format] = {
    torch.float16: Format("fp16", 11, -14, 15),
    torch.bfloat16: Format("bf16", 8, -126, 127),
    torch.float32: Format("fp32", 24, -126, 127),
}

FP64 = Format("fp64", 53, -1022, 1023)
"""Not a format that a kernel reads or writes: only for showing exact values."""


def format_of(dtype: torch.dtype) -> Format:
    """The format of a torch dtype. Raises TypeError for any other than float16, bfloat16 and float32."""
    try:
        return FORMATS[dtype]
    except KeyError:
        accepted = ", ".join(str(known) for known in FORMATS)
        raise TypeError(f"no format for {dtype}: the oracles know {accepted}") from None


def cap_as_fp32(cap: float) -> float:
    """The FP32 value nearest to `cap` (ties to even, one rounding), as a Python float.

    Raises ValueError when that value is not finite and positive: no oracle has an answer there.
    """
    nearest = _nearest(cap if isinstance(cap, int) else float(cap))
    if nearest is None or not 0.0 < nearest < math.inf:
        raise ValueError(f"the cap must be finite and positive as FP32, not {cap!r}")
    return nearest


@lru_cache(maxsize=1024, typed=True)  # every operator that is built asks, and few caps are in use
def _nearest(cap: float) -> float | None:
    return nearest_fp32(Fraction(cap)) if isinstance(cap, int) or math.isfinite(cap) else None


def nearest_fp32(value: Fraction) -> float:
    """One rounding of an exact rational to FP32; see `round_to_format`."""
    return round_to_format(value, FORMATS[torch.float32])


def floor_log2(value: Fraction) -> int:
    """The exponent of the binade of a positive rational: 2**e <= value < 2**(e + 1)."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    scaled = value.numerator << max(-exponent, 0)
    return exponent if scaled >= value.denominator << max(exponent, 0) else exponent - 1


def round_to_format(value: Fraction, fmt: Format, side: int = 0) -> float:
    """`value` rounded to nearest, ties to even, overflow to infinity; returned as a Python float.

    `side` says what is being rounded when `value` is the end of an open interval: +1 something
    infinitesimally above `value`, -1 something infinitesimally below, 0 `value` itself. Only exact ties
    depend on it.
    """
    magnitude, sign = abs(value), -1.0 if value < 0 else 1.0
    if magnitude == 0:
        return 0.0
    step = max(floor_log2(magnitude), fmt.emin) - fmt.precision + 1
    count, rest = divmod(magnitude.numerator << max(-step, 0), magnitude.denominator << max(step, 0))
    twice = 2 * rest - (magnitude.denominator << max(step, 0))
    outward = side * int(sign)
    if twice > 0 or (twice == 0 and (outward > 0 or (outward == 0 and count % 2 == 1))):
        count += 1
    if count * Fraction(2) ** step >= fmt.overflow:
        return math.copysign(math.inf, sign)
    return math.copysign(math.ldexp(count, step), sign)
