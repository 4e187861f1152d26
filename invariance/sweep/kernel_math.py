"""Truth and errors of FP32 results as Triton functions: the formulas and bounds of `errors`, the rounding of `settle`.

Divisions of FP64 are IEEE's; fused multiply-adds only tighten.
"""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

# Places in the vector of FP64 constants.
CAP, INVERSE_CAP, FAR_INVERSE, POWER_OF_TWO, FLOOR, ALLOWED, INVERSE_UNIT, LIMIT = (
    tl.constexpr(i) for i in range(8)
)
CONSTANTS = 8
SERIES_BOUND = tl.constexpr(2.0**-46)
UPPER_BOUND = tl.constexpr(2.0**-39)
FAR_BOUND = tl.constexpr(2.0**-60)
MIDDLE_BOUND = tl.constexpr(2.0**-20)
GRADIENT_MIDDLE_BOUND = tl.constexpr(2.0**-19)
GRADIENT_MIDDLE_ULPS = tl.constexpr(2.0**-18)
GRADIENT_UPPER_ULPS = tl.constexpr(2.0**-15)
ROUNDING = tl.constexpr(2.0**-50)
EDGE = tl.constexpr(1 << 14)
FRACTION = tl.constexpr((1 << 52) - 1)
NAN = tl.constexpr(0x7FC00000)
SIGN = tl.constexpr(-(1 << 31))
FIRST = tl.constexpr(0xFF51AFD7ED558CCD - (1 << 64))
SECOND = tl.constexpr(0xC4CEB9FE1A85EC53 - (1 << 64))
MASK = tl.constexpr((1 << 31) - 1)
SHIFT = tl.constexpr(33)
MAGIC = tl.constexpr(1.5 * 2.0**52)
"""Added and taken off again it rounds what is below 2**51 to an integer, ties to even."""


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
def power(exponent):
    """2**(exponent - 1023) for int64 exponents."""
    return (exponent << 52).to(tl.float64, bitcast=True)


@triton.jit
def per_spacing(value):
    """1 / spacing of FP32 at positive FP64 values."""
    exponent = (value.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    return power(2046 - (tl.maximum(exponent, 897) - 23))


@triton.jit
def quantised(error):
    """FP64 errors rounded to `settle.ERROR`: a multiple of 2**-32 below 256, 40 bits above."""
    exponent = tl.maximum(error.to(tl.int64, bitcast=True) >> 52, 1030) - 39
    count = error * power(2046 - exponent)
    return ((count + MAGIC) - MAGIC) * power(exponent)


@triton.jit
def edges(value):
    """Where FP64 values do not tell the binade of the exact ones."""
    return ((value.to(tl.int64, bitcast=True) + EDGE) & FRACTION) < 2 * EDGE


@triton.jit
def forward(zone, m, y, k):
    """(error, certainly rounded, perhaps rounded, edge, bound) of FP64 results y of a forward pass."""
    a = m.to(tl.float32, bitcast=True).to(tl.float64)
    cap = tl.load(k + CAP)
    edge = m < 0
    if zone <= 1:
        before = tl.maximum(a.to(tl.int64, bitcast=True) - 1, 0).to(tl.float64, bitcast=True)
        z = a * tl.load(k + INVERSE_CAP)
        w = z * z
        less = a * (w * (1.0 - 0.4 * w)) * (1.0 / 3.0)
        error = tl.abs((y - a) + less) * per_spacing(before)
        sure = error < 0.5 - SERIES_BOUND
        maybe = error <= 0.5 + SERIES_BOUND
        bound = a * 0.0 + SERIES_BOUND
    elif zone == 2:
        value = cap * libdevice.tanh(a / cap)
        error = tl.abs(y - value) * per_spacing(value)
        edge = edges(value)
        sure = (error < 0.5 - MIDDLE_BOUND) & ~edge
        maybe = (error <= 0.5 + MIDDLE_BOUND) | edge
        bound = a * 0.0 + MIDDLE_BOUND
    elif zone == 3:
        e = libdevice.exp(-2.0 * (a / cap))
        less = (2.0 * cap) * e / (1.0 + e)
        value = cap - less
        several = (
            value * 0.0 + tl.load(k + POWER_OF_TWO)
        ) == 0.0  # below a power of two all is in one binade
        step = tl.where(several, per_spacing(value), tl.load(k + FAR_INVERSE))
        error = tl.abs((y - cap) + less) * step
        edge = edges(value) & several
        sure = (error < 0.5 - UPPER_BOUND) & ~edge
        maybe = (error <= 0.5 + UPPER_BOUND) | edge
        bound = a * 0.0 + UPPER_BOUND
    else:
        error = tl.abs(y - cap) * tl.load(k + FAR_INVERSE)
        sure = y == cap
        maybe = sure
        bound = a * 0.0 + FAR_BOUND
    return error, sure, maybe & ~sure, edge, bound


@triton.jit
def backward(zone, m, y, k):
    """The same for gradients of an upstream gradient of 1: errors in gradient units."""
    a = m.to(tl.float32, bitcast=True).to(tl.float64)
    inverse_unit = tl.load(k + INVERSE_UNIT)
    edge = m < 0
    if zone <= 1:
        z = a * tl.load(k + INVERSE_CAP)
        w = z * z
        distance = tl.abs((y - 1.0) + w * (1.0 - (2.0 / 3.0) * w))
        error = distance * inverse_unit
        off = distance * 16777216.0
        sure = off < 0.5 - SERIES_BOUND
        maybe = off <= 0.5 + SERIES_BOUND
        bound = a * 0.0 + SERIES_BOUND
    elif zone <= 3:
        e = libdevice.exp(-2.0 * (a / tl.load(k + CAP)))
        near = 1.0 + e
        value = 4.0 * e / (near * near)
        distance = tl.abs(y - value)
        error = distance * inverse_unit
        off = distance * per_spacing(value)
        edge = edges(value)
        slack = tl.where(zone == 2, GRADIENT_MIDDLE_ULPS, GRADIENT_UPPER_ULPS)
        sure = (off < 0.5 - slack) & ~edge
        maybe = (off <= 0.5 + slack) | edge
        bound = a * 0.0 + tl.where(zone == 2, GRADIENT_MIDDLE_BOUND, UPPER_BOUND)
        edge = m < 0  # the unit of the error does not depend on the binade
    else:
        error = tl.abs(y) * inverse_unit
        sure = y == 0.0
        maybe = sure
        bound = a * 0.0 + FAR_BOUND
    return error, sure, maybe & ~sure, edge, bound


@triton.jit
def errors_of(zone, m, y, k, BACKWARD: tl.constexpr):
    """The errors of one pass."""
    return backward(zone, m, y, k) if BACKWARD else forward(zone, m, y, k)
