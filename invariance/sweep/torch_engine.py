"""The sweep in torch operations: any dtype, any device; on a CPU in chunks that stay in the second-level cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from invariance.sweep.certificate import Certificate, Key
from invariance.sweep.domain import BELOW, INFINITY, NAN, RANGE, Piece
from invariance.sweep.errors import Errors, errors
from invariance.sweep.fingerprint import Mixer
from invariance.sweep.settle import Question, leading, round_errors
from invariance.sweep.subject import Subject
from invariance.sweep.tally import INTEGER, Side, Tally
from oracles.acceptance import accept
from oracles.rounding import round_exact
from oracles.tolerances import Contract
from oracles.truth import Truth

Rows = tuple[Tensor, Tensor]
Announce = Callable[[int, int], None]


def silent(lo: int, hi: int) -> None:
    """Announces nothing."""


class TorchEngine:
    """Sweeps ranges of one subject's domain. `block`: magnitudes of a call, a power of two up to domain.RANGE."""

    def __init__(self, subject: Subject, contract: Contract, block: int | None = None) -> None:
        self.subject, self.contract = subject, contract
        self.domain = subject.domain
        self.block = block or self.domain.block
        if RANGE % self.block:
            raise ValueError(
                f"a block is a power of two up to {RANGE}, the width of a fingerprint, not {self.block}"
            )
        integer = INTEGER[self.domain.dtype.itemsize]
        magnitudes = torch.arange(self.block, dtype=integer, device=subject.device)
        self._base = torch.stack([magnitudes, magnitudes | torch.iinfo(integer).min])
        self._mixer = Mixer(self.block, subject.device)
        self._limit = round_exact(Fraction(self.domain.cap), subject.out_dtype)
        gradient = self.contract.gradient_tolerance / self.contract.gradient_unit
        self.allowed = self.contract.forward_ulps if self.domain.pass_ == "forward" else gradient
        self._wide = subject.out_dtype == torch.float32

    def sweep(self, key: Key, lo: int, hi: int, announce: Announce = silent) -> Certificate:
        """The certificate of magnitudes lo to hi - 1, both signs; lo and hi are multiples of the block.

        Raises CandidateRaised when the candidate does, or returns something else than a tensor like its input.
        """
        tally = self.tally()
        before: Rows | None = None
        for start in range(lo, hi, self.block):
            announce(start, start + self.block)
            before = self._block(tally, start, before)
        if before is not None and hi <= self.domain.infinity:
            self._seam(tally, hi - 1, before, self.fold(self.results(hi)[1]))
        return tally.certificate(key, self.domain, lo, hi)

    def tally(self) -> Tally:
        """An empty tally of this subject."""
        domain, unit = self.domain, self.contract.gradient_unit
        question = Question(domain.cap, domain.pass_, domain.dtype, self.subject.out_dtype, unit)
        return Tally(question, domain.sign)

    def results(self, start: int) -> tuple[Tensor, Tensor]:
        """(x, y) of one call on a block: a row of positive and a row of negative inputs each."""
        y = self.subject.call(self._inputs(start).view(-1)).view(2, -1)
        return self._inputs(start), y  # made anew: a candidate may write into what it is given

    def _inputs(self, start: int) -> Tensor:
        return (self._base + start).view(self.domain.dtype)

    def fold(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of results with the sign of x taken off: forward the second is negated, in its bits."""
        if self.domain.pass_ == "backward":
            return y[0], y[1]
        bits = bits_of(y[1])
        return y[0], (bits ^ torch.iinfo(bits.dtype).min).view(y.dtype)

    def _block(self, tally: Tally, start: int, before: Rows | None) -> Rows:
        """Judge the block at `start`; gives back its last results, for the seam."""
        x, y = self.results(start)
        self._fingerprint(tally, start, x, y)
        folded = self.fold(y)
        ordered = min(self.block, self.domain.infinity + 1 - start)
        if before is not None and ordered > 0:
            self._seam(tally, start - 1, before, folded)
        if ordered > 1:
            self._monotone(tally, start, (folded[0][:ordered], folded[1][:ordered]))
        for piece in self.domain.pieces(start, start + self.block, self.block):
            part = slice(piece.lo - start, piece.hi - start)
            self.piece(tally, piece, x[0, part], (folded[0][part], folded[1][part]))
        return folded[0][-1:].clone(), folded[1][-1:].clone()

    def _fingerprint(self, tally: Tally, start: int, x: Tensor, y: Tensor) -> None:
        """NaN results count as one NaN."""
        bits = bits_of(y)
        if bool(y.amax().isnan()):
            bits = bits.masked_fill(y.isnan(), tally.canonical_nan)
        tally.fingerprint(start, *(self._mixer(bits_of(x)[row], bits[row]) for row in (0, 1)))

    def _seam(self, tally: Tally, magnitude: int, before: Rows, after: Rows) -> None:
        for row in (0, 1):
            broken = self._inverted(before[row], after[row][:1])
            tally.add_where("monotonicity_breaks", broken, int(broken), magnitude, (row * self.domain.sign,))

    def _monotone(self, tally: Tally, start: int, y: Rows) -> None:
        mirrored = torch.equal(bits_of(y[0]), bits_of(y[1]))
        for row in (0,) if mirrored else (0, 1):
            broken = self._inverted(y[row][:-1], y[row][1:])
            signs = (0, self.domain.sign) if mirrored else (row * self.domain.sign,)
            tally.add_where("monotonicity_breaks", broken, int(broken.sum()), start, signs)

    def _inverted(self, before: Tensor, after: Tensor) -> Tensor:
        """Where |y| falls, or the gradient rises, as |x| grows; never beside a NaN."""
        return after < before if self.domain.pass_ == "forward" else after > before

    def piece(self, tally: Tally, piece: Piece, x: Tensor, y: Rows) -> None:
        """Judge one piece: its positive inputs, and the folded results of the positive and the negative ones."""
        sign = self.domain.sign
        if piece.zone == NAN:
            return self._nan(tally, piece, y)
        bits = bits_of(y[0]), bits_of(y[1])
        mirrored = torch.equal(*bits)
        if not mirrored:
            broken = (bits[0] != bits[1]) & ~(y[0].isnan() & y[1].isnan())
            tally.add_where("oddness_breaks", broken, int(broken.sum()), piece.lo, (0,))
        floor = -1.0 if piece.binade is None else tally.front(piece).floor
        sides = [Side(piece, x, y[0], (0, sign))]
        if not mirrored:
            sides = [Side(piece, x, y[row], (row * sign,)) for row in (0, 1)]
        for side in sides:
            self._bound(tally, side)
            self._infinite(tally, side) if piece.zone == INFINITY else self._finite(tally, side, floor)
        return None

    def _nan(self, tally: Tally, piece: Piece, y: Rows) -> None:
        for row in (0, 1):
            wrong = ~y[row].isnan()
            count, signs = int(wrong.sum()), (row * self.domain.sign,)
            tally.add("correctly_rounded", piece.size - count)
            for name in ("wrong_specials", "violations"):
                tally.add_where(name, wrong, count, piece.lo, signs)

    def _infinite(self, tally: Tally, side: Side) -> None:
        ok, _, escalated = self._accept(side)
        for name in ("wrong_specials", "violations"):
            tally.add_where(name, ~ok, int((~ok).sum()), side.piece.lo, side.signs)
        right = tally.question.correctly_rounded(side.piece.lo, int(bits_of(side.y)[0]) & tally.out_mask)
        tally.add("correctly_rounded", right * len(side.signs))
        tally.add("escalated", escalated * len(side.signs))

    def _bound(self, tally: Tally, side: Side) -> None:
        """|y| <= c rounded to the output dtype; the gradient from 0 to the upstream gradient, which is 1."""
        low, high = (-self._limit, self._limit) if self.domain.pass_ == "forward" else (0.0, 1.0)
        least, most = side.y.aminmax()
        if not (low <= float(least) and float(most) <= high):
            broken = (side.y < low) | (side.y > high)
            tally.add_where("bound_breaks", broken, int(broken.sum()), side.piece.lo, side.signs)

    def _finite(self, tally: Tally, side: Side, floor: float) -> None:
        a, y = side.x.to(torch.float64), side.y.to(torch.float64)
        found = errors(self.domain, side.piece, a, y, self.subject.out_dtype, self.contract.gradient_unit)
        self._rounding(tally, side, found)
        out = self._rule(tally, side, found)
        if side.piece.zone == BELOW:
            unit = self.domain.cap * self.contract.forward_floor
            off = (y - a).abs_().div_(unit) if self.domain.pass_ == "forward" else found.error
            off = torch.where(off.isfinite(), round_errors(off), torch.inf)
            index = int((off == off.max()).nonzero()[0])
            tally.below(float(off[index]), side, index)
        else:
            self._worst(tally, side, found, out, floor)

    def _rounding(self, tally: Tally, side: Side, found: Errors) -> None:
        """Which results are the exact ones rounded once."""
        times, sure = len(side.signs), found.off < 0.5 - found.off_bound
        unsure = ~sure & (found.off <= 0.5 + found.off_bound) if found.off_bound else None
        if found.edge is not None:
            sure &= ~found.edge
            unsure = found.edge if unsure is None else unsure | found.edge
        bits = bits_of(side.y)
        if bool(
            bits.amin() < 0
        ):  # -0 where +0 is right; a negative result that is not zero is never within half an ulp
            sure &= bits >= 0
        tally.add("correctly_rounded", int(sure.sum()) * times)
        for index in [] if unsure is None else unsure.nonzero().flatten().tolist():
            got = int(bits[index]) & tally.out_mask
            right = tally.question.correctly_rounded(side.piece.lo + index, got)
            tally.add("correctly_rounded", right * times)
            tally.add("escalated", times)

    def _rule(self, tally: Tally, side: Side, found: Errors) -> Tensor | None:
        """Count what the "ulp" rule refuses or takes for a flush; gives back which results are never the worst.

        A result of FP32 that is within the tolerance for certain needs no more; the rest is the oracles' to judge.
        """
        if self._wide and found.edge is None and float(found.error.max()) <= self.allowed - 2.0 * found.bound:
            return None
        ok, flushed, escalated = self._accept(side)
        tally.add("escalated", escalated * len(side.signs))
        wrong = ~ok
        tally.add_where("violations", wrong, int(wrong.sum()), side.piece.lo, side.signs)
        tally.add("flushed", int(flushed.sum()) * len(side.signs))
        out = flushed | (ok & ~side.y.isfinite())
        return out if bool(out.any()) else None

    def _accept(self, side: Side) -> tuple[Tensor, Tensor, int]:
        """(ok, flushed, escalated) by the oracles."""
        grad = torch.ones_like(side.x) if self.domain.pass_ == "backward" else None
        found = accept("ulp", side.y, Truth.of(side.x, self.domain.cap, grad), self.contract, everywhere=True)
        return found.ok, found.flushed, found.escalated

    def _worst(self, tally: Tally, side: Side, found: Errors, out: Tensor | None, floor: float) -> None:
        """`floor`: what earlier pieces reach. The two sides of a piece do not come in the order of magnitudes."""
        front = tally.front(side.piece)
        error, kept = found.error, None
        if not math.isfinite(float(error.max())):
            error = torch.where(error.isfinite(), error, torch.inf)
        if found.edge is not None:
            certain = ~found.edge if out is None else ~found.edge & ~out
            unsure = found.edge if out is None else found.edge & ~out
            for index in unsure.nonzero().flatten().tolist():
                tally.contend(front, side, index, 0.0, math.inf)
            kept = certain.nonzero().flatten()
        elif out is not None:
            kept = (~out).nonzero().flatten()
        if kept is not None:
            error = error[kept]
        if not error.numel():
            return
        index, low, high = leading(error, found.bound, floor)
        index = index if kept is None else kept[index]
        for i, least, most in zip(index.tolist(), low.tolist(), high.tolist(), strict=True):
            tally.contend(front, side, i, least, most)


def bits_of(t: Tensor) -> Tensor:
    """The encodings of a contiguous tensor."""
    return t.view(INTEGER[t.element_size()])
