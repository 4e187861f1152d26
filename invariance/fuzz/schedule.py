"""Which caps come next: families that take turns, what Hypothesis draws, and neighbours of the worst so far."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from invariance.fuzz.asked import NUMBER, TENSOR, Asked
from strategies.campaign import CapRange, bf16_caps, draw, near
from strategies.caps import HIGHEST, LOWEST, Cap
from strategies.cases import caps as any_caps
from strategies.cases import drawn
from strategies.words import scalar

CAMPAIGNS = ("mixed", "bf16xbf16")
FIRST_ROUND = 8  # caps; short, so that a kernel that is wrong everywhere is known at once
ROUND = 24
KINDS = ("families", "neighbourhoods", "families", "hypothesis")
TENSOR_EVERY = 8  # of a candidate that takes tensors: one cap in so many is given as one


@dataclass
class Schedule:
    """The caps of a campaign, in rounds; drawn by (campaign, range, seed, shard) and by the errors reported.

    shard: (K, N), the K-th of N parts. tensors: whether the candidate takes 0-d tensors. kinds: of families and other
    sources, how many caps each gave. rounds: (kind, seed) of each, in order.
    """

    campaign: str = "mixed"
    within: CapRange = field(default_factory=CapRange)
    seed: int = 0
    shard: tuple[int, int] = (1, 1)
    tensors: bool = False
    kinds: Counter[str] = field(default_factory=Counter)
    rounds: list[tuple[str, int]] = field(default_factory=list)
    worst: list[tuple[float, Cap]] = field(default_factory=list)
    _seen: set[tuple[type, Cap]] = field(default_factory=set)
    _number: int = 0

    def __iter__(self) -> Iterator[list[Asked]]:
        """Round after round; "mixed" has no end."""
        if self.campaign == "bf16xbf16":
            yield from self._exhaustive()
            return
        while True:
            size = ROUND if self.rounds else FIRST_ROUND
            kind = KINDS[len(self.rounds) % len(KINDS)]
            seed = scalar(0, 2**32 - 1, self.seed, *self.shard, len(self.rounds))
            self.rounds.append((kind, seed))
            fresh = self._forms(self._new(self._round(kind, size, seed)))
            yield fresh or self._forms(self._new(self._families(size)))

    def learn(self, cap: Cap, score: float) -> None:
        """The largest error at a cap, as a share of what is allowed: the highest are searched around."""
        self.worst = sorted([*self.worst, (score, cap)], key=lambda pair: -pair[0])[:8]

    def _round(self, kind: str, size: int, seed: int) -> list[tuple[str, Cap]]:
        if kind == "hypothesis" and self.within.low >= LOWEST and self.within.high <= HIGHEST:
            some = any_caps(min_value=self.within.low, max_value=self.within.high)
            return [(kind, cap) for cap in drawn(some, examples=size, seed=seed)]
        if kind == "neighbourhoods" and self.worst:
            centres = [cap for _, cap in self.worst]
            return [(kind, near(centres[i % len(centres)], self.within, seed, i)) for i in range(size)]
        return self._families(size)

    def _families(self, size: int) -> list[tuple[str, Cap]]:
        mine, of = self.shard
        first, self._number = self._number, self._number + size
        return [draw(self.within, self.seed, number * of + mine - 1) for number in range(first, first + size)]

    def _new(self, caps: list[tuple[str, Cap]]) -> list[Cap]:
        """Those not judged before, each once."""
        fresh = []
        for family, cap in caps:
            if (type(cap), cap) not in self._seen:
                self._seen.add((type(cap), cap))
                self.kinds[family] += 1
                fresh.append(cap)
        return fresh

    def _forms(self, caps: list[Cap]) -> list[Asked]:
        return [
            Asked(cap, TENSOR if self.tensors and place % TENSOR_EVERY == TENSOR_EVERY - 1 else NUMBER)
            for place, cap in enumerate(caps)
        ]

    def _exhaustive(self) -> Iterator[list[Asked]]:
        """Every BF16 cap in the range, those of a shard spread over it."""
        mine, of = self.shard
        caps = bf16_caps(self.within)[mine - 1 :: of]
        for start in range(0, len(caps), 8 * ROUND):
            self.rounds.append(("bf16xbf16", 0))
            self.kinds["bf16"] += len(caps[start : start + 8 * ROUND])
            yield [Asked(cap) for cap in caps[start : start + 8 * ROUND]]
