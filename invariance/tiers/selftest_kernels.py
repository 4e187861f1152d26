"""Small kernels with which the interpreter tier proves its repairs before it is believed."""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def cast_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """``y = x`` in the dtype of y."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x.to(y_ptr.dtype.element_ty), mask=offsets < n)


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """``y = x + x`` in the dtype of x."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, x + x, mask=offsets < n)


@triton.jit
def tanh_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """``y = tanh(x)``."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, libdevice.tanh(x), mask=offsets < n)


@triton.jit
def undefined_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Stores lanes that its load leaves undefined."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < 0), mask=offsets < n)


@triton.jit
def unmasked_load_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Reads a whole block whatever ``n`` is."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets), mask=offsets < n)


@triton.jit
def unmasked_store_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Writes a whole block whatever ``n`` is."""
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n))


@triton.jit
def narrow_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Computes its offsets in int32."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
