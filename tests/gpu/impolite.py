"""Candidates that break a device law and compute the right numbers otherwise."""

from __future__ import annotations

import torch
from torch import Tensor


def _softcap(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x.to(torch.float32) / cap)


def synchronising(x: Tensor, cap: float) -> Tensor:
    """Looks at a number of the device on the host."""
    if x.numel() and bool(x.isnan().all()):
        return x.to(torch.float32)
    return _softcap(x, cap)


def on_the_default_stream(x: Tensor, cap: float) -> Tensor:
    """Works on the default stream, whatever the current one is."""
    with torch.cuda.stream(torch.cuda.default_stream(x.device)):
        return _softcap(x, cap)


def leaving_memory_unwritten(x: Tensor, cap: float) -> Tensor:
    """Does not write the last element of its result, which is zero in fresh memory."""
    y = torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
    flat = y.view(-1)
    flat[:-1] = _softcap(x, cap).reshape(-1)[:-1]
    return y


def reading_before_its_input(x: Tensor, cap: float) -> Tensor:
    """Adds nothing but the sign of zero of what stands before its input, and NaN if that is NaN."""
    if x.storage_offset() == 0:
        return _softcap(x, cap)
    before = x.as_strided((1,), (1,), x.storage_offset() - 1)
    return _softcap(x, cap) + 0.0 * before.to(torch.float32)


_FIRST: dict[tuple[int, ...], Tensor] = {}


def remembering_its_first_input(x: Tensor, cap: float) -> Tensor:
    """Copies its input into memory of its own the first time, and works on that copy while it is captured."""
    if torch.cuda.is_current_stream_capturing():
        return _softcap(_FIRST[tuple(x.shape)], cap)
    _FIRST.setdefault(tuple(x.shape), x.detach().clone())
    return _softcap(x, cap)


@torch.library.custom_op("impolite::up", mutates_args=())
def _up(x: Tensor, cap: float) -> Tensor:
    y = _softcap(x, cap)
    return torch.nextafter(y, torch.full_like(y, torch.inf))


@_up.register_fake
def _(x: Tensor, _: float) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32)


def compiling_differently(x: Tensor, cap: float) -> Tensor:
    """Has another kernel for compiled graphs, one ulp up; without a gradient, which is no matter here."""
    return torch.ops.impolite.up(x, cap) if torch.compiler.is_compiling() else _softcap(x, cap)


def wrapping_past_2_31(x: Tensor, cap: float) -> Tensor:
    """Past 2^31 elements gives what stands at the start, as offsets that keep 31 bits do."""
    y = _softcap(x, cap)
    beyond = x.numel() - 2**31
    return torch.cat([y[: 2**31], y[:beyond]]) if beyond > 0 else y
