"""Triton kernels that lean on what a GPU does not promise, each with its wrapper."""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from invariance.known_bad.stranger_kernels import capped, strided


@triton.jit
def hinting_kernel(x, y, cap, n, B: tl.constexpr, HINT: tl.constexpr):
    """One block of elements a program, with something told to the compiler: `HINT` says what."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    if HINT == "n":
        n = tl.multiple_of(n, 16)
    if HINT == "few":
        tl.assume(n < 2**31)
    if HINT == "block":
        at = tl.max_contiguous(tl.multiple_of(at, B), B)
        tl.assume(n > 0)
    mask = at < n
    if HINT == "mask":
        mask = tl.max_constancy(mask, 4)
    pointers = x + at
    if HINT == "pointers":
        pointers = tl.multiple_of(pointers, 16)
    tl.store(y + at, capped(tl.load(pointers, mask=mask), cap), mask=mask)


@triton.jit
def neighbourly_kernel(x, y, cap, row_stride, column_stride, columns, B: tl.constexpr):
    """One row a program, whose elements are said to lie side by side."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, B)
    at = tl.max_contiguous(row * row_stride + column * column_stride.to(tl.int64), 4 if B >= 4 else 1)
    value = capped(tl.load(x + at, mask=column < columns), cap)
    tl.store(y + row * columns + column, value, mask=column < columns)


@triton.jit
def two_loads_kernel(x, y, cap, n, B: tl.constexpr):
    """Even and odd elements by a load each, as if a lane that is masked off were zero."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    even, odd = (at < n) & (at % 2 == 0), (at < n) & (at % 2 == 1)
    tl.store(y + at, capped(tl.load(x + at, mask=even) + tl.load(x + at, mask=odd), cap), mask=at < n)


@triton.jit
def pairs_kernel(x, y, cap, n, B: tl.constexpr):
    """Two FP32 elements a load: whole pairs as one number of 64 bits, what is left by itself."""
    pair = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    both = tl.load(x.to(tl.pointer_type(tl.int64)) + pair, mask=2 * pair + 1 < n, other=0)
    alone = tl.load(x + 2 * pair, mask=2 * pair + 1 == n, other=0.0)
    low = tl.where(2 * pair + 1 == n, alone, both.to(tl.int32).to(tl.float32, bitcast=True))
    high = (both >> 32).to(tl.int32).to(tl.float32, bitcast=True)
    tl.store(y + 2 * pair, capped(low, cap), mask=2 * pair < n)
    tl.store(y + 2 * pair + 1, capped(high, cap), mask=2 * pair + 1 < n)


@triton.jit
def clamped_kernel(x, y, cap, n, B: tl.constexpr):
    """Whole blocks counted from the end; what the first one has before the beginning goes to the first element."""
    at = n - (tl.program_id(0).to(tl.int64) + 1) * B + tl.arange(0, B)
    value = capped(tl.load(x + at, mask=at >= 0, other=0.0), cap)
    tl.store(y + tl.maximum(at, 0), value)


def hinting(x: Tensor, y: Tensor, cap: float, *, hint: str) -> None:
    """The same, and the compiler is told something."""
    n = x.numel()
    hinting_kernel[(triton.cdiv(n, 1024),)](x.contiguous(), y, cap, n, B=1024, HINT=hint)


def neighbourly(x: Tensor, y: Tensor, cap: float) -> None:
    """The same, with a hint that such a view breaks."""
    strided(x, y, cap, kernel=neighbourly_kernel)


def two_loads(x: Tensor, y: Tensor, cap: float) -> None:
    """The same by two loads."""
    n = x.numel()
    two_loads_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y, cap, n, B=256)


def pairs(x: Tensor, y: Tensor, cap: float) -> None:
    """Pairs of FP32 elements, 128 a program."""
    n = x.numel()
    pairs_kernel[(triton.cdiv(n, 256),)](x.float().contiguous(), y, cap, n, B=128)


def clamped(x: Tensor, y: Tensor, cap: float) -> None:
    """Blocks of 256 from the end."""
    n = x.numel()
    clamped_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y, cap, n, B=256)
