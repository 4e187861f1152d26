"""A certificate in the making: counts, contenders for the worst results, fingerprints."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from invariance.sweep.certificate import COUNTS, EXAMPLES, Bin, Certificate, Found, Key, Worst, worse
from invariance.sweep.domain import RANGE, Domain, Piece, canonical_nan
from invariance.sweep.fingerprint import WORD
from invariance.sweep.settle import Contender, Front, Question

INTEGER = {2: torch.int16, 4: torch.int32}


@dataclass(frozen=True)
class Side:
    """A piece's results for inputs of one sign, folded onto x >= 0.

    x: the positive inputs; y: results of the output dtype, forward with the sign of x taken off; both 1-d. signs:
    the sign bits of the inputs that it stands for, two where the results are mirror images.
    """

    piece: Piece
    x: Tensor
    y: Tensor
    signs: tuple[int, ...]


class Tally:
    """Takes in what an engine finds, in any order of pieces."""

    def __init__(self, question: Question, sign: int) -> None:
        self.question, self.sign = question, sign
        self.out_mask = (1 << (8 * question.out_dtype.itemsize)) - 1
        self.canonical_nan = canonical_nan(question.out_dtype)
        self._counts = {name: Found() for name in COUNTS}
        self._fronts: dict[int, Front] = {}
        self._loose: dict[int, Front] = {}
        self._below = Bin()
        self._prints: dict[int, tuple[int, int]] = {}

    def add(self, name: str, count: int, first: Iterable[int] = ()) -> None:
        """Count something, and name the first inputs that show it."""
        if count:
            self._counts[name] = self._counts[name].plus(Found(count, tuple(first)), self.sign)

    def add_where(self, name: str, where: Tensor, count: int, lo: int, signs: tuple[int, ...]) -> None:
        """Count the True elements of a 1-d mask over magnitudes from `lo`, once for each sign."""
        if not count:
            return
        known, first = self._counts[name].first, []
        if len(known) < EXAMPLES or known[-1] & (self.sign - 1) >= lo:
            first = where.nonzero().flatten()[:EXAMPLES].tolist()
        self.add(name, count * len(signs), (lo + i | sign for i in first for sign in signs))

    def fingerprint(self, start: int, positive: int, negative: int) -> None:
        """Add the fingerprint of magnitudes within one range, from `start`."""
        p, n = self._prints.get(start // RANGE, (0, 0))
        self._prints[start // RANGE] = ((p + positive) & WORD, (n + negative) & WORD)

    def front(self, piece: Piece) -> Front:
        """The contenders of the binade of a piece."""
        assert piece.binade is not None
        if piece.binade not in self._fronts:
            self._fronts[piece.binade] = Front(self.question)
        return self._fronts[piece.binade]

    def contend(self, front: Front, side: Side, index: int, low: float, high: float) -> None:
        """A result of a side that may be the worst of its binade."""
        front.add(Contender(low, high, *self._named(side, index)))

    def below(self, error: float, side: Side, index: int) -> None:
        """The worst result of a part of the zone below 2**-126."""
        self.below_at(error, *self._named(side, index))

    def below_at(self, error: float, pattern: int, got: int) -> None:
        """The same, given its encodings."""
        self._below = self._below.plus(Bin(0, Worst(error, pattern, got)), self.sign)

    def contender(self, binade: int, contender: Contender) -> None:
        """A result that an engine found by itself: such come in any order."""
        self._loose.setdefault(binade, Front(self.question)).add(contender)

    def _named(self, side: Side, index: int) -> tuple[int, int]:
        """Encodings of the input and of the result, the sign of x put back on."""
        got = int(side.y[index].view(INTEGER[side.y.element_size()])) & self.out_mask
        if bool(side.y[index].isnan()):
            got = self.canonical_nan
        elif side.signs[0] and self.question.pass_ == "forward":
            got ^= (self.out_mask + 1) >> 1
        return side.piece.lo + index | side.signs[0], got

    def _settled(self, binade: int) -> Worst | None:
        fronts = (found[binade] for found in (self._fronts, self._loose) if binade in found)
        worst: Worst | None = None
        for front in fronts:
            worst = worse(worst, front.settled(), self.sign)
        return worst

    def certificate(self, key: Key, domain: Domain, lo: int, hi: int) -> Certificate:
        """What was found of magnitudes lo to hi - 1, every worst result settled."""
        profile = {k: self._settled(k) for k in {*self._fronts, *self._loose}}
        sizes: dict[int | None, int] = {}
        for piece in domain.pieces(lo, hi, domain.size):
            sizes[piece.binade] = sizes.get(piece.binade, 0) + 2 * piece.size
        binades = sorted(binade for binade in sizes if binade is not None)
        below = domain.pieces(lo, hi, domain.size)[0]
        return Certificate(
            key=key,
            sign=self.sign,
            covered=((lo, hi),),
            counts=self._counts,
            below=Bin(2 * below.size if below.zone == "below" else 0, self._below.worst),
            profile={k: Bin(sizes[k], profile.get(k)) for k in binades},
            fingerprints=self._prints,
        )
