"""Making a failing cap one that a person recognises: the shortest name first.

A cap's names are its shortest decimal, a power of two, one step beside one, and its hexadecimal digits.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from strategies.campaign import CapRange, cap_of_bits
from strategies.caps import Cap, as_fp32, fp32_bits

__all__ = ["near_cap", "read_spelled", "simplest_cap", "simplicity", "spell"]

# Caps of models, and the first decimals and integers that a cut to 8, 11 or 23 bits changes.
_KNOWN: Final[tuple[float, ...]] = (
    1, 30, 20, 50, 2, 10, 100, 5, 15, 3, 7, 0.1, 0.3, 0.5, 0.7, 1.1, 1.3, 1.5, 7.3, 17.3, 30.1, 100.1, 257, 1000,
    1000.1, 1000.3, 1001, 1001.1, 2049, 4097, 16777215, 16777216,
)  # fmt: skip

_FP32: Final = CapRange(cap_of_bits(1), cap_of_bits(0x7F7FFFFF))


def spell(cap: Cap) -> str:
    """The shortest name of the FP32 value of a cap; for ints, the int."""
    if isinstance(cap, int):
        return _integer(cap)
    value = as_fp32(cap)
    if value != cap:
        return repr(cap)
    names = [_decimal(value), _hexadecimal(value)]
    bits = fp32_bits(value)
    if math.frexp(value)[0] == 0.5:
        names.append(f"2^{math.frexp(value)[1] - 1}")
    for side, sign in ((-1, "+"), (1, "-")):
        if math.frexp(beside := cap_of_bits(bits + side))[0] == 0.5:
            names.append(f"2^{math.frexp(beside)[1] - 1}{sign}step")
    return min(names, key=len)


_POWER: Final = re.compile(r"2\^(-?\d{1,3})([+-]step)?", re.ASCII)


def read_spelled(text: str) -> float:
    """The FP32 number that `spell` spells: a decimal, hexadecimal digits, 2^k, or one step beside it.

    ValueError for what is none, or not finite and positive.
    """
    power = _POWER.fullmatch(text)
    if power is not None:
        try:
            value = as_fp32(math.ldexp(1.0, int(power[1])))
        except OverflowError:
            raise ValueError(text) from None
        return cap_of_bits(fp32_bits(value) + {None: 0, "+step": 1, "-step": -1}[power[2]])
    if "_" in text or text != text.strip():  # which Python's own float takes
        raise ValueError(text)
    return as_fp32(float.fromhex(text) if "0x" in text.lower() else float(text))


def _integer(cap: int) -> str:
    power = cap.bit_length() - 1
    return f"2^{power}" if cap == 1 << power and power >= 10 else str(cap)


def _decimal(value: float) -> str:
    """The shortest decimal that FP32 reads back."""
    short = np.format_float_positional(np.float32(value), unique=True, trim="-")
    long = np.format_float_scientific(np.float32(value), unique=True, trim="-", exp_digits=1)
    return min(str(short), str(long), key=len)


def _hexadecimal(value: float) -> str:
    digits, _, exponent = value.hex().partition("p")
    return f"{digits.rstrip('0').rstrip('.')}p{exponent}"


def simplicity(cap: Cap) -> tuple[int, float, bool]:
    """Less is simpler: a short name (one with an exponent is read twice), near 1, above 1."""
    value, name = as_fp32(cap), spell(cap)
    return len(name) + 2 * ("e" in name and "step" not in name), abs(math.log2(value)), value < 1.0


def simplest_cap(cap: Cap, fails: Callable[[Cap], bool], within: CapRange, *, budget: int) -> Cap:
    """The simplest cap found in the range at which it still fails, after at most `budget` calls of `fails`.

    An int stays an int unless its float fails too. `cap` itself is taken to fail and not tried again.
    """
    left = [budget]
    seen: set[tuple[type, Cap]] = {(type(cap), cap)}

    def attempt(other: Cap) -> bool:
        if left[0] <= 0 or (type(other), other) in seen or other not in within:
            return False
        left[0] -= 1
        seen.add((type(other), other))
        return fails(other)

    best = next((c for c in _ranked(cap) if attempt(c)), cap)
    if isinstance(best, int):
        best = _least(best, attempt)
        best = float(best) if attempt(float(best)) else best
    return best


def near_cap(cap: Cap, fails: Callable[[Cap], bool], within: CapRange, *, budget: int) -> Cap:
    """A simpler cap at which it still fails, where each of the few calls of `fails` is dear.

    A cap of everyday use, else the power of two nearest to 1 from which on powers fail, else fewer decimal digits.
    """
    left = [budget]

    def attempt(other: Cap) -> bool:
        left[0] -= 1
        return left[0] >= 0 and other in within and fails(other)

    for known in (1.0, 30.0, 2.0):
        if known != cap and attempt(known):
            return known
    value = as_fp32(cap)
    far = math.frexp(value)[1] - 1 + (value < 1.0)  # the power of two next to the cap, towards 1
    for power in (far, far + (1 if value >= 1.0 else -1)):
        if attempt(math.ldexp(1.0, power)):
            return _nearest_power(power, attempt)
    shorter = (as_fp32(float(f"{value:.{digits}g}")) for digits in range(1, 8))
    return next((c for c in shorter if c != value and attempt(c)), cap)


def _nearest_power(power: int, attempt: Callable[[Cap], bool]) -> float:
    """The power of two nearest to 1 that fails, where failing goes on from some exponent on."""
    good, bad = 0, power
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if attempt(math.ldexp(1.0, middle)) else (middle, bad)
    return math.ldexp(1.0, bad)


def _ranked(cap: Cap) -> list[Cap]:
    """Simpler caps, the simplest first; of the type of the cap."""
    found = {c for c in _simpler(as_fp32(cap)) if c in _FP32}
    typed = [int(c) for c in found if c == int(c)] if isinstance(cap, int) else [as_fp32(c) for c in found]
    limit = simplicity(cap)
    return sorted({c for c in typed if c > 0 and simplicity(c) < limit}, key=simplicity)


def _simpler(value: float) -> Iterator[float]:
    yield from _KNOWN
    exponent = math.frexp(value)[1] - 1
    step = 1 if exponent >= 0 else -1
    for power in range(0, exponent + 2 * step, step):
        yield math.ldexp(1.0, power)
    bits = fp32_bits(value)
    for power in (0, exponent, exponent + 1):
        with contextlib.suppress(ValueError):  # above FP32
            beside = fp32_bits(math.ldexp(1.0, power))
            yield from (cap_of_bits(beside - 1), cap_of_bits(beside + 1))
    for kept in range(1, 24):
        cut = cap_of_bits(bits >> (23 - kept) << (23 - kept))
        yield from (cut, math.ldexp(cut, -exponent))
    yield from _decimals(value)


def _decimals(value: float) -> Iterator[float]:
    """The cap to ever more decimal digits, the last one moved a little."""
    for digits in range(1, 9):
        ten = digits - 1 - math.floor(math.log10(value))
        nearest = round(value * 10.0**ten)
        for figures in range(nearest - 3, nearest + 4):
            with contextlib.suppress(ValueError):  # below FP32, or above it
                yield as_fp32(float(f"{figures}e{-ten}"))


def _least(cap: int, attempt: Callable[[Cap], bool]) -> int:
    """The smallest integer that fails, where failing goes on from some integer on; never a longer one."""
    low, high = 0, cap
    while high - low > 1:
        middle = (low + high) // 2
        if attempt(middle):
            high = middle
        else:
            low = middle
    return high if simplicity(high) <= simplicity(cap) else cap
