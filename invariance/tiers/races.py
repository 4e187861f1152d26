"""Who met whom in a launch: programs run one after another here, and at the same time on a GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import triton.runtime.interpreter as triton_interpreter

from invariance.tiers.addresses import Extent
from invariance.tiers.faults import Race
from invariance.tiers.patches import Patches

_NOBODY = -1


class _Marks:
    """For every byte of a stretch the program that was there last, and another one that was there before it."""

    def __init__(self, size: int) -> None:
        self.last = np.full(size, _NOBODY, dtype=np.int32)
        self.before = np.full(size, _NOBODY, dtype=np.int32)

    def add(self, at: np.ndarray, me: int) -> None:
        new = at[self.last[at] != me]
        self.before[new] = self.last[new]
        self.last[at] = me

    def others(self, at: np.ndarray, me: int) -> np.ndarray:
        """At each place a program that is not me, or nobody."""
        last = self.last[at]
        others: np.ndarray = np.where(last == me, self.before[at], last)
        return others


class _Stretch:
    """Bytes that tensors of the launch lie in."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * (stop - start)).from_address(start))
        self.writers, self.readers = _Marks(stop - start), _Marks(stop - start)

    def places(self, addresses: np.ndarray) -> np.ndarray:
        """Those of the addresses that lie here, counted from the start."""
        here = addresses[(addresses >= np.uint64(self.start)) & (addresses < np.uint64(self.stop))]
        places: np.ndarray = (here - np.uint64(self.start)).astype(np.int64)
        return places


@dataclass(frozen=True)
class _Store:
    """A store that is about to happen: which bytes, and what they are before it."""

    stretch: _Stretch
    at: np.ndarray
    old: np.ndarray
    extent: Extent


class Meetings:
    """For every byte of a launch's tensors the programs that stored and that loaded it; where they meet is a race.

    A load meets what another program stored last. A store meets what another program stored or loaded if it changes
    it: programs that store the same value to one place, as blocks that overlap or a common flag, are none. Atomic
    accesses are left out.
    """

    def __init__(self, extents: Iterable[Extent]) -> None:
        self.programs: list[Any] = []
        self._stretches = [_Stretch(start, stop) for start, stop in _joined(extents)]
        self._stores: list[_Store] = []

    def enter(self, program: Any) -> None:
        """From here on this program runs."""
        self.settle()
        self.programs.append(program)

    def access(self, what: str, addresses: np.ndarray, width: int, extent: Extent) -> None:
        """A load or a store of elements `width` bytes wide, before it happens; raises Race."""
        self.settle()
        me = len(self.programs) - 1
        for stretch in self._stretches:
            first = stretch.places(addresses)
            at = (first[..., None] + np.arange(width)).reshape(-1)
            if what == "store" and at.size:
                self._stores.append(_Store(stretch, at, stretch.bytes[at], extent))
            elif what == "load":
                self._meet("load", "stored", stretch, at, stretch.writers.last[at], extent)
                stretch.readers.add(at, me)

    def settle(self) -> None:
        """Judge the last store by what it changed; asked before whatever follows. Raises Race."""
        stores, self._stores = self._stores, []
        me = len(self.programs) - 1
        for store in stores:
            stretch = store.stretch
            changed = store.at[stretch.bytes[store.at] != store.old]
            for marks, did in ((stretch.writers, "stored"), (stretch.readers, "loaded")):
                self._meet("store", did, stretch, changed, marks.others(changed, me), store.extent)
            stretch.writers.add(store.at, me)

    def _meet(
        self, what: str, did: str, stretch: _Stretch, at: np.ndarray, who: np.ndarray, extent: Extent
    ) -> None:
        me = len(self.programs) - 1
        met = (who != _NOBODY) & (who != me)
        if met.any():
            offset = extent.offset(stretch.start + int(at[met][0]))
            raise Race(what, extent, offset, self.programs[me], self.programs[int(who[met][0])], did)


def check_lanes(patches: Patches) -> None:
    """Have the interpreter raise Race where lanes of one store give different values to one address."""
    builder = triton_interpreter.interpreter_builder
    store = builder.create_masked_store

    def create_masked_store(pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        active = np.broadcast_to(np.asarray(mask.data), pointers.data.shape)
        addresses = pointers.data[active]
        if not (addresses[1:] > addresses[:-1]).all():  # which nearly all do
            at = _at_odds(addresses, value.data[active])
            if at is not None:
                extent = getattr(pointers, "extent", None)
                offset = None if extent is None else extent.offset(at)
                raise Race("store", extent, offset, builder.grid_idx, None)
        return store(pointers, value, mask, *rest)

    patches.set(builder, "create_masked_store", create_masked_store)


def _at_odds(addresses: np.ndarray, values: np.ndarray) -> int | None:
    """An address that has several values."""
    order = np.argsort(addresses, kind="stable")
    found, bits = addresses[order], values.view(f"u{values.itemsize}")[order]
    differ = (found[1:] == found[:-1]) & (bits[1:] != bits[:-1])
    return int(found[1:][differ][0]) if differ.any() else None


def _joined(extents: Iterable[Extent]) -> Iterator[tuple[int, int]]:
    """The stretches of memory that the tensors lie in; those that overlap are one."""
    low = high = 0
    for start, stop in sorted((e.start, e.stop) for e in extents if e.stop > e.start):
        if start < high:
            high = max(high, stop)
            continue
        if high:
            yield low, high
        low, high = start, stop
    if high:
        yield low, high
