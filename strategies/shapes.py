"""Shapes, by what they are meant to break. Each family is a tuple of shapes, small ones first."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from strategies.words import scalar

__all__ = ["NAMED", "SHAPES", "Shape", "drawn", "up_to"]

Shape = tuple[int, ...]


def scalars() -> tuple[Shape, ...]:
    """0-d; breaks code that indexes the last dimension or launches numel() // block blocks (BUGS.md #73)."""
    return ((),)


def empties() -> tuple[Shape, ...]:
    """No elements, a zero in every place; breaks empty grids and division by a size (BUGS.md #73)."""
    return ((0,), (3, 0), (0, 5), (2, 0, 3), (0, 0), (1, 0, 1, 4))


def singletons() -> tuple[Shape, ...]:
    """Dimensions of size 1, whose strides mean nothing; breaks squeeze() and contiguity tests."""
    return ((1,), (1, 1), (1, 7), (7, 1), (1, 1, 1, 1, 1), (1, 9, 1), (2, 1, 3, 1, 4))


def vectors() -> tuple[Shape, ...]:
    """Around SIMD widths; breaks vector bodies and scalar tails that differ (BUGS.md #43)."""
    return (*((size,) for size in (2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)), (3, 5), (5, 17))


def blocks() -> tuple[Shape, ...]:
    """Around block sizes from 128 to 1024; breaks a last partial block and a missing mask."""
    return ((127,), (128,), (129,), (255,), (256,), (257,), (511,), (513,), (1023,), (1024,), (1025,))


def multiples() -> tuple[Shape, ...]:
    """Around several whole blocks; breaks grids rounded the wrong way."""
    return ((2047,), (2048,), (2049,), (3072,), (4095,), (4097,))


def rows() -> tuple[Shape, ...]:
    """Row counts at which a kernel picks another block size; breaks batch invariance (BUGS.md #79)."""
    return ((255, 3), (256, 3), (257, 3), (64, 33), (1, 2000), (513, 5), (1025, 2), (2049, 17))


def past_16_bits() -> tuple[Shape, ...]:
    """Past 2^16 elements and rows; breaks grid axes of 65,535 (BUGS.md #77) and 16-bit indices."""
    return ((65535,), (65536,), (65537,), (65537, 1), (1, 65537), (2, 32769))


def vocabularies() -> tuple[Shape, ...]:
    """Small vocabularies: multiples of 128 and not 256, odd ones; breaks the tails of rows (BUGS.md #28).

    The last is more than four blocks wide, and its size is no multiple of eight.
    """
    return ((2, 384), (3, 1152), (4, 1015), (2, 3, 1003), (2, 1, 2001), (5, 896), (4, 4099))


def deep() -> tuple[Shape, ...]:
    """Three to six dimensions; breaks code written for (rows, columns)."""
    return ((2, 3, 5), (3, 2, 17), (2, 2, 3, 5), (2, 3, 4, 5), (2, 1, 3, 2, 7), (3, 2, 2, 2, 33), (2, 1, 2, 2, 1, 3))


SHAPES: Final[dict[str, Callable[[], tuple[Shape, ...]]]] = {
    family.__name__: family
    for family in (
        scalars,
        singletons,
        vectors,
        empties,
        deep,
        blocks,
        rows,
        vocabularies,
        multiples,
        past_16_bits,
    )
}

# Real vocabularies, too big for every cell: 129,920 is divisible by 128 and not by 256 (BUGS.md #28), 100,278
# has a stride of 100,288 (BUGS.md #57), 262,144 is the specification's, 50,257 and 32,001 are odd; four rows of 151,936
# are more than 2^19 elements. A small one, as of speech or actions, comes in many rows: more than twice 65,535 (BUGS.md
# #77), and more than 2^20 elements.
NAMED: Final[dict[str, Shape]] = {
    "specification": (2, 3, 262144),
    "decode": (1, 1, 262144),
    "divisible_by_128": (2, 129920),
    "padded_stride": (2, 100278),
    "wide": (14, 151936),
    "llama3": (1, 128256),
    "gpt2": (2, 50257),
    "added_token": (3, 32001),
    "many_rows": (131079, 9),
}


def up_to(max_elements: int) -> tuple[Shape, ...]:
    """Every listed shape of at most that many elements, family by family."""
    return tuple(shape for family in SHAPES.values() for shape in family() if prod(shape) <= max_elements)


def drawn(seed: int, number: int, *, max_elements: int) -> Shape:
    """A hashed shape of at most `max_elements` (1 or more): a listed one, or up to six free sides."""
    if max_elements < 1:
        raise ValueError(f"max_elements is {max_elements}: at least 1 is needed")
    listed = up_to(max_elements)
    if scalar(0, 1, seed, number, "listed"):
        return listed[scalar(0, len(listed) - 1, seed, number, "shape")]
    room, sides = max_elements, []  # the bit length first, so that small and large sides are alike
    for dim in range(scalar(0, 6, seed, number, "rank")):
        most = min(room, 1 << scalar(0, room.bit_length() - 1, seed, number, "bits", dim))
        sides.append(scalar(1, most, seed, number, "side", dim))
        room //= sides[-1]
    return tuple(sides)
