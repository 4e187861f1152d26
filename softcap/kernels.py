"""The Triton kernels.  No other module of the package defines a ``@triton.jit`` function.

A program computes one block of contiguous elements.  A block that lies wholly inside the tensor takes
unmasked accesses, which the compiler vectorises whatever ``n`` is; only the last, partial block is masked.
So nothing has to be specialised on ``n``, and there is one compiled variant per dtype and pointer alignment.

The same variant also computes pieces of a block, an eighth (one element a thread) or, forward, a half: a grid that is
large enough for them asks for them.  A thread's tanhs come one after the other, so that a row which leaves the
machine idle is done sooner in pieces (1025 elements in a CUDA graph on an H200: 1.31 us in eighths, 1.87 in
blocks, 1.2 without arithmetic); but starting a program takes the device 0.6 ns, so that 262144 elements take
2.5 us in eighths, 2.3 in blocks, and 1.9 as blocks of half the size did when they were measured alone.
"""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

BLOCK = 1024

_SCALE = tl.constexpr(2.0**64)
_LIMIT = tl.constexpr(2.0**100)


@functools.lru_cache(maxsize=64)
def negative_reciprocal(softcap: float) -> float:
    """``-1 / (2**64 * c)`` for the cap ``c``, which becomes FP32 at the launch; 0 where ``div_rn`` is to divide.

    ``-1 / (2**64 * c)`` in FP64 is rounded to FP32 as the exact value would be (53 >= 2 * 24 + 2 digits).
    The bounds are those of ``_quotient``.  On HIP it is 0: tanh keeps subnormal quotients there.
    """
    if 2.0**-40 <= softcap <= 2.0**60 and torch.version.hip is None:
        return -1.0 / (softcap * 2.0**64)
    return 0.0


@triton.jit
def _quotient(x, c, reciprocal):
    """``div_rn(x, c)``; with ``reciprocal`` (see ``negative_reciprocal``) without its branch for each element.

    ``/`` is an approximate division (up to 2 ulp) on NVIDIA.  ``div_rn`` compiles to a reciprocal of c, a
    range check and a branch per element: 31.7 us for 64 rows of 262144 in BF16 on an H200, where this form
    takes 28.0 and a kernel that only scales 27.2.

    With ``r = RN(1 / c)``, ``q = RN(x * r)`` is within 1.5 ulp of x / c, and ``RN(q + RN(x - q * c) * r)`` is
    RN(x / c): before its last rounding it is off by less than 7 * 2**-25 ulp, and for every pair of
    significands whose quotient lies within 8 * 2**-25 ulp of a midpoint, 46 million in all, it has been
    computed and compared (tests/softcap/test_quotient.py does so again for some caps).  For c in
    [2**-40, 2**60] the factor 2**64 keeps each product and remainder normal where x is tiny.  It overflows
    for x from 2**64 on, and the clamp keeps inf - inf out of it: tanh is 1 there, as of any large number.
    Zeros keep their sign, for the remainder is the negative one.  Where x / c is subnormal the result may be
    another subnormal of its sign; CUDA's tanh flushes all of them to the same zero.
    """
    if reciprocal != 0.0:
        scaled = x * -_SCALE
        q = tl.clamp(scaled * reciprocal, -_LIMIT, _LIMIT)
        z = tl.fma(tl.fma(q, c * _SCALE, scaled), reciprocal, q)
    else:
        z = tl.div_rn(x, c)
    return z


@triton.jit
def _capped(x, c, reciprocal):
    """``c * tanh(x / c)``."""
    return c * libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))


@triton.jit
def _gradient(x, grad_y, c, reciprocal):
    """``grad_y * (1 - tanh(x / c) ** 2)``, tanh computed again from the saved input."""
    t = libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))
    return grad_y * (1.0 - t * t)


@triton.jit
def _forward_block(x_ptr, y_ptr, c, reciprocal, n, start, BLOCK: tl.constexpr):
    # Four elements an access, whatever the dtype: eight BF16 ones would take the way to FP32 through shared memory.
    offsets = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)
    if start + BLOCK <= n:
        x = tl.load(x_ptr + offsets)
        tl.store(y_ptr + offsets, _capped(x, c, reciprocal))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        tl.store(y_ptr + offsets, _capped(x, c, reciprocal), mask=mask)


@triton.jit(do_not_specialize=["n"])
def softcap_forward_kernel(
    x_ptr, y_ptr, softcap: tl.float32, n: tl.int64, BLOCK: tl.constexpr, reciprocal: tl.float32 = 0.0
):
    """``y = c * tanh(x / c)``: x in FP16, BF16 or FP32, y in FP32, both contiguous with ``n`` elements.

    The grid covers ``n`` elements in eighths of a block, in halves, or in blocks.
    """
    c = tl.cast(softcap, tl.float32)  # Inductor hands Python floats over as FP64
    programs = tl.num_programs(0).to(tl.int64)
    if programs * (BLOCK // 8) >= n:
        eighth = tl.program_id(0).to(tl.int64) * (BLOCK // 8)
        _forward_block(x_ptr, y_ptr, c, reciprocal, n, eighth, BLOCK // 8)
    elif programs * (BLOCK // 2) >= n:
        half = tl.program_id(0).to(tl.int64) * (BLOCK // 2)
        _forward_block(x_ptr, y_ptr, c, reciprocal, n, half, BLOCK // 2)
    else:
        start = tl.program_id(0).to(tl.int64) * BLOCK  # int64 before the product: 2**31 elements and more
        _forward_block(x_ptr, y_ptr, c, reciprocal, n, start, BLOCK)


@triton.jit
def _backward_block(x_ptr, grad_y_ptr, grad_x_ptr, c, reciprocal, n, start, BLOCK: tl.constexpr):
    offsets = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)
    if start + BLOCK <= n:
        x = tl.load(x_ptr + offsets)
        grad_y = tl.load(grad_y_ptr + offsets)
        grad_x = _gradient(x, grad_y, c, reciprocal)
        tl.store(grad_x_ptr + offsets, grad_x.to(grad_x_ptr.dtype.element_ty))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        grad_y = tl.load(grad_y_ptr + offsets, mask=mask, other=0.0)
        grad_x = _gradient(x, grad_y, c, reciprocal)
        tl.store(grad_x_ptr + offsets, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n"])
def softcap_backward_kernel(
    x_ptr,
    grad_y_ptr,
    grad_x_ptr,
    softcap: tl.float32,
    n: tl.int64,
    BLOCK: tl.constexpr,
    reciprocal: tl.float32 = 0.0,
):
    """``grad_x = grad_y * (1 - tanh(x / c) ** 2)`` in FP32, cast once to the dtype of x; all contiguous.

    The grid covers ``n`` elements in eighths of a block or in blocks.
    """
    c = tl.cast(softcap, tl.float32)
    # No halves: with them every path takes 56 registers and not 40, and fewer programs run at once.
    if tl.num_programs(0).to(tl.int64) * (BLOCK // 8) >= n:
        eighth = tl.program_id(0).to(tl.int64) * (BLOCK // 8)
        _backward_block(x_ptr, grad_y_ptr, grad_x_ptr, c, reciprocal, n, eighth, BLOCK // 8)
    else:
        start = tl.program_id(0).to(tl.int64) * BLOCK
        _backward_block(x_ptr, grad_y_ptr, grad_x_ptr, c, reciprocal, n, start, BLOCK)
