"""The fused verifier for FP32 on a GPU: truth, error, reductions and fingerprint in one pass over the results.

A *tile* is up to `TILE` magnitudes in one zone and one binade of x/c, and one program's work. `verify_kernel` settles
the tiles in which nothing is unusual: results for x and -x are mirror images, within the bound, in order, and within
the tolerance for certain. Any other tile it only marks (`dirty`), and the torch engine judges it. `list_kernel` goes
again through the few tiles that hold a rounding or a worst result which FP64 leaves open, and lists their inputs.
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
    ROUNDED,
    SIGN,
    canonical,
    errors_of,
    mixed,
    per_spacing_below,
    quantised,
    quantised_small,
    widened,
)

BLOCK = 256
TILE = 1 << 14
"""About two thousand programs a call: enough for every multiprocessor of a large GPU, whatever they weigh."""
ROUND_IT = tl.constexpr(1)
CONTEND = tl.constexpr(2)
UNKNOWN = tl.constexpr(4)
"""The error in ulp is not known: FP64 does not tell the binade."""
LAST = tl.constexpr(0x7FFFFFFF)
ONE = tl.constexpr(0x3F800000)


@triton.jit
def generate_kernel(x, start, half, BLOCK: tl.constexpr):
    """x (int32): magnitudes from `start`, `half` of them, and then the same with the sign bit."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    m = (start + at).to(tl.int32)
    tl.store(x + at, m, mask=at < half)
    tl.store(x + half + at, m | SIGN, mask=at < half)


@triton.jit
def unusual(p, n, after, cap, BACKWARD: tl.constexpr):
    """Where encodings for x and -x are no mirror images, out of bounds, or out of order with what follows."""
    if BACKWARD:
        return (p != n) | (p < 0) | (p > ONE) | (after > p)
    top = cap.to(tl.float32).to(tl.int32, bitcast=True)
    return (p != (n ^ SIGN)) | (p < 0) | (p > top) | (after < p)


@triton.jit
def rounding(off, edge, OFF_BOUND: tl.constexpr):
    """Where results are correctly rounded for certain, and where that is open."""
    sure = (off < 0.5 - OFF_BOUND) & ~edge
    return sure, ((off <= 0.5 + OFF_BOUND) | edge) & ~sure


