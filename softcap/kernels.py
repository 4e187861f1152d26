"""The Triton kernels.  No other module of the package defines a ``@triton.jit`` function.

Both kernels run one program per block of contiguous elements.  A block that lies wholly inside the tensor
takes unmasked accesses, which the compiler vectorises whatever ``n`` is; only the last, partial block is
masked.  So nothing has to be specialised on ``n``, and there is one compiled variant per dtype and pointer
alignment.
"""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

BLOCK = 1024


@triton.jit
def _capped(x, c):
    """``c * tanh(x / c)``; div_rn because ``/`` is an approximate division (up to 2 ulp) on NVIDIA."""
    return c * libdevice.tanh(tl.div_rn(x.to(tl.float32), c))


@triton.jit
def _gradient(x, grad_y, c):
    """``grad_y * (1 - tanh(x / c) ** 2)``, tanh computed again from the saved input."""
    t = libdevice.tanh(tl.div_rn(x.to(tl.float32), c))
    return grad_y * (1.0 - t * t)


@triton.jit(do_not_specialize=["n"])
def softcap_forward_kernel(x_ptr, y_ptr, softcap: tl.float32, n: tl.int64, BLOCK: tl.constexpr):
    """``y = c * tanh(x / c)``: x in FP16, BF16 or FP32, y in FP32, both contiguous with ``n`` elements."""
    c = tl.cast(softcap, tl.float32)  # Inductor hands Python floats over as FP64
    start = tl.program_id(0).to(tl.int64) * BLOCK  # int64 before the product: 2**31 elements and more
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        x = tl.load(x_ptr + offsets)
        tl.store(y_ptr + offsets, _capped(x, c))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        tl.store(y_ptr + offsets, _capped(x, c), mask=mask)


@triton.jit(do_not_specialize=["n"])
def softcap_backward_kernel(
    x_ptr, grad_y_ptr, grad_x_ptr, softcap: tl.float32, n: tl.int64, BLOCK: tl.constexpr
):
    """``grad_x = grad_y * (1 - tanh(x / c) ** 2)`` in FP32, cast once to the dtype of x; all contiguous."""
    c = tl.cast(softcap, tl.float32)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = start + tl.arange(0, BLOCK)
    if start + BLOCK <= n:
        x = tl.load(x_ptr + offsets)
        grad_y = tl.load(grad_y_ptr + offsets)
        grad_x = _gradient(x, grad_y, c)
        tl.store(grad_x_ptr + offsets, grad_x.to(grad_x_ptr.dtype.element_ty))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        grad_y = tl.load(grad_y_ptr + offsets, mask=mask, other=0.0)
        grad_x = _gradient(x, grad_y, c)
        tl.store(grad_x_ptr + offsets, grad_x.to(grad_x_ptr.dtype.element_ty), mask=mask)
