"""The domain of a sweep: every encoding of a dtype by magnitude, both signs together, cut where the truth changes form.

A magnitude is the encoding without its sign bit, an integer from 0 to 2**(width - 1). Magnitudes are ordered
as the values are, so a range of them is an interval of |x|.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from fractions import Fraction

import torch

from oracles.formats import cap_as_fp32, format_of
from oracles.rounding import from_bits, round_exact, to_bits

RANGE = 1 << 20
"""Magnitudes of one fingerprint; shards are whole ranges."""

BELOW, TINY, MIDDLE, UPPER, FAR, INFINITY, NAN = "below", "tiny", "middle", "upper", "far", "infinity", "nan"
FINITE = (BELOW, TINY, MIDDLE, UPPER, FAR)

BELOW_LOG2 = -126
TINY_LOG2 = -12
UPPER_LOG2 = 3
FAR_LOG2 = {"forward": 5, "backward": 6}
"""From |x/c| = 32 on tanh is 1 to 2**-91, from 64 on sech² is 0 to 2**-182: no FP32 result can tell."""


@dataclass(frozen=True)
class Piece:
    """Magnitudes lo to hi - 1, all in one zone, and but for `below`, `infinity` and `nan` in one binade of x/c."""

    lo: int
    hi: int
    zone: str
    binade: int | None

    @property
    def size(self) -> int:
        """How many magnitudes."""
        return self.hi - self.lo


@dataclass(frozen=True)
class Domain:
    """All encodings of `dtype` (torch's), and where |x/c| crosses a binade at this cap and pass.

    `cap` is rounded to FP32. pass_: "forward" or "backward". `starts`: (first magnitude, zone, binade), ascending.
    """

    dtype: torch.dtype
    cap: float
    pass_: str
    starts: tuple[tuple[int, str, int | None], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "cap", cap_as_fp32(self.cap))
        object.__setattr__(self, "starts", self._zones())

    @property
    def sign(self) -> int:
        """The sign bit, which is also how many magnitudes there are."""
        return 1 << (8 * self.dtype.itemsize - 1)

    @property
    def size(self) -> int:
        """How many magnitudes there are."""
        return self.sign

    @property
    def block(self) -> int:
        """Magnitudes of one call on a CPU: a chunk of FP64 stays in the second-level cache."""
        return min(self.size, 1 << 16)

    @property
    def infinity(self) -> int:
        """The magnitude of infinity; above it are the NaNs."""
        fmt = format_of(self.dtype)
        return self.size - (1 << (fmt.precision - 1))

    @property
    def quiet_nan(self) -> int:
        """The encoding that stands for every NaN."""
        return canonical_nan(self.dtype)

    def value(self, pattern: int) -> float:
        """The number that an encoding (sign bit included) stands for."""
        return decode(pattern, self.dtype)

    def cut(self, limit: Fraction) -> int:
        """The smallest magnitude of a value of at least `limit`, at most that of infinity."""
        nearest = torch.tensor(round_exact(limit, self.dtype), dtype=torch.float64).to(self.dtype)
        magnitude = int(to_bits(nearest).item())
        short = magnitude < self.infinity and Fraction(float(nearest)) < limit
        return min(magnitude + short, self.infinity)

    def _zones(self) -> tuple[tuple[int, str, int | None], ...]:
        """A start that no magnitude lies behind is dropped."""
        starts: list[tuple[int, str, int | None]] = [(0, BELOW, None)]
        fmt, k = format_of(self.dtype), BELOW_LOG2
        limit = Fraction(self.cap) * Fraction(2) ** k
        first, smallest = self.cut(limit), Fraction(2) ** fmt.emin
        while first < self.infinity:
            starts.append((first, self._zone(k), k))
            # Among normal numbers the next binade is one exponent up.
            first = first + (1 << (fmt.precision - 1)) if limit >= smallest else self.cut(2 * limit)
            limit, k = 2 * limit, k + 1
        starts += [(self.infinity, INFINITY, None), (self.infinity + 1, NAN, None)]
        ends = [start[0] for start in starts[1:]] + [self.size]
        return tuple(start for start, end in zip(starts, ends, strict=True) if start[0] < end)

    def _zone(self, binade: int) -> str:
        if binade < TINY_LOG2:
            return TINY
        if binade < UPPER_LOG2:
            return MIDDLE
        return UPPER if binade < FAR_LOG2[self.pass_] else FAR

    def pieces(self, lo: int, hi: int, step: int) -> list[Piece]:
        """The magnitudes from lo to hi - 1, cut at zones, binades and multiples of `step`."""
        found, at = [], lo
        place = bisect_right(self.starts, lo, key=lambda start: start[0]) - 1
        while at < hi:
            _, zone, binade = self.starts[place]
            end = self.starts[place + 1][0] if place + 1 < len(self.starts) else self.size
            stop = min(hi, end, (at // step + 1) * step)
            found.append(Piece(at, stop, zone, binade))
            place, at = place + (stop == end), stop
        return found

    def binades(self) -> list[int]:
        """The binades of x/c in which there are finite inputs, ascending, from -126."""
        return [binade for _, _, binade in self.starts if binade is not None]

    def shard(self, number: int, of: int) -> tuple[int, int]:
        """The magnitudes [lo, hi) of shard `number` (from 1) of `of`; empty when there are more shards than ranges.

        Raises ValueError when there is no such shard.
        """
        if not 1 <= number <= of:
            raise ValueError(f"shard {number}/{of}: the first number goes from 1 to the second")
        ranges = max(1, self.size // RANGE)
        lo, hi = (ranges * (number - 1) // of, ranges * number // of)
        return lo * (self.size // ranges), hi * (self.size // ranges)


def canonical_nan(dtype: torch.dtype) -> int:
    """The encoding of the quiet NaN without payload."""
    fmt, width = format_of(dtype), 8 * dtype.itemsize
    return (1 << (width - 1)) - (1 << (fmt.precision - 1)) + (1 << (fmt.precision - 2))


def decode(pattern: int, dtype: torch.dtype) -> float:
    """The number that an encoding stands for, as a Python float."""
    width = 8 * dtype.itemsize
    return float(from_bits(torch.tensor(pattern - ((pattern >> (width - 1)) << width)), dtype))


def encode(value: float, dtype: torch.dtype) -> int:
    """The encoding of a value that `dtype` holds exactly."""
    bits = int(to_bits(torch.tensor(value, dtype=torch.float64).to(dtype)).item())
    return bits & ((1 << (8 * dtype.itemsize)) - 1)
