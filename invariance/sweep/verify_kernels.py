"""The fused verifier for FP32 on a GPU: truth, error, reductions and fingerprint in one pass over the results.

A *tile* is up to 2**16 magnitudes in one zone and one binade of x/c. The kernel settles the tiles in which nothing is
unusual: results for x and -x are mirror images, within the bound, in order, and within the tolerance for certain.
Any other tile it only marks (`dirty`), and the torch engine judges it. The formulas and their bounds are those of
`errors`, the rounding of errors that of `settle`; divisions of FP64 are IEEE's, and fused multiply-adds only tighten.
"""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

BLOCK = 512
TILE = 1 << 16
ZONES = {"below": 0, "tiny": 1, "middle": 2, "upper": 3, "far": 4}
SPECIAL = 5
"""Infinities and NaNs: always the torch engine's."""

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
EDGE = tl.constexpr(1 << 9)
FRACTION = tl.constexpr((1 << 52) - 1)
NAN = tl.constexpr(0x7FC00000)
SIGN = tl.constexpr(-(1 << 31))
FIRST = tl.constexpr(0xFF51AFD7ED558CCD - (1 << 64))
SECOND = tl.constexpr(0xC4CEB9FE1A85EC53 - (1 << 64))
MASK = tl.constexpr((1 << 31) - 1)
SHIFT = tl.constexpr(33)
MAGIC = tl.constexpr(1.5 * 2.0**52)
"""Added and taken off again it rounds what is below 2**51 to an integer, ties to even."""

ROUND_IT = tl.constexpr(1)
CONTEND = tl.constexpr(2)


@triton.jit
def _mixed(x, y):
    """The word of each pair of encodings (int32), mixed: `fingerprint.mix`."""
    low = y.to(tl.int64) & 0xFFFFFFFF
    word = (x.to(tl.int64) << 32) ^ low
    word = (word ^ ((word >> SHIFT) & MASK)) * FIRST
    word = (word ^ ((word >> SHIFT) & MASK)) * SECOND
    return word ^ ((word >> SHIFT) & MASK)


@triton.jit
def _canonical(bits):
    """Encodings, every NaN as the same one."""
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, NAN, bits)


@triton.jit
def _power(exponent):
    """2**(exponent - 1023) for int64 exponents."""
    return (exponent << 52).to(tl.float64, bitcast=True)


@triton.jit
def _per_spacing(value):
    """1 / spacing of FP32 at positive FP64 values."""
    exponent = (value.to(tl.int64, bitcast=True) >> 52) & 0x7FF
    return _power(2046 - (tl.maximum(exponent, 897) - 23))


@triton.jit
def _rounded(error):
    """FP64 errors rounded to `settle.ERROR`: a multiple of 2**-32 below 256, 40 bits above."""
    exponent = tl.maximum(error.to(tl.int64, bitcast=True) >> 52, 1030) - 39
    count = error * _power(2046 - exponent)
    return ((count + MAGIC) - MAGIC) * _power(exponent)


@triton.jit
def _edges(value):
    return ((value.to(tl.int64, bitcast=True) + EDGE) & FRACTION) < 2 * EDGE


@triton.jit
def _forward(zone, m, y, k):
    """(error, certainly rounded, perhaps rounded, edge, bound) of FP64 results y of a forward pass."""
    a = m.to(tl.float32, bitcast=True).to(tl.float64)
    cap = tl.load(k + CAP)
    edge = m < 0
    if zone <= 1:
        before = tl.maximum(a.to(tl.int64, bitcast=True) - 1, 0).to(tl.float64, bitcast=True)
        z = a * tl.load(k + INVERSE_CAP)
        w = z * z
        less = a * (w * (1.0 - 0.4 * w)) * (1.0 / 3.0)
        error = tl.abs((y - a) + less) * _per_spacing(before)
        sure = error < 0.5 - SERIES_BOUND
        maybe = error <= 0.5 + SERIES_BOUND
        bound = a * 0.0 + SERIES_BOUND
    elif zone == 2:
        value = cap * libdevice.tanh(a / cap)
        error = tl.abs(y - value) * _per_spacing(value)
        edge = _edges(value)
        sure = (error < 0.5 - MIDDLE_BOUND) & ~edge
        maybe = (error <= 0.5 + MIDDLE_BOUND) | edge
        bound = a * 0.0 + MIDDLE_BOUND
    elif zone == 3:
        e = libdevice.exp(-2.0 * (a / cap))
        less = (2.0 * cap) * e / (1.0 + e)
        value = cap - less
        several = (value * 0.0 + tl.load(k + POWER_OF_TWO)) == 0.0  # below a power of two all is in one binade
        step = tl.where(several, _per_spacing(value), tl.load(k + FAR_INVERSE))
        error = tl.abs((y - cap) + less) * step
        edge = _edges(value) & several
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
def _backward(zone, m, y, k):
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
        off = distance * _per_spacing(value)
        edge = _edges(value)
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
def _errors(zone, m, y, k, BACKWARD: tl.constexpr):
    if BACKWARD:
        found = _backward(zone, m, y, k)
    else:
        found = _forward(zone, m, y, k)
    return found


