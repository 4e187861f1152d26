"""The address check: every lane of an access must fall inside the tensor that its pointer came from, and be aligned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton.runtime.interpreter as triton_interpreter
from torch import Tensor

from invariance.tiers.faults import Misaligned, OutOfBounds
from invariance.tiers.patches import Patches

_ACCESSES = (  # method, where its pointers and its mask stand, what it is called in the message
    ("create_masked_load", 0, 1, "load"),
    ("create_masked_store", 0, 2, "store"),
    ("create_atomic_rmw", 1, 3, "atomic"),
    ("create_atomic_cas", 0, None, "atomic"),
)
# What makes a pointer out of a pointer: the result points into the same tensor.
_DERIVATIONS = (
    "create_addptr", "create_splat", "create_broadcast", "create_expand_dims", "create_reshape", "create_trans",
    "create_bitcast",
)  # fmt: skip
# Blocks of a tensor, whose pointers are made when it is accessed. Triton 3.6 has both, 3.9 descriptors alone.
_BLOCKS = ("TensorDescHandle", "BlockPointerHandle")


@dataclass(frozen=True)
class Extent:
    """The bytes ``[start, stop)`` from the first to the last element of a tensor argument."""

    name: str
    start: int
    stop: int
    dtype: torch.dtype

    @classmethod
    def of(cls, name: str, tensor: Tensor) -> Extent:
        """From the first to the last element of ``tensor`` as viewed, gaps between its strides included."""
        reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        elements = reach + 1 if tensor.numel() else 0
        start = tensor.data_ptr()
        return cls(name, start, start + elements * tensor.element_size(), tensor.dtype)

    @property
    def elements(self) -> int:
        """How many lie between the ends."""
        return (self.stop - self.start) // self.dtype.itemsize

    def outside(self, pointers: np.ndarray, width: int) -> np.ndarray:
        """Which of the addresses (uint64) have a byte of their ``width`` outside."""
        inside = (pointers >= np.uint64(self.start)) & (pointers + np.uint64(width) <= np.uint64(self.stop))
        outside: np.ndarray = np.logical_not(inside)
        return outside

    def offset(self, address: int) -> int:
        """Elements from the first one to an address, which may lie outside."""
        return (address - self.start) // self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name} ({self.dtype}, {self.elements} elements)"


# Called with each access that lies inside: what it is, its active addresses, the bytes of an element, a tensor.
Watch = Callable[[str, np.ndarray, int, Extent], None]


def check_accesses(patches: Patches, extents: Callable[[], Sequence[Extent]], watch: Watch) -> None:
    """Have the interpreter check each access against the extents of the launch that is running."""
    builder = triton_interpreter.interpreter_builder
    for method in _DERIVATIONS:
        patches.set(builder, method, _deriving(getattr(builder, method)))
    for kind in filter(None, (getattr(triton_interpreter, name, None) for name in _BLOCKS)):
        patches.set(kind, "materialize_pointers", _of_its_base(kind.materialize_pointers))
    for method, pointers_at, mask_at, what in _ACCESSES:
        patches.set(
            builder, method, _checked(getattr(builder, method), pointers_at, mask_at, what, extents, watch)
        )


def mark(handle: Any, extent: Extent) -> None:
    """Remember at a pointer's handle which tensor it points into."""
    handle.extent = extent


def _deriving(original: Callable[..., Any]) -> Callable[..., Any]:
    def derive(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        for arg in args:
            if hasattr(arg, "extent"):
                result.extent = arg.extent
                break
        return result

    return derive


def _of_its_base(original: Callable[..., Any]) -> Callable[..., Any]:
    def materialize_pointers(block: Any, *args: Any) -> Any:
        pointers, mask = original(block, *args)
        if hasattr(block.base, "extent"):
            pointers.extent = block.base.extent
        return pointers, mask

    return materialize_pointers


def _checked(
    original: Callable[..., Any],
    pointers_at: int,
    mask_at: int | None,
    what: str,
    extents: Callable[[], Sequence[Extent]],
    watch: Watch,
) -> Callable[..., Any]:
    def access(*args: Any, **kwargs: Any) -> Any:
        pointers = args[pointers_at]
        known = (pointers.extent,) if hasattr(pointers, "extent") else extents()
        _check(what, pointers, None if mask_at is None else args[mask_at].data, known, watch)
        return original(*args, **kwargs)

    return access


def _check(
    what: str, pointers: Any, mask: np.ndarray | None, extents: Sequence[Extent], watch: Watch
) -> None:
    addresses = pointers.data if mask is None else pointers.data[np.broadcast_to(mask, pointers.data.shape)]
    width = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
    bad = np.ones(addresses.shape, dtype=bool)
    for extent in extents:
        bad &= extent.outside(addresses, width)
    if bad.any():
        meant = extents[0] if len(extents) == 1 else None
        offset = None if meant is None else meant.offset(int(addresses[bad].flat[0]))
        program = triton_interpreter.interpreter_builder.grid_idx
        raise OutOfBounds(what, meant, offset, int(bad.sum()), addresses.size, program)
    _require_alignment(what, addresses, width, extents)
    if extents:
        first = addresses.reshape(-1)[:1]
        watch(what, addresses, width, next(e for e in extents if not e.outside(first, width).any()))


def _require_alignment(what: str, addresses: np.ndarray, width: int, extents: Sequence[Extent]) -> None:
    crooked = addresses & np.uint64(width - 1) != 0
    if crooked.any():
        meant = extents[0] if len(extents) == 1 else None
        offset = None if meant is None else meant.offset(int(addresses[crooked].flat[0]))
        program = triton_interpreter.interpreter_builder.grid_idx
        raise Misaligned(what, meant, offset, width, program)
