"""Who wrote what in a launch: programs run one after another here, and at the same time on a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from invariance.tiers.addresses import Extent
from invariance.tiers.faults import Race

_NOBODY = -1


class Writers:
    """For every byte of a launch's tensors the program that stored it last; a load by another program is a race.

    Two programs that store the same value to one place, as blocks that overlap do, are none. Atomic accesses are
    left out.
    """

    def __init__(self, extents: Iterable[Extent]) -> None:
        self.programs: list[Any] = []
        self.shadows = [
            (start, stop, np.full(stop - start, _NOBODY, dtype=np.int32)) for start, stop in _joined(extents)
        ]

    def enter(self, program: Any) -> None:
        """From here on this program runs."""
        self.programs.append(program)

    def access(self, what: str, addresses: np.ndarray, width: int, extent: Extent) -> None:
        """A load or a store of elements `width` bytes wide; raises Race."""
        me = len(self.programs) - 1
        for start, stop, shadow in self.shadows:
            here = addresses[(addresses >= np.uint64(start)) & (addresses < np.uint64(stop))]
            at = (here - np.uint64(start)).astype(np.int64)
            if what == "store":
                for byte in range(width):
                    shadow[at + byte] = me
            elif what == "load":
                writers = shadow[at]
                met = (writers != _NOBODY) & (writers != me)
                if met.any():
                    address, writer = int(here[met].flat[0]), int(writers[met].flat[0])
                    raise Race(what, extent, extent.offset(address), self.programs[me], self.programs[writer])


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
