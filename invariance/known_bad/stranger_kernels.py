"""Triton kernels as others write them, each with its wrapper: blocks, rows, persistent programs, configurations."""

# Triton ships no types, and its compiler reads the annotations that stand here.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice


@triton.jit
def capped(x, cap):
    """The operator of one block."""
    return cap * libdevice.tanh(tl.div_rn(x.to(tl.float32), cap))


@triton.jit
def blocks_kernel(x, y, cap, n, B: tl.constexpr, WIDE: tl.constexpr):
    """One block of elements a program."""
    program = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    at = program * B + tl.arange(0, B)
    tl.store(y + at, capped(tl.load(x + at, mask=at < n), cap), mask=at < n)


@triton.jit
def rows_kernel(x, y, cap, stride, columns, B: tl.constexpr, WIDE: tl.constexpr):
    """One row a program."""
    row = tl.program_id(0).to(tl.int64) if WIDE else tl.program_id(0)
    at = tl.arange(0, B)
    value = capped(tl.load(x + row * stride + at, mask=at < columns), cap)
    tl.store(y + row * columns + at, value, mask=at < columns)


@triton.jit
def strided_kernel(x, y, cap, row_stride, column_stride, columns, B: tl.constexpr):
    """One row a program, whatever the strides; the offset of a column has 32 bits."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, B)
    value = tl.load(x + row * row_stride + column * column_stride, mask=column < columns)
    tl.store(y + row * columns + column, capped(value, cap), mask=column < columns)


@triton.jit
def second_axis_kernel(x, y, cap, n, B: tl.constexpr):
    """One block of elements a program, counted along the second axis."""
    at = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    tl.store(y + at, capped(tl.load(x + at, mask=at < n), cap), mask=at < n)


@triton.jit
def persistent_kernel(x, y, cap, n, tiles, B: tl.constexpr, WIDE: tl.constexpr):
    """A few programs that share all tiles."""
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = (tl.cast(tile, tl.int64) if WIDE else tile) * B + tl.arange(0, B)
        tl.store(y + at, capped(tl.load(x + at, mask=at < n), cap), mask=at < n)


@triton.jit
def queue_kernel(x, y, counter, cap, n, tiles, B: tl.constexpr, WIDE: tl.constexpr):
    """A few programs, each of which takes the next tile when it is done with one."""
    tile = tl.atomic_add(counter, 1)
    while tile < tiles:
        at = (tile.to(tl.int64) if WIDE else tile) * B + tl.arange(0, B)
        tl.store(y + at, capped(tl.load(x + at, mask=at < n), cap), mask=at < n)
        tile = tl.atomic_add(counter, 1)


@triton.jit
def ticket_kernel(x, y, counter, cap, n, B: tl.constexpr, WIDE: tl.constexpr):
    """One tile a program, in the order in which they begin."""
    tile = tl.atomic_add(counter, 1)
    at = (tile.to(tl.int64) if WIDE else tile) * B + tl.arange(0, B)
    tl.store(y + at, capped(tl.load(x + at, mask=at < n), cap), mask=at < n)


@triton.jit
def neighbour_kernel(x, y, cap, n, B: tl.constexpr):
    """Looks at what the program before it stored, and does nothing with it."""
    program = tl.program_id(0).to(tl.int64)
    at = program * B + tl.arange(0, B)
    before = tl.load(y + at - B, mask=(program > 0) & (at < n), other=0.0)
    value = capped(tl.load(x + at, mask=at < n), cap)
    tl.store(y + at, tl.where(before == before, value, value), mask=at < n)


@triton.jit
def scratch_kernel(x, y, tile, cap, n, B: tl.constexpr):
    """Goes through a tile that belongs to all programs; the flag, which all of them store too, is no fault."""
    lane = tl.arange(0, B)
    at = tl.program_id(0).to(tl.int64) * B + lane
    tl.store(tile + B, 1.0)
    tl.store(tile + lane, capped(tl.load(x + at, mask=at < n), cap), mask=at < n)
    tl.store(y + at, tl.load(tile + lane, mask=at < n), mask=at < n)


@triton.jit
def tuned_kernel(x, y, cap, n, B: tl.constexpr, FAST: tl.constexpr):
    """Multiplies by the reciprocal of the cap where a configuration says so."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    quotient = value * tl.div_rn(1.0, cap) if FAST else tl.div_rn(value, cap)
    tl.store(y + at, cap * libdevice.tanh(quotient), mask=at < n)


