"""Caps: families that a kernel may treat differently, as functions of (seed, number).

All are judged (2^-60 to 2^60 as FP32). `BAD_CAPS` are what an operator must refuse.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final

import numpy as np
import torch

from strategies.words import scalar

__all__ = [
    "BAD_CAPS",
    "CAPS",
    "HIGHEST",
    "LOWEST",
    "TELLING",
    "Cap",
    "as_fp32",
    "bad_numbers",
    "cap_text",
    "fp32_bits",
]

Cap = int | float

LOWEST: Final = 2.0**-60
HIGHEST: Final = 2.0**60


def cap_text(cap: Cap) -> str:
    """A cap for a reader and for a file name: 30 and 30.0 are "30", every other float has all its digits."""
    if isinstance(cap, float) and cap.is_integer() and abs(cap) < 1 << 53:
        return str(int(cap))
    return repr(cap)


def as_fp32(cap: Cap) -> float:
    """The FP32 number nearest to the cap; ValueError unless it is finite and positive.

    An integer past 2^53 is rounded here, once: float(cap) would be a first rounding.
    """
    if isinstance(cap, bool) or not isinstance(cap, (int, float)):
        raise ValueError(f"cap is {cap!r}: an int or a float is needed")
    rounded = _from_int(cap) if isinstance(cap, int) else _from_float(cap)
    if not (math.isfinite(rounded) and rounded > 0.0):
        raise ValueError(f"cap is {str(cap)[:40]}: it must be finite and positive, also as FP32")
    return rounded


def _from_float(cap: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", cap))[0])
    except OverflowError:
        return math.inf


def _from_int(cap: int) -> float:
    excess = max(cap.bit_length() - 30, 0)  # 30 leading bits, the last one sticky: enough to round to 24
    if excess > 128:
        return math.inf
    return _from_float(math.ldexp(float((cap >> excess) | int(cap & ((1 << excess) - 1) != 0)), excess))


def fp32_bits(cap: Cap) -> int:
    """The bit pattern of the cap as FP32."""
    return int(struct.unpack("<I", struct.pack("<f", as_fp32(cap)))[0])


def _from_bits(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _listed(*caps: Cap) -> Callable[[int, int], Cap]:
    """The list, one after the other; the seed only says where to begin."""
    return lambda seed, number: caps[(seed + number) % len(caps)]


def _power(seed: int, number: int, name: str, low: int = -60, high: int = 60) -> int:
    return scalar(low, high, seed, number, name)


def models(seed: int, number: int) -> Cap:
    """Caps of published models and of their attention; breaks what was tuned to one of them (BUGS.md #7)."""
    return _listed(30.0, 50.0, 20.0, 15.0, 1.0, 5.0, 10.0, 100.0)(seed, number)


def integers(seed: int, number: int) -> Cap:
    """Python ints, also where FP32 rounds (2^24 + 1); breaks kernels specialised on an argument's type."""
    return _listed(30, 1, 20, 7, 50, 2**24, 2**24 + 1, 2**31, 2**53 + 1, 2**60)(seed, number)


def powers_of_two(seed: int, number: int) -> Cap:
    """Powers of two; breaks nothing by itself: x / c is exact, so what is left is the tanh's fault."""
    return math.ldexp(1.0, _power(seed, number, "power"))


def neighbours(seed: int, number: int) -> Cap:
    """FP32 numbers beside a power of two; breaks caps of fewer digits, and rounding at a binade's edge."""
    bits = fp32_bits(math.ldexp(1.0, _power(seed, number, "beside", -59, 59)))
    return _from_bits(bits + (1 if scalar(0, 1, seed, number, "side") else -1))


def unrepresentable(seed: int, number: int) -> Cap:
    """Everyday caps that no 16-bit dtype holds; breaks a cap rounded to the dtype of x."""
    return _listed(30.1, 17.3, 7.3, 0.7, 49.99, 1000.1, 31.000002, 3.14159)(seed, number)


def odd_last_bit(seed: int, number: int) -> Cap:
    """Above 1000 with the last FP32 bit set; breaks decimal formatting of the cap, and caches keyed on it."""
    return _from_bits(scalar(fp32_bits(1000.0), fp32_bits(2.0**30), seed, number, "odd") | 1)


def all_digits(seed: int, number: int) -> Cap:
    """Needs all 24 significant bits, 1 to 100; breaks a cap that passed through TF32, BF16 or FP16."""
    return _from_bits(scalar(fp32_bits(1.0), fp32_bits(100.0), seed, number, "digits") | 0x1001)


def doubles(seed: int, number: int) -> Cap:
    """FP64 caps beside a tie of FP32; breaks kernels that keep, read or truncate FP64 (BUGS.md #91)."""
    low = _from_bits(scalar(fp32_bits(1.0), fp32_bits(100.0), seed, number, "double"))
    high = _from_bits(fp32_bits(low) + 1)
    return math.nextafter((low + high) / 2, (low, high)[scalar(0, 1, seed, number, "tie")])


def tiny(seed: int, number: int) -> Cap:
    """Down to the lowest judged cap; breaks reciprocals, early underflow and masks (BUGS.md #11)."""
    return LOWEST if number == 0 else math.ldexp(1.7, _power(seed, number, "tiny", -60, -20))


def huge(seed: int, number: int) -> Cap:
    """Up to the highest judged cap; breaks x / c that becomes subnormal, and products that overflow FP16."""
    return HIGHEST if number == 0 else math.ldexp(1.7, _power(seed, number, "huge", 20, 59))


def log_uniform(seed: int, number: int) -> Cap:
    """Any FP32 pattern in the judged range; breaks whatever nobody thought of."""
    return _from_bits(scalar(fp32_bits(LOWEST), fp32_bits(HIGHEST), seed, number, "log"))


CAPS: Final[dict[str, Callable[[int, int], Cap]]] = {
    family.__name__: family
    for family in (models, integers, powers_of_two, unrepresentable, neighbours, odd_last_bit, all_digits,
                   doubles, tiny, huge, log_uniform)
}  # fmt: skip


# No 16-bit dtype holds the first six: caps that show in the bits where they were rounded, ints too; FP32 rounds the
# sixth. Then caps of models beside those that are judged unasked: what was tuned to one of them is wrong there alone.
TELLING: Final[tuple[Cap, ...]] = (17.3, 30.1, 1000.03, 23.000002, 1001, 2**24 + 1, 15.0, 50.0)


def bad_numbers(seed: int) -> tuple[float, ...]:
    """Numbers that no kernel may take, one of each binade: negative ones, and positive ones past both ends of FP32.

    Breaks checks that know a few bad caps, or a stretch of them (BUGS.md #29, #30).
    """
    negative = (-_in_binade(seed, power) for power in range(-149, 128))
    return (
        *negative,
        *(_in_binade(seed, power) for power in (*range(-1074, -150, 16), *range(128, 1024, 16))),
    )


def _in_binade(seed: int, power: int) -> float:
    return math.ldexp(1.0 + scalar(0, 2**20 - 1, seed, "binade", power) / 2**20, power)


# BUGS.md #29, #30. 1e-60 is 0 and 1e39 is inf as FP32; a cap is a number, so no text, bool, list or tensor.
BAD_CAPS: Final[tuple[object, ...]] = (
    0, 0.0, -0.0, -1, -30.0, math.nan, math.inf, -math.inf, 1e-60, 1e39, 10**400, -(10**400), True, False,
    None, "30", b"30", 30j, [30.0], (30.0,), np.float64("nan"), np.float32(0.0), np.array([30.0, 20.0]),
    torch.tensor(30.0),
)  # fmt: skip
