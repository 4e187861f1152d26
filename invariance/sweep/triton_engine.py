"""The sweep of FP32 on a GPU: generate the patterns, call the candidate, verify, list what is left (`verify_kernels`).

The host settles the lists with the exact oracle at the end. What the kernel marks as unusual goes through the torch
engine, on the same results, so that both engines give the same certificate. The host looks at the marks of a call
while the device is at the next one.
"""

from __future__ import annotations

import contextlib
import itertools
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

CALL = 1 << 26
"""Magnitudes of one call: 2**27 inputs, 512 MiB a tensor; the host is done with a call before the device is."""
CAPACITY = 1 << 20
BINS = 1 << 10
"""Binades of x/c, from -512 on; 0 for none."""


class Unsuited(Exception):
    """The torch engine has to do it: too much is undecided for the lists, or results share memory with later ones."""


@dataclass(frozen=True)
class Tiles:
    """The tiles of a range: first magnitude, size, zone code and bin (see BINS) as int32 arrays."""

    lo: np.ndarray
    size: np.ndarray
    zone: np.ndarray
    bin: np.ndarray

    @classmethod
    def of(cls, domain: Domain, lo: int, hi: int, tile: int) -> Tiles:
        """Magnitudes lo to hi - 1 cut at zones, binades and multiples of `tile`."""
        pieces = domain.pieces(lo, hi, domain.size)
        zones = np.array([places.ZONES.get(p.zone, places.SPECIAL) for p in pieces], dtype=np.int32)
        bins = np.array([0 if p.binade is None else p.binade + BINS // 2 for p in pieces], dtype=np.int32)
        # No piece by itself: the device waits for the first tiles.
        edges, grid = np.array([p.lo for p in pieces]), np.arange(-(-lo // tile) * tile, hi, tile)
        between = edges[edges % tile != 0]
        starts = np.insert(grid, np.searchsorted(grid, between), between)
        counts = np.diff(np.searchsorted(starts, edges), append=len(starts))
        sizes = np.diff(starts, append=hi).astype(np.int32)
        return cls(starts.astype(np.int32), sizes, np.repeat(zones, counts), np.repeat(bins, counts))

    def runs(self, first: int, last: int) -> list[tuple[int, int, int]]:
        """(zone code, first, last) of neighbouring tiles of one zone among tiles first to last - 1."""
        cuts = np.flatnonzero(np.diff(self.zone[first:last])) + first + 1
        edges = [first, *cuts.tolist(), last]
        return [(int(self.zone[a]), a, b) for a, b in itertools.pairwise(edges)]


class Lists:
    """What the kernels find, on the device: a value a tile, and lists of single inputs."""

    def __init__(self, tiles: int, device: str) -> None:
        def new(size: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self.key = new(tiles, torch.float64)
        self.at, self.got, self.sure, self.open, self.rounded, self.flushed, self.dirty = (
            new(tiles, torch.int32) for _ in range(7)
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


class Arriving:
    """A tensor on its way to the host, behind what was launched before."""

    def __init__(self, source: Tensor) -> None:
        self._copy = source.to("cpu", non_blocking=True)
        on_gpu = source.device.type == "cuda"
        self._event = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]  # torch's
        if self._event is not None:
            self._event.record()

    def __call__(self) -> np.ndarray:
        """The values, once they are there."""
        if self._event is not None:
            self._event.synchronize()
        return self._copy.numpy()


@dataclass(frozen=True)
class Call:
    """One call of the candidate: results from magnitude `start`, and the marks of its tiles from `first`."""

    start: int
    first: int
    y: Tensor
    dirty: Arriving


class TritonEngine(TorchEngine):
    """As TorchEngine, for FP32 inputs and results on a device that Triton compiles for."""

    call_size, tile, unsuited = CALL, kernels.TILE, Unsuited

    def sweep(self, key: Key, lo: int, hi: int, announce: Announce = silent) -> Certificate:
        """As TorchEngine.sweep; lo and hi are multiples of 2**16."""
        if self.domain.dtype != torch.float32 or self.subject.out_dtype != torch.float32:
            return super().sweep(key, lo, hi, announce)
        tally = self.tally()
        on_gpu = torch.device(self.subject.device).type == "cuda"
        try:
            with torch.cuda.device(self.subject.device) if on_gpu else contextlib.nullcontext():
                tiles, lists = self.scan(tally, lo, hi, announce)
            self._gather(tally, tiles, lists)
        except Unsuited:
            return super().sweep(key, lo, hi, announce)
        return tally.certificate(key, self.domain, lo, hi)

    def scan(self, tally: Tally, lo: int, hi: int, announce: Announce = silent) -> tuple[Tiles, Lists]:
        """All that the device does for magnitudes lo to hi - 1; what is left is bringing it in. Raises Unsuited."""
        tiles = Tiles.of(self.domain, lo, hi, self.tile)
        lists = Lists(len(tiles.lo), self.subject.device)
        table = [
            torch.from_numpy(column).to(self.subject.device) for column in (tiles.lo, tiles.size, tiles.bin)
        ]
        table.append(self._constants())
        cuts, edges = [*range(lo, hi, self.call_size), hi], []
        numbers = [*np.searchsorted(tiles.lo, np.array(cuts[:-1], dtype=np.int32)).tolist(), len(tiles.lo)]
        before: Call | None = None
        for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
            announce(before.start if before else start, stop)
            first, last = numbers[i], numbers[i + 1]
            y = self._call(start, stop)
            if before and y.untyped_storage().data_ptr() == before.y.untyped_storage().data_ptr():
                raise Unsuited  # the candidate keeps its result in memory of its own: the last one is gone
            self._launch(y, start, tiles.runs(first, last), table, lists)
            call = Call(start, first, y, Arriving(lists.dirty[first:last]))
            if before:
                self._unusual(tally, tiles, before)
            edges.append(y[:, :: y.shape[1] - 1].clone())
            before = call
        if before:
            self._unusual(tally, tiles, before)
        self._seams(tally, cuts, edges)
        return tiles, lists

    def _seams(self, tally: Tally, cuts: list[int], edges: list[Tensor]) -> None:
        """The order of results across calls, and with the upper neighbour of the range."""
        if cuts[-1] < self.domain.size:
            edges = [*edges, self.results(cuts[-1])[1][:, [0, -1]]]
        ends = torch.stack(edges, 1).cpu()
        before, after = (self.fold(t.contiguous()) for t in (ends[:, :-1, 1], ends[:, 1:, 0]))
        broken = self._inverted(before[0], after[0]) | self._inverted(before[1], after[1])
        for i in broken.nonzero().flatten().tolist():
            if cuts[i + 1] <= self.domain.infinity:
                one = slice(i, i + 1)
                self._seam(
                    tally, cuts[i + 1] - 1, (before[0][one], before[1][one]), (after[0][one], after[1][one])
                )

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

    def _call(self, start: int, stop: int) -> Tensor:
        """The results of one call: a row for positive and a row for negative inputs."""
        half = stop - start
        x = torch.empty(2 * half, dtype=torch.int32, device=self.subject.device)
        kernels.generate_kernel[(half // 1024,)](x, start, half, BLOCK=1024)
        return self.subject.call(x.view(torch.float32)).view(2, -1)

    def _launch(
        self, y: Tensor, start: int, runs: list[tuple[int, int, int]], table: list[Tensor], lists: Lists
    ) -> None:
        """Verify the tiles of one call, and list what is left open; a launch for each zone."""
        pass_ = self.domain.pass_
        shape = {"BLOCK": kernels.BLOCK, "ITERATIONS": -(-self.tile // kernels.BLOCK)}
        shape["BACKWARD"] = int(pass_ == "backward")
        bits = bits_of(y)
        by_tile = [getattr(lists, name) for name in _BY_TILE]
        some = lists.key, lists.at, lists.got, lists.sure, lists.open, lists.dirty, lists.floors
        for zone, first, last in runs:
            bounds = {"BOUND": places.BOUNDS[pass_][zone], "OFF_BOUND": places.OFF_BOUNDS[pass_][zone]}
            how = {"ZONE": zone, **bounds, **shape}
            kernels.verify_kernel[(last - first,)](
                bits, start, y.shape[1], first, *table, *by_tile, lists.floors, **how
            )
            if zone != places.SPECIAL:
                kernels.list_kernel[(last - first,)](
                    bits, start, first, *table, *some, *lists.listed, CAPACITY, **how
                )

    def _unusual(self, tally: Tally, tiles: Tiles, call: Call) -> None:
        """Judge the dirty tiles of a call by torch operations."""
        dirty = call.dirty() > 0
        for piece in self._joined(tiles, call.first, dirty):
            a, b = piece.lo - call.start, piece.hi - call.start
            x = torch.arange(piece.lo, piece.hi, dtype=torch.int32, device=call.y.device).view(torch.float32)
            self.piece(tally, piece, x, self.fold(call.y[:, a:b]))
            tile = int(np.searchsorted(tiles.lo, piece.lo)) - call.first
            if tile > 0 and not dirty[tile - 1]:  # a clean tile looks at its neighbour's positive inputs only
                a -= 1
            ordered = min(b + 1, call.y.shape[1], self.domain.infinity + 1 - call.start)
            if ordered > a + 1:
                self._monotone(tally, call.start + a, self.fold(call.y[:, a:ordered]))

    def _joined(self, tiles: Tiles, first: int, dirty: np.ndarray) -> list[Piece]:
        """Dirty tiles as pieces, neighbours of one zone and binade made one."""
        found = dirty.nonzero()[0] + first
        apart = (np.diff(found) > 1) | (np.diff(tiles.zone[found]) != 0) | (np.diff(tiles.bin[found]) != 0)
        runs = np.split(found, np.flatnonzero(apart) + 1) if len(found) else []
        pieces = []
        for run in runs:
            lo, hi = int(tiles.lo[run[0]]), int(tiles.lo[run[-1]]) + int(tiles.size[run[-1]])
            pieces += self.domain.pieces(lo, hi, self.domain.size)
        return pieces

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
        self._listed(tally, tiles, lists)

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

    def _listed(self, tally: Tally, tiles: Tiles, lists: Lists) -> None:
        """Single inputs: roundings for the exact oracle, and contenders."""
        count = int(lists.count)
        if count > CAPACITY:
            raise Unsuited
        columns = [
            column[:count].cpu().numpy()
            for column in (lists.places, lists.results, lists.errors, lists.kinds)
        ]
        order = np.argsort(columns[0])
        tile = np.searchsorted(tiles.lo, columns[0][order], side="right") - 1
        columns = [column[order] for column in columns] + [tiles.zone[tile], tiles.bin[tile]]
        forward = self.domain.pass_ == "forward"
        for pattern, bits, error, kind, zone, bin_ in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            got = bits & 0xFFFFFFFF
            if kind & kernels.ROUND_IT.value:
                tally.add("correctly_rounded", 2 * tally.question.correctly_rounded(pattern, got))
                tally.add("escalated", 2)
            if kind & kernels.CONTEND.value:
                unknown = forward and kind & kernels.UNKNOWN.value
                bound = places.BOUNDS[self.domain.pass_][zone]
                low, high = (0.0, float("inf")) if unknown else rounding_range(error, bound)
                tally.contender(bin_ - BINS // 2, Contender(low, high, pattern, got))


_BY_TILE = ("key", "at", "got", "sure", "open", "rounded", "flushed", "dirty", "positive", "negative")
