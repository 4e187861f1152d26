"""Tensors as plain data, for another process."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.checkers.views import plain

Packed = tuple[str, tuple[int, ...], bytes]


def packed(t: Tensor) -> Packed:
    """A tensor as plain data: torch would send it through shared memory, which dies with its process."""
    raw = plain(t.detach()).cpu().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(t.dtype).removeprefix("torch."), tuple(t.shape), raw


def unpacked(given: Packed, device: str) -> Tensor:
    """The tensor that was packed, on a device."""
    dtype, shape, raw = given
    return torch.frombuffer(bytearray(raw), dtype=getattr(torch, dtype)).view(shape).to(device)
