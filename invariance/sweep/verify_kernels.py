"""The fused verifier for FP32 on a GPU: truth, error, reductions and fingerprint in one pass over the results.

A *tile* is up to 2**16 magnitudes in one zone and one binade of x/c. The kernel settles the tiles in which nothing is
unusual: results for x and -x are mirror images, within the bound, in order, and within the tolerance for certain.
Any other tile it only marks (`dirty`), and the torch engine judges it.
"""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl

from invariance.sweep.kernel_math import (
    ALLOWED,
    CAP,
    FLOOR,
    LIMIT,
    ROUNDING,
    SIGN,
    canonical,
    errors_of,
    mixed,
    per_spacing,
    quantised,
)

BLOCK = 512
TILE = 1 << 16
ZONES = {"below": 0, "tiny": 1, "middle": 2, "upper": 3, "far": 4}
SPECIAL = 5
"""Infinities and NaNs: always the torch engine's."""
ROUND_IT = tl.constexpr(1)
CONTEND = tl.constexpr(2)


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


@triton.jit(do_not_specialize=["first"])
def verify_kernel(
    y, start, half, first, tile_lo, tile_size, tile_zone, tile_bin, k,
    out_key, out_at, out_got, out_sure, out_rounded, out_flushed, out_dirty, out_positive, out_negative, floors,
    count, places, results, errors, kinds, capacity,
    BACKWARD: tl.constexpr, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a tile, from tile `first`. y (int32): results from magnitude `start` on, `half` of them for positive
    inputs, then as many for negative ones.
    """
    tile = first + tl.program_id(0)
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
        positive += tl.where(inside, mixed(m, canonical(p)), 0)
        negative += tl.where(inside, mixed(m | SIGN, canonical(n)), 0)
        if zone < 5:
            got = p.to(tl.float32, bitcast=True)
            wide = got.to(tl.float64)
            if BACKWARD:
                odd = (p != n) | (p < 0) | (wide > 1.0) | (follows & (after > got))
            else:
                odd = (p != (n ^ SIGN)) | (p < 0) | (wide > cap) | (follows & (after < got))
            error, sure, unsure, edge, bound = errors_of(zone, m, wide, k, BACKWARD)
            fine = error <= tl.load(k + ALLOWED) - 2.0 * bound
            key = error
            if zone == 0:
                a = m.to(tl.float32, bitcast=True).to(tl.float64)
                if not BACKWARD:
                    key = tl.abs(wide - a) / tl.load(k + FLOOR)
                    before = tl.maximum(a.to(tl.int64, bitcast=True) - 1, 0).to(tl.float64, bitcast=True)
                    limit = tl.load(k + LIMIT) / per_spacing(before) + tl.load(k + FLOOR)
                    zero = wide == 0.0
                    gone = zero & (a > limit * 1.0001)
                    fine = fine | gone | (zero & (a < limit * 0.9999))
                    flushed += (gone & inside).to(tl.int32)
                key = quantised(key)
                low = key
            else:
                width = bound + error * ROUNDING
                key = quantised(error + width)
                low = quantised(tl.maximum(error - width, 0.0))
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
    at_top = tl.min(tl.where(best == top, where, 0x7FFFFFFF), 0)
    is_dirty = tl.sum(dirty, 0) + (zone == 5).to(tl.int32)
    tl.store(out_key + tile, top)
    tl.store(out_at + tile, at_top)
    tl.store(out_got + tile, tl.load(y + (at_top - start).to(tl.int64), mask=top >= 0.0, other=0))
    tl.store(out_sure + tile, tl.max(tl.where((best == top) & (where == at_top), certain, 0), 0))
    tl.store(out_rounded + tile, tl.sum(rounded, 0))
    tl.store(out_flushed + tile, tl.sum(flushed, 0))
    tl.store(out_dirty + tile, is_dirty)
    tl.store(out_positive + tile, tl.sum(positive, 0))
    tl.store(out_negative + tile, tl.sum(negative, 0))
    sure_top = tl.max(least, 0)
    if is_dirty == 0 and sure_top >= 0.0:
        tl.atomic_max(floors + tl.load(tile_bin + tile), sure_top.to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=["first"])
def collect_kernel(
    y, start, first, tile_lo, tile_size, tile_zone, tile_bin, k,
    out_key, out_sure, out_dirty, floors, count, places, results, errors, kinds, capacity,
    BACKWARD: tl.constexpr, ITERATIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List the contenders of each clean tile whose worst result is not certain and may be its binade's."""
    tile = first + tl.program_id(0)
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
            error, _sure, _unsure, edge, bound = errors_of(zone, m, wide, k, BACKWARD)
            key = quantised(error + (bound + error * ROUNDING))
            flag = inside & ~edge & (key >= floor)
            kind = tl.where(flag, CONTEND, CONTEND)
            _append(flag, m, p, error, kind, count, places, results, errors, kinds, capacity)