@triton.jit
def _append(flag, m, bits, error, kind, count, places, results, errors, kinds, capacity):
    """List the flagged lanes; past `capacity` they are only counted."""
    if tl.max(flag.to(tl.int32), 0) > 0:
        slot = tl.atomic_add(count + (m - m), m - m + 1, mask=flag, sem="relaxed")
        listed = flag & (slot < capacity)
        slot = tl.where(listed, slot, 0)
        tl.store(places + slot, m, mask=listed)
        tl.store(results + slot, bits, mask=listed)
        tl.store(errors + slot, error, mask=listed)
        tl.store(kinds + slot, kind, mask=listed)


@triton.jit
def generate_kernel(x, start, half, BLOCK: tl.constexpr):
    """x (int32): magnitudes from `start`, `half` of them, and then the same with the sign bit."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = (start + at).to(tl.int32)
    tl.store(x + at, m, mask=at < half)
    tl.store(x + half + at, m | SIGN, mask=at < half)


@triton.jit
def verify_kernel(
    y, start, half, tile_lo, tile_size, tile_zone, tile_bin, k,
    out_key, out_at, out_got, out_sure, out_rounded, out_flushed, out_dirty, out_positive, out_negative, floors,
    count, places, results, errors, kinds, capacity,
    BACKWARD: tl.constexpr, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a tile. y (int32): results of magnitudes from `start`, `half` of positive inputs, then of negative ones."""
    tile = tl.program_id(0)
    lo = tl.load(tile_lo + tile)
    size = tl.load(tile_size + tile)
    zone = tl.load(tile_zone + tile)
    lane = tl.arange(0, BLOCK)
    cap = tl.load(k + CAP)
    best = tl.full([BLOCK], -1.0, tl.float64)
    least = tl.full([BLOCK], -1.0, tl.float64)
    where = tl.zeros([BLOCK], tl.int32)
    certain = tl.zeros([BLOCK], tl.int32)
    rounded = tl.zeros([BLOCK], tl.int32)
    flushed = tl.zeros([BLOCK], tl.int32)
    dirty = tl.zeros([BLOCK], tl.int32)
    positive = tl.zeros([BLOCK], tl.int64)
    negative = tl.zeros([BLOCK], tl.int64)
    for i in range(ITERATIONS):
        place = i * BLOCK + lane
        inside = place < size
        m = lo + place
        at = (m - start).to(tl.int64)
        p = tl.load(y + at, mask=inside, other=0)
        n = tl.load(y + half + at, mask=inside, other=0)
        follows = inside & (at + 1 < half)
        after = tl.load(y + at + 1, mask=follows, other=0).to(tl.float32, bitcast=True)
        positive += tl.where(inside, _mixed(m, _canonical(p)), 0)
        negative += tl.where(inside, _mixed(m | SIGN, _canonical(n)), 0)
        if zone < 5:
            got = p.to(tl.float32, bitcast=True)
            wide = got.to(tl.float64)
            if BACKWARD:
                odd = (p != n) | (p < 0) | (wide > 1.0) | (follows & (after > got))
            else:
                odd = (p != (n ^ SIGN)) | (p < 0) | (wide > cap) | (follows & (after < got))
            error, sure, unsure, edge, bound = _errors(zone, m, wide, k, BACKWARD)
            fine = error <= tl.load(k + ALLOWED) - 2.0 * bound
            key = error
            if zone == 0:
                a = m.to(tl.float32, bitcast=True).to(tl.float64)
                if not BACKWARD:
                    key = tl.abs(wide - a) / tl.load(k + FLOOR)
                    before = tl.maximum(a.to(tl.int64, bitcast=True) - 1, 0).to(tl.float64, bitcast=True)
                    limit = tl.load(k + LIMIT) / _per_spacing(before) + tl.load(k + FLOOR)
                    zero = wide == 0.0
                    gone = zero & (a > limit * 1.0001)
                    fine = fine | gone | (zero & (a < limit * 0.9999))
                    flushed += (gone & inside).to(tl.int32)
                key = _rounded(key)
                low = key
            else:
                width = bound + error * ROUNDING
                key = _rounded(error + width)
                low = _rounded(tl.maximum(error - width, 0.0))
            fine = fine & ((error <= 2.5) | ~edge)
            dirty += ((odd | ~fine) & inside).to(tl.int32)
            rounded += (sure & inside).to(tl.int32)
            counts = inside & ~edge
            better = counts & (key > best)
            best = tl.where(better, key, best)
            where = tl.where(better, m, where)
            certain = tl.where(better, (low == key).to(tl.int32), certain)
            least = tl.where(counts & (low > least), low, least)
            if zone < 4:
                kind = tl.where(edge, ROUND_IT + CONTEND, ROUND_IT)
                flag = (unsure | edge) & inside
                _append(flag, m, p, error, kind, count, places, results, errors, kinds, capacity)
    top = tl.max(best, 0)
    first = tl.min(tl.where(best == top, where, 0x7FFFFFFF), 0)
    is_dirty = tl.sum(dirty, 0) + (zone == 5).to(tl.int32)
    tl.store(out_key + tile, top)
    tl.store(out_at + tile, first)
    tl.store(out_got + tile, tl.load(y + (first - start).to(tl.int64), mask=top >= 0.0, other=0))
    tl.store(out_sure + tile, tl.max(tl.where((best == top) & (where == first), certain, 0), 0))
    tl.store(out_rounded + tile, tl.sum(rounded, 0))
    tl.store(out_flushed + tile, tl.sum(flushed, 0))
    tl.store(out_dirty + tile, is_dirty)
    tl.store(out_positive + tile, tl.sum(positive, 0))
    tl.store(out_negative + tile, tl.sum(negative, 0))
    sure_top = tl.max(least, 0)
    if is_dirty == 0 and sure_top >= 0.0:
        tl.atomic_max(floors + tl.load(tile_bin + tile), sure_top.to(tl.int64, bitcast=True))


