"""The Triton kernels.  No other module of the package defines a ``@triton.jit`` function.

A program computes one block of contiguous elements.  A block that lies wholly inside the tensor takes
unmasked accesses, which the compiler vectorises whatever ``n`` is; only the last, partial block is masked.
So nothing has to be specialised on ``n``, and there is one compiled variant per dtype, pointer alignment and
size of block.
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
_SCALE_OF_LARGE = tl.constexpr(2.0**-4)
_LARGE = tl.constexpr(2.0**60)
_LIMIT = tl.constexpr(2.0**100)


@functools.lru_cache(maxsize=64)
def negative_reciprocal(softcap: float) -> float | None:
    """``-1 / (s * c)`` for the cap ``c`` and the scale ``s`` of ``_quotient``, which becomes FP32 at the launch.

    The FP64 quotient is rounded to FP32 as the exact value would be (53 >= 2 * 24 + 2 digits).  On HIP it is
    None: tanh keeps subnormal quotients there, and only a division gets their last bit right.
    """
    if torch.version.hip is not None:
        return None
    scale: float = (_SCALE if softcap <= _LARGE.value else _SCALE_OF_LARGE).value
    return -1.0 / (softcap * scale)


@triton.jit
def _quotient(x, c, reciprocal):
    """``div_rn(x, c)``; with ``reciprocal`` the same but for subnormal results, which tanh flushes on CUDA.

    ``/`` is an approximate division (up to 2 ulp) on NVIDIA.  ``div_rn`` compiles to a reciprocal of c, a
    range check and a branch per element: 31.7 us for 64 rows of 262144 in BF16 on an H200, where this form
    takes 28.0 and a kernel that only scales 27.2.

    With ``r = RN(1 / c)``, ``q = RN(x * r)`` is within 1.5 ulp of x / c, and ``RN(q + RN(x - q * c) * r)`` is
    RN(x / c): before its last rounding it is off by less than 7 * 2**-25 ulp, and for every pair of
    significands whose quotient lies within 8 * 2**-25 ulp of a midpoint, 46 million in all, it has been
    computed and compared (tests/softcap/test_quotient.py does so again for some caps).  The power of two s
    keeps 1 / (s * c) normal, and the remainder exact wherever x / c is normal: it is a multiple of
    2**-46 * s * x, and s * x is at least 2**-85 up to c = 2**60 and 2**-70 above.  Where s * x or x / c
    overflows, the clamp keeps inf - inf out of it: tanh is 1 there, as of any large number.  Zeros keep their
    sign, for the remainder is the negative one.
    """
    if reciprocal is None:
        z = tl.div_rn(x, c)
    else:
        scale = tl.where(c <= _LARGE, _SCALE, _SCALE_OF_LARGE)
        scaled = x * -scale
        q = tl.clamp(scaled * reciprocal, -_LIMIT, _LIMIT)
        z = tl.fma(tl.fma(q, c * scale, scaled), reciprocal, q)
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


@triton.jit(do_not_specialize=["n"])
def softcap_forward_kernel(
    x_ptr, y_ptr, softcap: tl.float32, n: tl.int64, BLOCK: tl.constexpr, reciprocal=None
):
    """``y = c * tanh(x / c)``: x in FP16, BF16 or FP32, y in FP32, both contiguous with ``n`` elements.

    ``reciprocal``: that of the cap, see ``negative_reciprocal``; None to divide.
    """
    c = tl.cast(softcap, tl.float32)  # Inductor hands Python floats over as FP64
    start = tl.program_id(0).to(tl.int64) * BLOCK  # int64 before the product: 2**31 elements and more
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
def softcap_backward_kernel(
    x_ptr, grad_y_ptr, grad_x_ptr, softcap: tl.float32, n: tl.int64, BLOCK: tl.constexpr, reciprocal=None
):
    """``grad_x = grad_y * (1 - tanh(x / c) ** 2)`` in FP32, cast once to the dtype of x; all contiguous."""
    c = tl.cast(softcap, tl.float32)
    start = tl.program_id(0).to(tl.int64) * BLOCK
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
