"""Whose memory a tensor is, what may be seen of it from outside, and how much of it a process holds."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from oracles.rounding import to_bits


def memory(t: Tensor) -> Tensor:
    """The whole storage of a tensor as bit patterns, 1-D: what lies between and around its elements too."""
    storage = t.untyped_storage()
    count = storage.nbytes() // t.element_size()
    return to_bits(t.detach().as_strided((count,), (1,), 0))


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether the stretches of memory that two tensors reach over have a byte in common."""
    (low, high), (start, stop) = reach(a), reach(b)
    return a.device == b.device and low < stop and start < high


def reach(t: Tensor) -> tuple[int, int]:
    """First and past-the-last byte of a tensor; an empty one reaches nothing."""
    if t.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


def laps_itself(t: Tensor) -> bool:
    """Whether two elements of a tensor are one place in memory."""
    if t.is_contiguous():
        return False
    places = torch.zeros(1, dtype=torch.int64)
    for size, stride in zip(t.shape, t.stride(), strict=True):
        places = (places[:, None] + stride * torch.arange(size)).flatten()
    return bool((places.sort().values.diff() == 0).any())


def seen(t: Tensor) -> tuple[tuple[str, object], ...]:
    """What a caller sees of a tensor beside its numbers; the version counts what was written to it in place."""
    return (
        ("the shape", tuple(t.shape)),
        ("the strides", t.stride()),
        ("the storage offset", t.storage_offset()),
        ("the address", t.data_ptr()),
        ("requires_grad", t.requires_grad),
        ("the version", version(t)),
    )


def version(t: Tensor) -> int | None:
    """How often a tensor was written to in place; an inference tensor does not count."""
    return None if t.is_inference() else t._version


def held(device: torch.device) -> int | None:
    """How many bytes are given out: of an accelerator by torch, else by the C library; None where that does not say."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    if _mallinfo is None:
        return None
    found = _mallinfo()
    return int(found.hblkhd + found.uordblks)


class _Mallinfo(ctypes.Structure):
    """`struct mallinfo2` of glibc 2.33 and newer."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _found_mallinfo() -> Callable[[], Any] | None:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is not None:
        function.restype = _Mallinfo
    return function


_mallinfo = _found_mallinfo()
