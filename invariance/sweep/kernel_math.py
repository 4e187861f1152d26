"""Truth and errors of FP32 results as Triton functions: the formulas and bounds of `errors`, the rounding of `settle`.

x/c is x times the FP64 reciprocal of the cap, which adds 1.5u to it: the bounds of `errors` have room for that, and
fused multiply-adds only tighten. Zones are compile-time constants, so that each kernel holds one formula.
"""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

from invariance.sweep.domain import BELOW, FAR, MIDDLE, TINY, UPPER
from invariance.sweep.errors import (
    FAR_BOUND,
    FORWARD_RELATIVE,
    GRADIENT_BOUND,
    GRADIENT_RELATIVE,
    SERIES_BOUND,
    UPPER_BOUND,
)
from invariance.sweep.settle import ROUNDING

ZONES = {BELOW: 0, TINY: 1, MIDDLE: 2, UPPER: 3, FAR: 4}
SPECIAL = 5
"""Infinities and NaNs, which have no formula."""

BOUNDS = {
    "forward": (SERIES_BOUND, SERIES_BOUND, FORWARD_RELATIVE * 2.0**24, UPPER_BOUND, FAR_BOUND, 0.0),
    "backward": (SERIES_BOUND, SERIES_BOUND, GRADIENT_BOUND[MIDDLE], GRADIENT_BOUND[UPPER], FAR_BOUND, 0.0),
}
"""By pass and zone, how far an FP64 error is from the exact one; SPECIAL has none."""
OFF_BOUNDS = {
    "forward": BOUNDS["forward"],
    "backward": (
        SERIES_BOUND,
        SERIES_BOUND,
        GRADIENT_RELATIVE[MIDDLE] * 2.0**24,
        GRADIENT_RELATIVE[UPPER] * 2.0**24,
        FAR_BOUND,
        0.0,
    ),
}
"""The same for the distance in ulp."""

# Places in the vector of FP64 constants.
CAP, INVERSE_CAP, FAR_INVERSE, POWER_OF_TWO, FLOOR, ALLOWED, INVERSE_UNIT, LIMIT = (
    tl.constexpr(i) for i in range(8)
)
CONSTANTS = 8
ROUNDED = tl.constexpr(ROUNDING)
EDGE = tl.constexpr(1 << 14)
FRACTION = tl.constexpr((1 << 52) - 1)
NAN = tl.constexpr(0x7FC00000)
SIGN = tl.constexpr(-(1 << 31))
NEAR_ONE_INVERSE = tl.constexpr(2.0**24)
SMALLEST_INVERSE = tl.constexpr(2.0**149)
FIRST = tl.constexpr(0xFF51AFD7ED558CCD - (1 << 64))
SECOND = tl.constexpr(0xC4CEB9FE1A85EC53 - (1 << 64))
MASK = tl.constexpr((1 << 31) - 1)
SHIFT = tl.constexpr(33)
MAGIC = tl.constexpr(1.5 * 2.0**52)
"""Added and taken off again it rounds what is below 2**51 to an integer, ties to even."""
STEP = tl.constexpr(1.5 * 2.0**20)
"""The same for what is below 256 and multiples of 2**-32, the steps of `settle.ERROR` there."""


@triton.jit
def mixed(x, y):
    """The word of each pair of encodings (int32), mixed: `fingerprint.mix`."""
    low = y.to(tl.int64) & 0xFFFFFFFF
    word = (x.to(tl.int64) << 32) ^ low
    word = (word ^ ((word >> SHIFT) & MASK)) * FIRST
    word = (word ^ ((word >> SHIFT) & MASK)) * SECOND
    return word ^ ((word >> SHIFT) & MASK)


@triton.jit
def canonical(bits):
    """Encodings, every NaN as the same one."""
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, NAN, bits)


@triton.jit
def widened(bits):
    """FP64 values of FP32 encodings."""
    return bits.to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
