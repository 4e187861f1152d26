"""Caps for a campaign: families over any range of FP32 caps, as functions of (range, seed, number).

`strategies.caps` lists what every judgement tries; here a family goes on for ever, and a family that has
nothing in a range says so with None.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from strategies.caps import CAPS, HIGHEST, LOWEST, Cap, as_fp32, fp32_bits
from strategies.words import scalar

__all__ = [
    "CAMPAIGN",
    "ROUND_VALUES",
    "CapRange",
    "bf16_caps",
    "cap_of_bits",
    "draw",
    "near",
    "near_round",
    "numbered",
    "spread",
]

_LARGEST_INTEGER: Final = 2**24
_EVERY_DIGIT: Final = 0x1001  # the last bit, and one that FP16, BF16 and TF32 all drop


@dataclass(frozen=True)
class CapRange:
    """Caps from `low` to `high`, both included, both FP32; ValueError for any other ends."""

    low: float = LOWEST
    high: float = HIGHEST

    def __post_init__(self) -> None:
        """Refuse ends that are not FP32 numbers in order."""
        if as_fp32(self.low) != self.low or as_fp32(self.high) != self.high or self.low > self.high:
            raise ValueError(f"caps from {self.low!r} to {self.high!r}: two FP32 numbers in order are needed")

    def __contains__(self, cap: Cap) -> bool:
        try:
            return self.low <= as_fp32(cap) <= self.high
        except ValueError:  # 0, or infinity: beside the ends of FP32
            return False

    @property
    def bits(self) -> tuple[int, int]:
        """The patterns of both ends."""
        return fp32_bits(self.low), fp32_bits(self.high)

    @property
    def powers(self) -> tuple[int, int]:
        """The least and the greatest k with 2^k in the range; the first above the second where there is none."""
        return math.ceil(math.log2(self.low)), math.floor(math.log2(self.high))


def cap_of_bits(bits: int) -> float:
    """The FP32 number of a pattern."""
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def log_uniform(within: CapRange, seed: int, number: int) -> Cap | None:
    """Any FP32 pattern; breaks whatever nobody thought of."""
    return cap_of_bits(scalar(*within.bits, seed, number, "log"))


def powers_of_two(within: CapRange, seed: int, number: int) -> Cap | None:
    """Exact powers of two; breaks special paths for them, and tables by exponent."""
    low, high = within.powers
    return math.ldexp(1.0, scalar(low, high, seed, number, "power")) if low <= high else None


def neighbours(within: CapRange, seed: int, number: int) -> Cap | None:
    """One step beside a power of two; breaks caps of fewer digits, and rounding at a binade's edge."""
    low, high = within.powers
    if low > high:
        return None
    bits = fp32_bits(math.ldexp(1.0, scalar(low, high, seed, number, "beside")))
    beside = cap_of_bits(bits + (1, -1)[scalar(0, 1, seed, number, "side")])
    return beside if beside in within else None


def integers(within: CapRange, seed: int, number: int) -> Cap | None:
    """Python ints, log-uniform to 2^24; breaks kernels specialised on a type, and ints cut to fewer bits."""
    low, high = max(1, math.ceil(within.low)), min(_LARGEST_INTEGER, math.floor(within.high))
    if low > high:
        return None
    length = scalar(low.bit_length(), high.bit_length(), seed, number, "length")
    return scalar(max(low, 1 << (length - 1)), min(high, (1 << length) - 1), seed, number, "integer")


def decimals(within: CapRange, seed: int, number: int) -> Cap | None:
    """What people write: one to four digits, 0.001 to 9999; breaks a cap that passed through a text or 16 bits."""
    digits = scalar(1, 4, seed, number, "digits")
    figures = scalar(10 ** (digits - 1), 10**digits - 1, seed, number, "figures")
    cap = figures / 10 ** scalar(0, 3, seed, number, "point")
    return cap if cap in within else None


def unrepresentable(within: CapRange, seed: int, number: int) -> Cap | None:
    """Needs all 24 significant bits; breaks a cap that passed through FP16, BF16 or TF32."""
    cap = cap_of_bits(scalar(*within.bits, seed, number, "unrepresentable") | _EVERY_DIGIT)
    return cap if cap in within else None