@triton.jit(do_not_specialize=["start", "first"])
def verify_kernel(
    y, start, half, first, tile_lo, tile_size, tile_bin, k,
    out_key, out_at, out_got, out_sure, out_open, out_rounded, out_flushed, out_dirty,
    out_positive, out_negative, floors,
    BOUND: tl.constexpr, OFF_BOUND: tl.constexpr, ZONE: tl.constexpr, BACKWARD: tl.constexpr,
    ITERATIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program a tile, from tile `first`. y (int32): results from magnitude `start` on, `half` of them for positive
    inputs, then as many for negative ones.
    """
    tile = first + tl.program_id(0)
    lo = tl.load(tile_lo + tile)
    size = tl.load(tile_size + tile)
    lane = tl.arange(0, BLOCK)
    cap = tl.load(k + CAP)
    limit = tl.load(k + ALLOWED) - 2.0 * BOUND
    width = BOUND + tl.load(k + ALLOWED) * ROUNDED
    best = tl.full([BLOCK], -1.0, tl.float64)
    raw = tl.full([BLOCK], -1.0, tl.float64)
    where = tl.zeros([BLOCK], tl.int32)
    open_ = tl.zeros([BLOCK], tl.int32)
    rounded = tl.zeros([BLOCK], tl.int32)
    flushed = tl.zeros([BLOCK], tl.int32)
    dirty = tl.zeros([BLOCK], tl.int32)
    positive = tl.zeros([BLOCK], tl.int64)
    negative = tl.zeros([BLOCK], tl.int64)
    for i in range(ITERATIONS):
        place = i * BLOCK + lane
        inside = place < size
        m = lo + place
        at = m - start
        p = tl.load(y + at, mask=inside, other=0)
        n = tl.load(y + half + at, mask=inside, other=0)
        positive += tl.where(inside, mixed(m, canonical(p)), 0)
        negative += tl.where(inside, mixed(m | SIGN, canonical(n)), 0)
        if ZONE < 5:
            after = tl.load(y + at + 1, mask=inside & (at + 1 < half), other=0 if BACKWARD else LAST)
            got = widened(p)
            error, off, edge = errors_of(m, got, k, ZONE, BACKWARD)
            fine = tl.where(edge, 2.0 * error, error) <= limit if not BACKWARD else error <= limit
            counts = inside
            if ZONE == 0 and not BACKWARD:  # published in units of the floor; a result of zero may be a flush
                a = widened(m)
                error = tl.abs(got - a) / tl.load(k + FLOOR)
                reach = tl.load(k + LIMIT) / per_spacing_below(m) + tl.load(k + FLOOR)
                zero = got == 0.0
                gone = zero & (a > reach * 1.0001)
                fine = fine | gone | (zero & (a < reach * 0.9999))
                flushed += (gone & inside).to(tl.int32)
            if ZONE == 0:
                error = quantised(error)
                key = error
            else:
                key = quantised_small(error + width)
                if not BACKWARD:
                    counts = inside & ~edge
            dirty += ((unusual(p, n, after, cap, BACKWARD) | ~fine) & inside).to(tl.int32)
            sure, left_open = rounding(off, edge, OFF_BOUND)
            rounded += (sure & inside).to(tl.int32)
            open_ += (left_open & inside).to(tl.int32)
            better = counts & (key > best)
            best = tl.where(better, key, best)
            raw = tl.where(better, error, raw)
            where = tl.where(better, m, where)
    top = tl.max(best, 0)
    at_top = tl.min(tl.where(best == top, where, LAST), 0)
    low = tl.max(tl.where((best == top) & (where == at_top), raw, -1.0), 0)
    if ZONE > 0:
        low = quantised_small(tl.maximum(low - width, 0.0))
    is_dirty = tl.sum(dirty, 0)
    if ZONE == 5:
        is_dirty += 1
    tl.store(out_key + tile, top)
    tl.store(out_at + tile, at_top)
    tl.store(out_got + tile, tl.load(y + (at_top - start), mask=top >= 0.0, other=0))
    tl.store(out_sure + tile, (low == top).to(tl.int32))
    tl.store(out_open + tile, tl.sum(open_, 0))
    tl.store(out_rounded + tile, tl.sum(rounded, 0))
    tl.store(out_flushed + tile, tl.sum(flushed, 0))
    tl.store(out_dirty + tile, is_dirty)
    tl.store(out_positive + tile, tl.sum(positive, 0))
    tl.store(out_negative + tile, tl.sum(negative, 0))
    if is_dirty == 0 and top >= 0.0:
        tl.atomic_max(floors + tl.load(tile_bin + tile), low.to(tl.int64, bitcast=True))


@triton.jit(do_not_specialize=["start", "first"])
def list_kernel(
    y, start, first, tile_lo, tile_size, tile_bin, k,
    out_key, out_at, out_got, out_sure, out_open, out_dirty, floors,
    count, places, results, errors, kinds, capacity,
    BOUND: tl.constexpr, OFF_BOUND: tl.constexpr, ZONE: tl.constexpr, BACKWARD: tl.constexpr,
    ITERATIONS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """List what clean tiles leave open: roundings to decide, and results that may be the worst of their binade.

    Where errors grow smoothly the first that rounds up to the worst is never certain, but one of the next is: that one
    becomes the tile's worst, and only those are listed which may still be above it. Past `capacity` inputs are only
    counted.
    """
    tile = first + tl.program_id(0)
    clean = tl.load(out_dirty + tile) == 0
    floor = tl.load(floors + tl.load(tile_bin + tile)).to(tl.float64, bitcast=True)
    contends = (tl.load(out_sure + tile) == 0) & (tl.load(out_key + tile) >= floor)
    if clean & (contends | (tl.load(out_open + tile) > 0)):
        lo = tl.load(tile_lo + tile)
        size = tl.load(tile_size + tile)
        width = BOUND + tl.load(k + ALLOWED) * ROUNDED
        bar = tl.where(contends, floor, float("inf"))
        lane = tl.arange(0, BLOCK)
        best = tl.full([BLOCK], -1.0, tl.float64)
        where = tl.zeros([BLOCK], tl.int32)
        for i in range(ITERATIONS):
            place = i * BLOCK + lane
            inside = place < size
            m = lo + place
            p = tl.load(y + (m - start), mask=inside, other=0)
            error, off, edge = errors_of(m, widened(p), k, ZONE, BACKWARD)
            _sure, left_open = rounding(off, edge, OFF_BOUND)
            round_it = left_open & inside
            high = quantised_small(error + width)
            low = quantised_small(tl.maximum(error - width, 0.0))
            near = (high >= bar) & inside
            if not BACKWARD:
                near = (near & ~edge) | (edge & inside)
                low = tl.where(edge, -1.0, low)
            better = near & (low == high) & (high > best)
            best = tl.where(better, high, best)
            where = tl.where(better, m, where)
            contend = near & (low < high)
            flag = round_it | contend
            if tl.max(flag.to(tl.int32), 0) > 0:
                slot = tl.atomic_add(count + (m - m), m - m + 1, mask=flag, sem="relaxed")
                listed = flag & (slot < capacity)
                slot = tl.where(listed, slot, 0)
                kind = (
                    tl.where(round_it, ROUND_IT, 0)
                    | tl.where(contend, CONTEND, 0)
                    | tl.where(edge, UNKNOWN, 0)
                )
                tl.store(places + slot, m, mask=listed)
                tl.store(results + slot, p, mask=listed)
                tl.store(errors + slot, error, mask=listed)
                tl.store(kinds + slot, kind, mask=listed)
        top = tl.max(best, 0)
        if top >= 0.0:
            at_top = tl.min(tl.where(best == top, where, LAST), 0)
            tl.store(out_key + tile, top)
            tl.store(out_at + tile, at_top)
            tl.store(out_got + tile, tl.load(y + (at_top - start)))
            tl.store(out_sure + tile, 1)
