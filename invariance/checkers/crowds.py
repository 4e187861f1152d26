"""The caps of operators that are alive beside one, for what a process keeps in a few places."""

from __future__ import annotations

from strategies.campaign import cap_of_bits
from strategies.caps import HIGHEST, LOWEST, Cap, as_fp32, fp32_bits
from strategies.simplest import spell

_MORE = 37  # with `three_caps` more than forty caps: caches of 4, 8, 16 and 32 places overflow
_APART = 0x35A3D  # steps of FP32: so many of them stay within a binade
_NAMED = 4  # caps in a label


def three_caps(cap: Cap) -> tuple[Cap, ...]:
    """The cap, an FP32 neighbour of it, and one that is far away and that no 16-bit type holds."""
    bits = fp32_bits(cap)
    up = 1 if as_fp32(cap) < HIGHEST else -1
    return cap, cap_of_bits(bits + up), cap_of_bits(bits + up * 0x6A3F1)


def crowd(cap: Cap) -> tuple[float, ...]:
    """Other caps of the judged domain, all different: twice it, half of it, its neighbour on the side where
    `three_caps` has none, and more of them within a factor of two.
    """
    value, bits = as_fp32(cap), fp32_bits(cap)
    up = 1 if 2 * value <= HIGHEST else -1
    beside = bits - 1 if value < HIGHEST else bits - 2
    patterns = [beside, *(bits + up * number * _APART for number in range(1, _MORE + 1))]
    return tuple(c for c in (2 * value, value / 2, *map(cap_of_bits, patterns)) if LOWEST <= c <= HIGHEST)


def listed(caps: tuple[Cap, ...]) -> str:
    """The first few caps by name, and how many there are."""
    more = f" and more, {len(caps)} in all" if len(caps) > _NAMED else ""
    return f"cap{'s' * (len(caps) > 1)} {', '.join(map(spell, caps[:_NAMED]))}{more}"