def tiny(within: CapRange, seed: int, number: int) -> Cap | None:
    """The lowest third of the binades; breaks reciprocals that overflow, and early underflow."""
    low, high = within.bits
    return cap_of_bits(scalar(low, low + (high - low) // 3, seed, number, "tiny"))


def huge(within: CapRange, seed: int, number: int) -> Cap | None:
    """The highest third of the binades; breaks x / c that becomes subnormal, and products that overflow."""
    low, high = within.bits
    return cap_of_bits(scalar(high - (high - low) // 3, high, seed, number, "huge"))


def _listed(name: str) -> Callable[[CapRange, int, int], Cap | None]:
    def family(within: CapRange, seed: int, number: int) -> Cap | None:
        cap = CAPS[name](seed, number)
        return cap if cap in within else None

    family.__doc__ = CAPS[name].__doc__
    return family


CAMPAIGN: Final[dict[str, Callable[[CapRange, int, int], Cap | None]]] = {
    "models": _listed("models"), "log_uniform": log_uniform, "powers_of_two": powers_of_two,
    "integers": integers, "unrepresentable": unrepresentable, "tiny": tiny, "decimals": decimals,
    "huge": huge, "neighbours": neighbours, "doubles": _listed("doubles"),
}  # fmt: skip


def draw(within: CapRange, seed: int, number: int) -> tuple[str, Cap]:
    """Cap `number` of a campaign and its family: the families take turns, one that has none gives way."""
    name = list(CAMPAIGN)[number % len(CAMPAIGN)]
    cap = CAMPAIGN[name](within, seed, number // len(CAMPAIGN))
    if cap is not None:
        return name, cap
    return "log_uniform", cap_of_bits(scalar(*within.bits, seed, number, "instead"))


def numbered(number: int, mine: int, of: int) -> int:
    """Cap `number` of part `mine` of `of` among all that `draw` gives: each part has every family, no two a cap."""
    turn, family = divmod(number, len(CAMPAIGN))
    return (turn * of + mine - 1) * len(CAMPAIGN) + family


def near(cap: Cap, within: CapRange, seed: int, number: int) -> Cap:
    """A neighbour of a cap: a few steps beside it, some low bits redrawn, or its digits at another exponent."""
    bits, (low, high) = fp32_bits(cap), within.bits
    kind = scalar(0, 3, seed, number, "kind")
    if kind == 0:
        bits += scalar(-8, 8, seed, number, "steps")
    elif kind == 1:
        bits ^= scalar(0, (1 << scalar(4, 20, seed, number, "low bits")) - 1, seed, number, "redrawn")
    elif kind == 2:
        bits += scalar(-40, 40, seed, number, "binades") << 23
    else:
        bits ^= 1 << scalar(0, 22, seed, number, "bit")
    return cap_of_bits(min(max(bits, low), high))


def bf16_caps(within: CapRange) -> list[float]:
    """Every cap in the range that BF16 holds, ascending."""
    low, high = within.bits
    return [cap_of_bits(top << 16) for top in range(-(-low >> 16), (high >> 16) + 1)]


Item = TypeVar("Item")


def spread(items: Sequence[Item]) -> list[Item]:
    """The items in van der Corput's order: each beginning of it is spread evenly over all, its first item is theirs."""
    length = max(len(items) - 1, 0).bit_length()
    order = sorted(range(len(items)), key=lambda n: int(f"{n:0{max(length, 1)}b}"[::-1], 2))
    return [items[n] for n in order]


def _figures(halves: int) -> tuple[bool, float]:
    """How round a number of halves is: whole, and its significant digits, binary or decimal, whichever say less."""
    binary = (halves // (halves & -halves)).bit_length()
    decimal = len(f"{5 * halves}".strip("0")) * math.log2(10)
    return halves % 2 == 1, min(binary, decimal)


ROUND_VALUES: Final = [halves / 2 for halves in sorted(spread(range(1, 257)), key=_figures)]


# Where a branch or a table for everyday caps would be.
_EVERYDAY: Final = (
    1.0,
    10.0,
    100.0,
    30.0,
    50.0,
    20.0,
    1000.0,
    0.1,
    25.0,
    5.0,
    2.0,
    15.0,
    0.01,
    0.5,
    1e4,
    0.001,
)


def near_round(within: CapRange, seed: int, number: int) -> Cap | None:
    """In turn: integers and halves to 128, which people use, the roundest first; and caps beside an everyday one.

    Each integer or half once, then any within 1% of one of them. Beside an everyday cap are those within 1%, as many
    within a half of a percent, a quarter, and so on: a narrow interval is met too. Breaks a table or a branch for an
    interval of everyday caps. None where the value is outside the range.
    """
    number, beside = divmod(number, 2)
    turn, place = divmod(number, len(_EVERYDAY) if beside else len(ROUND_VALUES))
    value = _EVERYDAY[place] if beside else ROUND_VALUES[place]
    if beside or turn:
        halvings = scalar(0, 7, seed, number, "halvings") if beside else 0
        low, high = (fp32_bits((1.0 + side * 0.01 / 2**halvings) * value) for side in (-1, 1))
        value = cap_of_bits(scalar(low, high, seed, number, "beside" if beside else "near round"))
    return value if value in within else None