@triton.jit
def in_place_kernel(y, cap, n, B: tl.constexpr):
    """Caps what it finds in y."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(y + at, capped(tl.load(y + at, mask=at < n), cap), mask=at < n)


def _tuned(*, fast: bool) -> Any:
    configurations = [
        triton.Config({"B": 256, "FAST": False}, num_warps=2),
        triton.Config({"B": 1024, "FAST": fast}, num_warps=4),
    ]
    return triton.autotune(configs=configurations, key=["n"])(tuned_kernel)


def _tuned_in_place(**how: Any) -> Any:
    configurations = [triton.Config({"B": 256}), triton.Config({"B": 1024})]
    return triton.autotune(configs=configurations, key=["n"], **how)(in_place_kernel)


TUNED_IN_PLACE, TUNED_RESTORED = _tuned_in_place(), _tuned_in_place(restore_value=["y"])
TUNED, TUNED_FAST = _tuned(fast=False), _tuned(fast=True)


def blocks(x: Tensor, y: Tensor, cap: float, *, wide: bool = True) -> None:
    """Contiguous elements, 256 a program."""
    n = x.numel()
    blocks_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y, cap, n, B=256, WIDE=wide)


def at_most(x: Tensor, y: Tensor, cap: float, *, programs: int = 1 << 20) -> None:
    """The same by a grid that ends somewhere."""
    n = x.numel()
    blocks_kernel[(min(triton.cdiv(n, 256), programs),)](x.contiguous(), y, cap, n, B=256, WIDE=True)


def whole(x: Tensor, y: Tensor, cap: float) -> None:
    """All of them in one block."""
    n = x.numel()
    blocks_kernel[(1,)](x.contiguous(), y, cap, n, B=triton.next_power_of_2(n), WIDE=True)


def second_axis(x: Tensor, y: Tensor, cap: float) -> None:
    """Blocks along the second axis of the grid."""
    n = x.numel()
    second_axis_kernel[(1, triton.cdiv(n, 256))](x.contiguous(), y, cap, n, B=256)


def strided(x: Tensor, y: Tensor, cap: float, *, kernel: Any = strided_kernel) -> None:
    """Rows and columns by their strides, as of logits that are a transposed view."""
    columns = x.shape[-1] if x.dim() else 1
    flat = x.resolve_neg().reshape(-1, columns)
    block = triton.next_power_of_2(columns)
    kernel[(flat.shape[0],)](flat, y, cap, *flat.stride(), columns, B=block)


def neighbours(x: Tensor, y: Tensor, cap: float) -> None:
    """The same, with a look aside."""
    n = x.numel()
    neighbour_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y, cap, n, B=256)


def scratch(x: Tensor, y: Tensor, cap: float) -> None:
    """A tile, and a flag behind it."""
    n = x.numel()
    tile = torch.empty(257, device=x.device)
    scratch_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y, tile, cap, n, B=256)


def rows(x: Tensor, y: Tensor, cap: float, *, wide: bool = True) -> None:
    """Rows that may have memory between them."""
    columns = x.shape[-1] if x.dim() else 1
    flat = x.reshape(-1, columns)
    flat = flat if flat.stride(-1) == 1 else flat.contiguous()
    block = triton.next_power_of_2(columns)
    rows_kernel[(flat.shape[0],)](flat, y, cap, flat.stride(0), columns, B=block, WIDE=wide)


def persistent(x: Tensor, y: Tensor, cap: float, *, wide: bool = True) -> None:
    """As many programs as the device runs at once."""
    tiles = triton.cdiv(x.numel(), 1024)
    programs = min(tiles, torch.cuda.get_device_properties(x.device).multi_processor_count)
    persistent_kernel[(programs,)](x.contiguous(), y, cap, x.numel(), tiles, B=1024, WIDE=wide)


def queue(x: Tensor, y: Tensor, cap: float, *, wide: bool = True) -> None:
    """Tiles from a work queue."""
    tiles, counter = triton.cdiv(x.numel(), 1024), torch.zeros(1, dtype=torch.int32, device=x.device)
    queue_kernel[(min(tiles, 4),)](x.contiguous(), y, counter, cap, x.numel(), tiles, B=1024, WIDE=wide)


def tickets(x: Tensor, y: Tensor, cap: float, *, wide: bool = True) -> None:
    """Tiles by order of arrival."""
    n, counter = x.numel(), torch.zeros(1, dtype=torch.int32, device=x.device)
    ticket_kernel[(triton.cdiv(n, 256),)](x.contiguous(), y, counter, cap, n, B=256, WIDE=wide)


def autotuned(x: Tensor, y: Tensor, cap: float, *, kernel: Any = TUNED) -> None:
    """A grid that follows the configuration."""
    n = x.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["B"]),)](x.contiguous(), y, cap, n)


def autotuned_fast(x: Tensor, y: Tensor, cap: float) -> None:
    """One of whose configurations divides in another way."""
    autotuned(x, y, cap, kernel=TUNED_FAST)


def autotuned_in_place(x: Tensor, y: Tensor, cap: float, *, restored: bool = False) -> None:
    """A copy, capped where it is."""
    y.copy_(x)
    kernel, n = TUNED_RESTORED if restored else TUNED_IN_PLACE, y.numel()
    kernel[lambda meta: (triton.cdiv(n, meta["B"]),)](y, cap, n)
