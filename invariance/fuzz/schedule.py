"""Which caps come next: families that take turns, what Hypothesis draws, and neighbours of the worst so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from invariance.fuzz.asked import Asked
from strategies.campaign import (
    ROUND_VALUES,
    CapRange,
    bf16_caps,
    cap_of_bits,
    draw,
    near,
    near_round,
    numbered,
    spread,
)
from strategies.caps import HIGHEST, LOWEST, Cap, as_fp32, fp32_bits
from strategies.cases import caps as any_caps
from strategies.cases import drawn
from strategies.words import scalar

FIRST_ROUND = 8  # caps; short, so that a kernel that is wrong everywhere is known at once
ROUND = 24
KINDS = ("families", "neighbourhoods", "families", "round", "hypothesis")
OTHERWISE_EVERY = (
    8  # one cap in so many is given in another form than a number, where the candidate takes one
)
BARREN = (
    4  # rounds on end without a new FP32 number: the range is nearly used up, what is left is taken in order
)


@dataclass
class Schedule:
    """The caps of a campaign, in rounds; drawn by (campaign, range, seed, shard) and by the errors reported.

    shard: (K, N), the K-th of N parts. forms: in which the candidate takes its cap besides a number. rounds: (kind,
    seed) of each, in order. ended: whether every cap was given, which a wide range never comes to.
    """

    campaign: str = "mixed"
    within: CapRange = field(default_factory=CapRange)
    seed: int = 0
    shard: tuple[int, int] = (1, 1)
    forms: tuple[str, ...] = ()
    rounds: list[tuple[str, int]] = field(default_factory=list)
    worst: list[tuple[float, Cap]] = field(default_factory=list)
    ended: bool = False
    _seen: dict[tuple[type, Cap], str] = field(default_factory=dict)
    _patterns: set[int] = field(default_factory=set)
    _number: int = 0
    _round_number: int = 0
    _otherwise: int = -1

    def __iter__(self) -> Iterator[list[Asked]]:
        """Round after round, none of them empty; "mixed" ends only with the caps of a narrow range."""
        yield from self._exhaustive() if self.exhaustive else self._mixed()
        self.ended = True

    @property
    def exhaustive(self) -> bool:
        """Whether the campaign has an end of its own."""
        return self.campaign == "bf16xbf16"

    @property
    def every(self) -> list[float]:
        """The caps of an exhaustive campaign's shard, in an order of which any beginning is spread over the range."""
        mine, of = self.shard
        return spread(bf16_caps(self.within)[mine - 1 :: of])

    def given(self, cap: Cap, source: str) -> None:
        """A cap that was judged otherwise, and does not come again."""
        self._seen.setdefault((type(cap), cap), source)

    def source(self, cap: Cap) -> str:
        """The family, or what else gave a cap."""
        return self._seen.get((type(cap), cap), "bf16")

    def _mixed(self) -> Iterator[list[Asked]]:
        barren = 0
        while barren < BARREN:
            size = ROUND if self.rounds else FIRST_ROUND
            kind = KINDS[len(self.rounds) % len(KINDS)]
            seed = scalar(0, 2**32 - 1, self.seed, *self.shard, len(self.rounds))
            self.rounds.append((kind, seed))
            ends = [] if len(self.rounds) > 1 else self._ends()
            fresh = self._new([*ends, *self._round(kind, size, seed)]) or self._new(self._families(size))
            patterns = {fp32_bits(cap) for cap in fresh}
            barren = barren + 1 if patterns <= self._patterns else 0
            self._patterns |= patterns
            if fresh:
                yield self._forms(fresh)
        yield from self._rest()

    def _rest(self) -> Iterator[list[Asked]]:
        """What a shard has left of a narrow range, ascending."""
        (low, high), (mine, of) = self.within.bits, self.shard
        for start in range(low + mine - 1, high + 1, ROUND * of):
            bits = range(start, min(start + ROUND * of, high + 1), of)
            fresh = self._new([("the rest", cap_of_bits(b)) for b in bits])
            if fresh:
                yield self._forms(fresh)

    def learn(self, cap: Cap, score: float) -> None:
        """The largest error at a cap, as a share of what is allowed: the highest are searched around."""
        same = [pair for pair in self.worst if as_fp32(pair[1]) == as_fp32(cap)]
        others = [pair for pair in self.worst if pair not in same]
        top = max([*same, (score, cap)], key=lambda pair: pair[0])
        self.worst = sorted([*others, top], key=lambda pair: -pair[0])[:8]

    def _round(self, kind: str, size: int, seed: int) -> list[tuple[str, Cap]]:
        if kind == "hypothesis" and self.within.low >= LOWEST and self.within.high <= HIGHEST:
            some = any_caps(min_value=self.within.low, max_value=self.within.high)
            return [(kind, cap) for cap in drawn(some, examples=size, seed=seed)]
        if kind == "neighbourhoods" and self.worst:
            centres = [cap for _, cap in self.worst]
            return [(kind, near(centres[i % len(centres)], self.within, seed, i)) for i in range(size)]
        if kind == "round":
            return [("near round values", cap) for cap in islice(self._near_round(), size)]
        return self._families(size)

    def _ends(self) -> list[tuple[str, Cap]]:
        """First of a range that leaves the judged domain: the ends of what it has of that."""
        low, high = max(self.within.low, LOWEST), min(self.within.high, HIGHEST)
        if low > high or (low, high) == (self.within.low, self.within.high) or self.shard[0] > 1:
            return []
        return [("ends", low), ("ends", high)]

    def _near_round(self) -> Iterator[Cap]:
        """Those of the next turn of all round values that lie in the range."""
        mine, of = self.shard
        for _ in range(2 * len(ROUND_VALUES)):
            self._round_number += 1
            cap = near_round(self.within, self.seed, (self._round_number - 1) * of + mine - 1)
            if cap is not None:
                yield cap

    def _families(self, size: int) -> list[tuple[str, Cap]]:
        mine, of = self.shard
        first, self._number = self._number, self._number + size
        return [draw(self.within, self.seed, numbered(n, mine, of)) for n in range(first, first + size)]

    def _new(self, caps: list[tuple[str, Cap]]) -> list[Cap]:
        """Those not judged before, each once."""
        fresh = []
        for family, cap in caps:
            if (type(cap), cap) not in self._seen:
                self._seen[type(cap), cap] = family
                fresh.append(cap)
        return fresh

    def _forms(self, caps: list[Cap]) -> list[Asked]:
        """A few of the caps in another form, the forms in turn."""
        asked = list(map(Asked, caps))
        for place in range(OTHERWISE_EVERY - 1, len(caps), OTHERWISE_EVERY) if self.forms else ():
            self._otherwise += 1
            asked[place] = Asked(caps[place], self.forms[self._otherwise % len(self.forms)])
        return asked

    def _exhaustive(self) -> Iterator[list[Asked]]:
        """Every BF16 cap in the range."""
        caps = self.every
        for start in range(0, len(caps), 8 * ROUND):
            self.rounds.append(("bf16xbf16", 0))
            yield [Asked(cap) for cap in caps[start : start + 8 * ROUND]]