def power(exponent):
    """2**exponent for int32 exponents from -1022 to 1023."""
    return ((exponent + 1023).to(tl.int64) << 52).to(tl.float64, bitcast=True)


@triton.jit
def per_spacing(value):
    """1 / spacing of FP32 at positive FP64 values."""
    biased = ((value.to(tl.int64, bitcast=True) >> 52) & 0x7FF).to(tl.int32)
    return power(1023 + 23 - tl.maximum(biased, 897))


@triton.jit
def per_spacing_below(m):
    """1 / spacing of FP32 at what lies just below each magnitude: the predecessor tells its binade."""
    return power(127 + 23 - tl.maximum((m - 1) >> 23, 1))


@triton.jit
def quantised(error):
    """FP64 errors rounded to `settle.ERROR`: a multiple of 2**-32 below 256, 40 bits above."""
    biased = tl.maximum((error.to(tl.int64, bitcast=True) >> 52).to(tl.int32), 1030)
    count = error * power(1023 + 39 - biased)
    return ((count + MAGIC) - MAGIC) * power(biased - 39 - 1023)


@triton.jit
def quantised_small(error):
    """The same for errors below 256."""
    return (error + STEP) - STEP


@triton.jit
def edges(value):
    """Where FP64 values do not tell the binade of the exact ones."""
    return ((value.to(tl.int64, bitcast=True) + EDGE) & FRACTION) < 2 * EDGE


@triton.jit
def forward(m, y, k, ZONE: tl.constexpr):
    """Forward errors in ulp, twice, and where the binade of the exact result is not certain."""
    a = widened(m)
    cap = tl.load(k + CAP)
    edge = m != m
    if ZONE <= 1:
        z = a * tl.load(k + INVERSE_CAP)
        w = z * z
        less = a * (w * (1.0 - 0.4 * w)) * (1.0 / 3.0)
        error = tl.abs((y - a) + less) * per_spacing_below(m)
    elif ZONE == 2:
        value = cap * libdevice.tanh(a * tl.load(k + INVERSE_CAP))
        error = tl.abs(y - value) * per_spacing(value)
        edge = edges(value)
    elif ZONE == 3:
        e = libdevice.exp(-2.0 * (a * tl.load(k + INVERSE_CAP)))
        less = (2.0 * cap) * e / (1.0 + e)
        value = cap - less
        # Below a power of two everything up to 2**-22 of it is in one binade.
        several = value * 0.0 + tl.load(k + POWER_OF_TWO) == 0.0
        error = tl.abs((y - cap) + less) * tl.where(several, per_spacing(value), tl.load(k + FAR_INVERSE))
        edge = edges(value) & several
    else:
        error = tl.abs(y - cap) * tl.load(k + FAR_INVERSE)
    return error, error, edge


@triton.jit
def backward(m, y, k, ZONE: tl.constexpr):
    """Errors of gradients, upstream 1: in gradient units, in ulp, and where the ulp is not certain."""
    z = widened(m) * tl.load(k + INVERSE_CAP)
    edge = m != m
    if ZONE <= 1:
        w = z * z
        distance = tl.abs((y - 1.0) + w * (1.0 - (2.0 / 3.0) * w))
        off = distance * NEAR_ONE_INVERSE  # the gradient lies in [1/2, 1)
    elif ZONE <= 3:
        e = libdevice.exp(-2.0 * z)
        near = 1.0 + e
        value = 4.0 * e / (near * near)
        distance = tl.abs(y - value)
        off = distance * per_spacing(value)
        edge = edges(value)
    else:
        distance = tl.abs(y)
        off = distance * SMALLEST_INVERSE  # the exact result is 0
    return distance * tl.load(k + INVERSE_UNIT), off, edge


@triton.jit
def errors_of(m, y, k, ZONE: tl.constexpr, BACKWARD: tl.constexpr):
    """(error, off, edge) of FP64 results y for int32 magnitudes m: the errors of one pass, as `errors.Errors`."""
    return backward(m, y, k, ZONE) if BACKWARD else forward(m, y, k, ZONE)
