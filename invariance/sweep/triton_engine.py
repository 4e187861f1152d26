"""The sweep of FP32 on a GPU: three launches and a look at what is left, for each call of the candidate.

Generate the patterns, call the candidate, verify (`verify_kernels`); then list what may be a binade's worst. The
host settles the lists with the exact oracle at the end. What the kernel marks as unusual goes through the torch
engine, on the same results, so that both engines give the same certificate.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from invariance.sweep import kernel_math as places
from invariance.sweep import verify_kernels as kernels
from invariance.sweep.certificate import Certificate, Key
from invariance.sweep.domain import RANGE, Domain, Piece
from invariance.sweep.errors import far_spacing
from invariance.sweep.settle import Contender, rounding_range
from invariance.sweep.tally import Tally
from invariance.sweep.torch_engine import Announce, TorchEngine, bits_of, silent

CALL = 1 << 25
"""Magnitudes of one call: 2**26 inputs, 256 MiB a tensor."""
CAPACITY = 1 << 20
_BOUNDS = {
    "forward": {"tiny": 2.0**-46, "middle": 2.0**-20, "upper": 2.0**-39, "far": 2.0**-60},
    "backward": {"tiny": 2.0**-46, "middle": 2.0**-19, "upper": 2.0**-39, "far": 2.0**-60},
}


class Overflow(Exception):
    """More inputs are undecided than the lists hold: the torch engine has to do it."""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a range: first magnitude, size, zone code and binade (+ 200, 0 for none) as int32 arrays."""

    lo: np.ndarray
    size: np.ndarray
    zone: np.ndarray
    bin: np.ndarray

    @classmethod
    def of(cls, domain: Domain, lo: int, hi: int, tile: int) -> Tiles:
        """Magnitudes lo to hi - 1 cut at zones, binades and multiples of `tile`."""
        starts = domain.starts
        first = np.array([start for start, _, _ in starts])
        cuts = np.unique(np.concatenate([np.arange(lo, hi, tile), first[(first > lo) & (first < hi)], [lo]]))
        which = np.searchsorted(first, cuts, side="right") - 1
        zones = np.array([kernels.ZONES.get(zone, kernels.SPECIAL) for _, zone, _ in starts])
        bins = np.array([0 if binade is None else binade + BINS // 2 for _, _, binade in starts])
        size = np.diff(np.append(cuts, hi))
        return cls(*(a.astype(np.int32) for a in (cuts, size, zones[which], bins[which])))


BINS = 1 << 10


class Lists:
    """What the kernels find, on the device: a value a tile, and lists of single inputs."""

    def __init__(self, tiles: int, device: str) -> None:
        def new(size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self.key = new(tiles, torch.float64)
        self.at, self.got, self.sure, self.rounded, self.flushed, self.dirty = (
            new(tiles, torch.int32) for _ in range(6)
        )
        self.positive, self.negative = new(tiles, torch.int64), new(tiles, torch.int64)
        self.floors = new(BINS, torch.int64)
        self.count = new(1, torch.int32)
        self.places, self.results = new(CAPACITY, torch.int32), new(CAPACITY, torch.int32)
        self.errors, self.kinds = new(CAPACITY, torch.float64), new(CAPACITY, torch.int32)

    @property
    def listed(self) -> tuple[Tensor, ...]:
        """The arguments of a kernel that lists inputs."""
        return self.count, self.places, self.results, self.errors, self.kinds


class TritonEngine(TorchEngine):
    """As TorchEngine, for FP32 inputs and results on a device that Triton compiles for."""

    call_size, tile = CALL, kernels.TILE

    def sweep(self, key: Key, lo: int, hi: int, announce: Announce = silent) -> Certificate:
        """As TorchEngine.sweep; lo and hi are multiples of 2**16."""
        if self.domain.dtype != torch.float32 or self.subject.out_dtype != torch.float32:
            return super().sweep(key, lo, hi, announce)
        tally = self.tally()
        on_gpu = torch.device(self.subject.device).type == "cuda"
        with torch.cuda.device(self.subject.device) if on_gpu else contextlib.nullcontext():
            tiles, lists = self.scan(tally, lo, hi, announce)
        try:
            self._gather(tally, tiles, lists)
        except Overflow:
            return super().sweep(key, lo, hi, announce)
        return tally.certificate(key, self.domain, lo, hi)

    def scan(self, tally: Tally, lo: int, hi: int, announce: Announce = silent) -> tuple[Tiles, Lists]:
        """All that the device does for magnitudes lo to hi - 1; what is left is bringing it in."""
        tiles = Tiles.of(self.domain, lo, hi, self.tile)
        lists = Lists(len(tiles.lo), self.subject.device)
        table = [torch.from_numpy(getattr(tiles, name)).to(self.subject.device) for name in vars(tiles)]
        table.append(self._constants())
        starts, edges = range(lo, hi, self.call_size), []
        for start in starts:
            stop = min(start + self.call_size, hi)
            announce(start, stop)
            first, last = (int(i) for i in np.searchsorted(tiles.lo, [start, stop]))
            x, y = self._call(start, stop)
            self._launch(y, start, (first, last), table, lists)
            self._unusual(tally, tiles, lists.dirty[first:last].cpu().numpy() > 0, start, x, y)
            edges.append(torch.stack([y[:, 0], y[:, -1]], 1))
        self._seams(tally, [*starts, hi], edges)
        return tiles, lists

    def _seams(self, tally: Tally, cuts: list[int], edges: list[Tensor]) -> None:
        """The order of results across calls, and with the upper neighbour of the range."""
        if cuts[-1] < self.domain.size:
            edges = [*edges, self.results(cuts[-1])[1][:, [0, -1]]]
        ends = torch.stack(edges, 1).contiguous().cpu()
        for i, cut in enumerate(cuts[1:], 1):
            if cut <= self.domain.infinity:
                before, after = (self.fold(t.contiguous()) for t in (ends[:, i - 1, 1:], ends[:, i, :1]))
                self._seam(tally, cut - 1, before, after)

    def _constants(self) -> Tensor:
        cap = self.domain.cap
        values = [0.0] * places.CONSTANTS
        values[places.CAP.value] = cap
        values[places.INVERSE_CAP.value] = 1.0 / cap
        values[places.FAR_INVERSE.value] = 1.0 / far_spacing(cap, torch.float32)
        values[places.POWER_OF_TWO.value] = float(
            Fraction(cap).numerator & (Fraction(cap).numerator - 1) == 0
        )
        values[places.FLOOR.value] = cap * self.contract.forward_floor
        values[places.ALLOWED.value] = self.allowed
        values[places.INVERSE_UNIT.value] = 1.0 / self.contract.gradient_unit
        values[places.LIMIT.value] = self.contract.forward_ulps
        return torch.tensor(values, dtype=torch.float64, device=self.subject.device)

    def _call(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """(x, y) of one call: a row of positive and a row of negative inputs each."""
        half = stop - start
        x = torch.empty(2 * half, dtype=torch.int32, device=self.subject.device)
        kernels.generate_kernel[(half // 1024,)](x, start, half, BLOCK=1024)
        values = x.view(torch.float32)
        return values.view(2, -1), self.subject.call(values).view(2, -1)

    def _launch(
        self, y: Tensor, start: int, span: tuple[int, int], table: list[Tensor], lists: Lists
    ) -> None:
        """Verify the tiles of one call, and list the contenders."""
        shape = {"BLOCK": kernels.BLOCK, "ITERATIONS": self.tile // kernels.BLOCK}
        shape["BACKWARD"] = int(self.domain.pass_ == "backward")
        bits, first, grid = bits_of(y), span[0], (span[1] - span[0],)
        tail = *lists.listed, CAPACITY
        by_tile = (getattr(lists, name) for name in _BY_TILE)
        kernels.verify_kernel[grid](
            bits, start, y.shape[1], first, *table, *by_tile, lists.floors, *tail, **shape
        )
        some = lists.key, lists.sure, lists.dirty, lists.floors
        kernels.collect_kernel[grid](bits, start, first, *table, *some, *tail, **shape)

    def _unusual(
        self, tally: Tally, tiles: Tiles, dirty: np.ndarray, start: int, x: Tensor, y: Tensor
    ) -> None:
        """Judge the dirty tiles of a call by torch operations."""
        first = int(np.searchsorted(tiles.lo, start))
        for piece in self._joined(tiles, first, dirty):
            a, b = piece.lo - start, piece.hi - start
            self.piece(tally, piece, x[0, a:b], self.fold(y[:, a:b]))
            tile = int(np.searchsorted(tiles.lo, piece.lo)) - first
            if tile > 0 and not dirty[tile - 1]:  # a clean tile looks at its neighbour's positive inputs only
                a -= 1
            ordered = min(b + 1, y.shape[1], self.domain.infinity + 1 - start)
            if ordered > a + 1:
                self._monotone(tally, start + a, self.fold(y[:, a:ordered]))

    def _joined(self, tiles: Tiles, first: int, dirty: np.ndarray) -> list[Piece]:
        """Dirty tiles as pieces, neighbours of one zone and binade made one."""
        found: list[Piece] = []
        for i in dirty.nonzero()[0] + first:
            lo, hi = int(tiles.lo[i]), int(tiles.lo[i]) + int(tiles.size[i])
            (piece,) = self.domain.pieces(lo, hi, self.domain.size)
            if (
                found
                and found[-1].hi == lo
                and (found[-1].zone, found[-1].binade) == (piece.zone, piece.binade)
            ):
                piece = Piece(found.pop().lo, hi, piece.zone, piece.binade)
            found.append(piece)
        return found

    def _gather(self, tally: Tally, tiles: Tiles, lists: Lists) -> None:
        """Bring in what the kernels found of the clean tiles."""
        host = {name: getattr(lists, name).cpu().numpy() for name in _BY_TILE}
        clean = host["dirty"] == 0
        tally.add("correctly_rounded", 2 * int(host["rounded"][clean].sum(dtype=np.int64)))
        tally.add("flushed", 2 * int(host["flushed"][clean].sum(dtype=np.int64)))
        index, starts = np.unique(tiles.lo // RANGE, return_index=True)
        sums = [
            np.add.reduceat(host[name].view(np.uint64), starts).tolist() for name in ("positive", "negative")
        ]
        for i, positive, negative in zip(index.tolist(), *sums, strict=True):
            tally.fingerprint(i * RANGE, positive, negative)
        self._tops(tally, tiles, host, clean)
        self._listed(tally, tiles, lists, clean)

    def _tops(self, tally: Tally, tiles: Tiles, host: dict[str, np.ndarray], clean: np.ndarray) -> None:
        """The worst results of the tiles in which that one is certain; of each bin the first that no other exceeds."""
        (done,) = np.nonzero(clean & (host["sure"] > 0))
        order = done[np.lexsort((tiles.lo[done], -host["key"][done], tiles.bin[done]))]
        _, first = np.unique(tiles.bin[order], return_index=True)
        for i in order[first].tolist():
            error, pattern, got = float(host["key"][i]), int(host["at"][i]), int(host["got"][i]) & 0xFFFFFFFF
            if tiles.bin[i] == 0:
                tally.below_at(error, pattern, got)
            else:
                tally.contender(int(tiles.bin[i]) - BINS // 2, Contender(error, error, pattern, got))

    def _listed(self, tally: Tally, tiles: Tiles, lists: Lists, clean: np.ndarray) -> None:
        """Single inputs: roundings for the exact oracle, and contenders."""
        count = int(lists.count)
        if count > CAPACITY:
            raise Overflow
        columns = (lists.places, lists.results, lists.errors, lists.kinds)
        rows = zip(*(column[:count].cpu().numpy().tolist() for column in columns), strict=True)
        names = {code: name for name, code in kernels.ZONES.items()}
        for pattern, bits, error, kind in sorted(rows):
            tile = int(np.searchsorted(tiles.lo, pattern, side="right")) - 1
            if not clean[tile]:
                continue
            got = bits & 0xFFFFFFFF
            if kind & kernels.ROUND_IT.value:
                tally.add("correctly_rounded", 2 * tally.question.correctly_rounded(pattern, got))
                tally.add("escalated", 2)
            if kind & kernels.CONTEND.value:
                edge = bool(kind & kernels.ROUND_IT.value)
                bound = _BOUNDS[self.domain.pass_][names[int(tiles.zone[tile])]]
                low, high = (0.0, float("inf")) if edge else rounding_range(error, bound)
                tally.contender(int(tiles.bin[tile]) - BINS // 2, Contender(low, high, pattern, got))


_BY_TILE = ("key", "at", "got", "sure", "rounded", "flushed", "dirty", "positive", "negative")
