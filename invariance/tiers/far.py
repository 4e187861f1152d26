"""Tensors of more than 2^31 elements without their memory: what PyTorch does to them costs and computes nothing."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from invariance.tiers.addresses import Extent
from invariance.tiers.orders import Grid
from invariance.tiers.queues import Queues

LARGEST = 1 << 28  # elements that an operation of PyTorch may take or make before it is left out
SLACK = 1 << 20  # elements at the end of a result that may be room for a block: none is larger
_LATE = 64  # programs at the end of a grid that run where the last elements are still missing
ROUNDS = 3_000  # accesses of one program, a few seconds; a `while` over everything cannot be cut, and is given up there

# What it makes holds zeros or nothing, as virtual memory does; whatever else is left out would have computed.
_EMPTY = ("empty", "new_empty", "zeros", "new_zeros")


def virtual_tensor(elements: int, dtype: torch.dtype) -> Tensor:
    """A 1-D tensor of zeros whose memory exists only where it is touched, for tests past 2**31 elements.

    Linux only; raises OSError where the address space is limited.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    return torch.frombuffer(mmap.mmap(-1, elements * dtype.itemsize, flags=flags), dtype=dtype)


def virtual(shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
    """The same in a shape and with strides of its own."""
    reach = sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) + 1
    return virtual_tensor(max(1, reach), dtype).as_strided(tuple(shape), tuple(stride))


class Far(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's
    """While it is on, operations on far tensors give virtual ones of the right form.

    `computed`: whether any of them would have computed values, so that results hold nothing to compare.
    `program`: the one that runs. `reach`: of each far tensor that kernels stored to, the address behind the farthest
    element that they stored. `queues`: the counters of the launch that runs.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.computed = False
        self.reach: dict[tuple[int, int], int] = {}
        self._extents: dict[tuple[int, int], Extent] = {}
        self.program: Grid = (0, 0, 0)
        self._launch: dict[tuple[int, int], dict[Grid, int]] = {}
        self.queues = Queues()

    def begin(self) -> None:
        """A launch begins."""
        self._launch, self.queues = {}, Queues()

    def stored(self, addresses: np.ndarray, width: int, extent: Extent) -> None:
        """A program stores there."""
        if addresses.size and extent.elements > LARGEST:
            end, place = int(addresses.max()) + width, (extent.start, extent.stop)
            self._extents[place] = extent
            self.reach[place] = max(self.reach.get(place, 0), end)
            self.queues.stored(end, place)
            mine = self._launch.setdefault(place, {})
            mine[self.program] = max(mine.get(self.program, 0), end)

    def further(self, grid: Grid) -> Iterator[Grid]:
        """More programs of the launch that ran, as long as the end of what it stores to is not reached.

        The one that gets there if the first axis goes on as it begins, as where each takes every n-th block or an
        equal share; then the last ones.
        """
        for place, ends in self._launch.items():
            first, second = ends.get((0, 0, 0), 0), ends.get((1, 0, 0), 0)
            if first and second > first:
                program = -((first - place[1]) // (second - first))
                if self.reach[place] < place[1] and program < grid[0]:
                    yield (program, grid[1] - 1, grid[2] - 1)
        for back in range(min(_LATE, grid[0])):
            if all(self.reach[place] == place[1] for place in self._launch):
                return
            yield (grid[0] - 1 - back, grid[1] - 1, grid[2] - 1)

    def missing(self) -> str | None:
        """What no kernel stored, though it stored to the tensor: its end, by more than a block."""
        for place, extent in self._extents.items():
            last = extent.offset(self.reach[place]) - 1
            if last < extent.elements - SLACK:
                return f"no program stores past element offset {last} of {extent}"
        return None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not (_far(args) or _far(kwargs.values())):
            return func(*args, **kwargs)
        with self:  # in inference mode `contiguous` comes here whole, marked as a view, and would copy it all
            made = func.decompose(*args, **kwargs)
        if made is not NotImplemented:
            return made
        if func.is_view:
            return func(*args, **kwargs)
        name = func._schema.name.partition("::")[2]
        self.computed |= not name.startswith(_EMPTY)
        if func._schema.is_mutable:
            return kwargs.get("out", args[0])
        kwargs = {**kwargs, "device": "meta"} if "device" in kwargs else kwargs
        if not any(isinstance(arg, Tensor) for arg in args):
            kwargs["device"] = "meta"
        form = func(*tree_map(_on_meta, args), **tree_map(_on_meta, kwargs))
        return tree_map(lambda t: virtual(t.shape, t.stride(), t.dtype) if isinstance(t, Tensor) else t, form)


def _far(values: Any) -> bool:
    """Whether a large tensor, or the sizes of one, are among the arguments."""
    for value in values:
        if isinstance(value, Tensor):
            if value.numel() > LARGEST:
                return True
        elif isinstance(value, list | tuple) and value:
            if all(isinstance(size, int) for size in value):
                if np.prod(np.array(value, dtype=np.float64)) > LARGEST:
                    return True
            elif _far(value):
                return True
    return False


def _on_meta(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
