"""Which programs of a launch run, and in which order: a GPU promises none."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import product

Grid = tuple[int, int, int]
Order = Callable[[Grid], Sequence[Grid]]

_WHOLE = 16  # programs along an axis of which `ends` leaves none out: the launch of a persistent kernel is no larger


def in_order(grid: Grid) -> Sequence[Grid]:
    """All of them, the last axis first."""
    x, y, z = map(range, grid)
    return list(product(x, y, z))


def backwards(grid: Grid) -> Sequence[Grid]:
    """All of them, the last one first."""
    return in_order(grid)[::-1]


def hashed(grid: Grid) -> Sequence[Grid]:
    """All of them, in an order that has nothing to do with their places."""
    return sorted(in_order(grid), key=lambda at: hashlib.blake2b(repr(at).encode(), digest_size=8).digest())


def ends(grid: Grid) -> Sequence[Grid]:
    """The first, the middle and the last ones along each axis; all of a short axis."""

    def along(size: int) -> Iterable[int]:
        return range(size) if size <= _WHOLE else (0, 1, size // 2, size - 2, size - 1)

    x, y, z = map(along, grid)
    return list(product(x, y, z))


def only(first: Sequence[int]) -> Order:
    """These along the first axis."""
    return lambda grid: list(product(first, range(grid[1]), range(grid[2])))


WHOLE: tuple[Order, ...] = (in_order, backwards, hashed)
ORDERS: dict[str, Order] = {order.__name__: order for order in (*WHOLE, ends)}