@triton.jit
def collect_kernel(
    y, start, tile_lo, tile_size, tile_zone, tile_bin, k,
    out_key, out_sure, out_dirty, floors, count, places, results, errors, kinds, capacity,
    BACKWARD: tl.constexpr, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List the contenders of each clean tile whose worst result is not certain and may be its binade's."""
    tile = tl.program_id(0)
    floor = tl.load(floors + tl.load(tile_bin + tile)).to(tl.float64, bitcast=True)
    zone = tl.load(tile_zone + tile)
    open_ = (tl.load(out_sure + tile) == 0) & (tl.load(out_dirty + tile) == 0) & (zone > 0)
    if open_ & (tl.load(out_key + tile) >= floor):
        lo = tl.load(tile_lo + tile)
        size = tl.load(tile_size + tile)
        lane = tl.arange(0, BLOCK)
        for i in range(ITERATIONS):
            place = i * BLOCK + lane
            inside = place < size
            m = lo + place
            p = tl.load(y + (m - start).to(tl.int64), mask=inside, other=0)
            wide = p.to(tl.float32, bitcast=True).to(tl.float64)
            error, sure, unsure, edge, bound = _errors(zone, m, wide, k, BACKWARD)
            key = _rounded(error + (bound + error * ROUNDING))
            flag = inside & ~edge & (key >= floor)
            kind = tl.where(flag, CONTEND, CONTEND)
            _append(flag, m, p, error, kind, count, places, results, errors, kinds, capacity)
