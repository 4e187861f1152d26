"""The same memory traffic as the operator's kernels and almost no arithmetic: what the machine can do."""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["factor", "n"])
def scale_kernel(x_ptr, y_ptr, factor: tl.float32, n: tl.int64, BLOCK: tl.constexpr):
    """``y = factor * x``: reads x in FP16, BF16 or FP32 and writes FP32, as the forward kernel does."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)  # the operator's width of an access
    if start + BLOCK <= n:
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets).to(tl.float32) * factor)
    else:
        mask = offsets < n
        tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask).to(tl.float32) * factor, mask=mask)


@triton.jit(do_not_specialize=["factor", "n"])
def product_kernel(x_ptr, grad_y_ptr, grad_x_ptr, factor: tl.float32, n: tl.int64, BLOCK: tl.constexpr):
    """``grad_x = factor * x * grad_y``: the traffic of the backward kernel."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)  # the operator's width of an access
    dtype = grad_x_ptr.dtype.element_ty
    if start + BLOCK <= n:
        product = tl.load(x_ptr + offsets).to(tl.float32) * tl.load(grad_y_ptr + offsets) * factor
        tl.store(grad_x_ptr + offsets, product.to(dtype))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        product = x * tl.load(grad_y_ptr + offsets, mask=mask) * factor
        tl.store(grad_x_ptr + offsets, product.to(dtype), mask=mask)
