"""What the transform laws choose from: slices, boxes of padding, shapes, orders, addresses. Each choice has a name.

A checker's `pick` decides, so that a case alone replays everything here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from invariance.checkers import Pick

# Lengths around vector widths and block sizes.
_LENGTHS = sorted(n + d for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) for d in (-1, 0, 1))

Index = tuple[object, ...]


def dimension_slices(shape: tuple[int, ...], pick: Pick) -> Iterator[tuple[str, Index]]:
    """Strided views: a stretch of every dimension, a step along the last one, one element as a 0-d tensor."""
    for dim, size in enumerate(shape):
        lo = pick(f"from {dim}", 0, size)
        hi = pick(f"to {dim}", lo, size)
        yield f"[{':, ' * dim}{lo}:{hi}]", (*[slice(None)] * dim, slice(lo, hi))
    if shape:
        step = pick("step", 2, 5)
        yield f"[..., ::{step}]", (..., slice(None, None, step))
    if 0 not in shape:
        one = tuple(pick(f"at {dim}", 0, size - 1) for dim, size in enumerate(shape))
        yield f"element {list(one)} alone", one


def stretches(size: int, pick: Pick) -> Iterator[tuple[int, int]]:
    """Slices of the flattened tensor: all but an end, each end alone, and lengths around the seams of blocks."""
    yield from dict.fromkeys(
        [(min(1, size), size), (0, max(size - 1, 0)), (0, min(1, size)), (max(size - 1, 0), size)]
    )
    fitting = [length for length in _LENGTHS if length < size]
    for number in range(min(4, len(fitting))):
        length = fitting[pick(f"length {number}", 0, len(fitting) - 1)]
        lo = pick(f"start {number}", 0, min(size - length, 33))
        yield lo, lo + length


def fills(dtype: torch.dtype, pick: Pick) -> list[tuple[str, float]]:
    """NaN, and one of the fills that real code pads with."""
    others = [
        ("0", 0.0),
        ("-inf", -math.inf),
        ("inf", math.inf),
        ("the largest", torch.finfo(dtype).max),
        ("the lowest", torch.finfo(dtype).min),
    ]
    return [("NaN", math.nan), others[pick("fill", 0, len(others) - 1)]]


def within(value: float, dtype: torch.dtype) -> float:
    """The value cut to the finite range of a dtype; NaN and infinities stay."""
    largest = torch.finfo(dtype).max
    return value if math.isnan(value) or math.isinf(value) else min(max(value, -largest), largest)


def boxes(count: int, width: int, pick: Pick) -> Iterator[tuple[str, tuple[int, int, int, int]]]:
    """(rows above, rows below, columns left, columns right), as wide as keeps the padded tensor affordable."""
    room = max(count * width, 1 << 13)
    multiple = (64, 128, 1024)[pick("multiple", 0, 2)]
    right = min(-width % multiple or multiple, max(1, room // max(count, 1)))
    yield f"vocabulary of {width} to {width + right}", (0, 0, 0, right)
    left = min(pick("left", 1, 17), max(1, room // max(count, 1)))
    rows = min(pick("rows", 1, 9), max(1, room // max(width, 1)))
    yield f"{rows} rows around and {left} columns before", (rows, rows, left, 0)


def padded(t: Tensor, box: tuple[int, int, int, int], fill: float) -> Tensor:
    """The rows of t, shape (rows, columns), inside a larger tensor that is `fill` everywhere else."""
    top, bottom, left, right = box
    rows, columns = t.shape
    wide = torch.full((top + rows + bottom, left + columns + right), fill, dtype=t.dtype, device=t.device)
    wide[top : top + rows, left : left + columns] = t
    return wide


def other_shapes(shape: tuple[int, ...], pick: Pick) -> list[tuple[int, ...]]:
    """Flat, as one row, one column, with and without sizes of 1, a dimension split in two, more dimensions, 0-d."""
    size = math.prod(shape)
    dim = pick("unsqueezed", 0, len(shape))
    shapes = [
        (size,),
        (1, size),
        (size, 1),
        tuple(n for n in shape if n != 1),
        (*shape[:dim], 1, *shape[dim:]),
        (1, *shape, 1),
        (*shape[:-2], math.prod(shape[-2:])),
    ]
    if size == 1:
        shapes.append(())
    factor = _factor(size, pick("factor", 2, 64))
    shapes += [(factor, size // factor), (size // factor, factor)]
    second = _factor(size // factor, pick("second factor", 2, 16))
    shapes.append((factor, 1, size // factor // second, second))
    return list(dict.fromkeys(shapes))


def _factor(size: int, upto: int) -> int:
    """The largest divisor of `size` that is at most `upto`."""
    return next(d for d in range(max(1, min(upto, size)), 0, -1) if size % d == 0)


def coprime(size: int, start: int) -> int:
    """The first number from `start` on that shares no factor with `size`: its multiples visit every place once."""
    return next(n for n in range(start, start + size + 2) if math.gcd(n, size) == 1)


def filler(t: Tensor, value: float) -> Tensor:
    """The value, cut to the range of t's dtype, as a 0-d tensor beside t."""
    return torch.full((), within(value, t.dtype), dtype=t.dtype, device=t.device)


def moved(t: Tensor, by: int) -> Tensor:
    """The values `by` elements into an allocation that holds NaN before and after them."""
    room = torch.full((t.numel() + 16,), math.nan, dtype=t.dtype, device=t.device)
    return room.narrow(0, by, t.numel()).view(t.shape).copy_(t)
