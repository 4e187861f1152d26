"""Proof that the interpreter's repairs work, made before the tier is believed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from invariance.tiers import selftest_kernels as kernels
from invariance.tiers.far import virtual_tensor
from invariance.tiers.faults import OutOfBounds

Interpreted = Callable[..., AbstractContextManager[Any]]
_BLOCK = 128


def failures(interpreted: Interpreted) -> list[str]:
    """What does not work, in words; nothing when all repairs hold."""
    before = _fingerprint()
    found = [*_wrong_values(interpreted), *_missed_accesses(interpreted)]
    if _fingerprint() != before:
        found.append("a patch was left behind")
    return found


def _wrong_values(interpreted: Interpreted) -> Iterator[str]:
    # Every BF16 pattern with the lower half just below, at and just above the tie, both kinds of odd and
    # even.
    upper = torch.arange(-(2**15), 2**15, 61, dtype=torch.int32) << 16
    x = torch.cat([upper + low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(torch.float32)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)
    with interpreted():
        widened = _launch(kernels.cast_kernel, every, torch.float32)
        rounded = _launch(kernels.cast_kernel, x, torch.bfloat16)
        doubled = _launch(kernels.double_kernel, x.to(torch.bfloat16), torch.bfloat16)
        tanh = _launch(kernels.tanh_kernel, x, torch.float32)
        undefined = _launch(kernels.undefined_kernel, torch.zeros(9), torch.float32)
    if not _same(rounded, x.to(torch.bfloat16)):
        yield "FP32 to BF16 does not round to nearest even"
    if not _same(widened, every.to(torch.float32)):
        yield "BF16 to FP32 is not exact"
    if not _same(doubled, x.to(torch.bfloat16) * 2):
        yield "BF16 arithmetic is wrong"
    if not _same(tanh, torch.tanh(x)):
        yield "libdevice.tanh is not replaced"
    if bool((undefined == 0).any()):
        yield "masked lanes are zeros"


def _missed_accesses(interpreted: Interpreted) -> Iterator[str]:
    x = torch.zeros(2 * _BLOCK)[: _BLOCK + 1]  # there is memory behind it, should the check not work
    unmasked = {"load": kernels.unmasked_load_kernel, "store": kernels.unmasked_store_kernel}
    missed = [what for what, kernel in unmasked.items() if not _caught(interpreted, kernel, x, what)]
    yield from (f"an unmasked {what} past the end is not seen" for what in missed)
    if missed:
        return  # nothing is behind the far tensor
    far = virtual_tensor(2**31 + _BLOCK, torch.uint8)
    if not _caught(interpreted, kernels.narrow_kernel, far, "load", program_ids=[2**31 // _BLOCK]):
        yield "an int32 offset past 2**31 elements is not seen"
    if _caught(interpreted, kernels.cast_kernel, far, "load", program_ids=[2**31 // _BLOCK]):
        yield "an int64 offset past 2**31 elements is refused"


def _caught(interpreted: Interpreted, kernel: Any, x: Tensor, what: str, **options: Any) -> bool:
    try:
        with interpreted(**options):
            kernel[(-(-x.numel() // _BLOCK),)](x, x, x.numel(), BLOCK=_BLOCK)
    except OutOfBounds as error:
        return error.what == what
    return False


def _launch(kernel: Any, x: Tensor, dtype: torch.dtype) -> Tensor:
    y = torch.zeros(x.shape, dtype=dtype)
    kernel[(-(-x.numel() // _BLOCK),)](x, y, x.numel(), BLOCK=_BLOCK)
    return y


def _same(left: Tensor, right: Tensor) -> bool:
    """The same bits, every NaN alike."""
    bits = torch.int16 if left.dtype == torch.bfloat16 else torch.int32
    nan = left.isnan() & right.isnan()
    return bool((nan | (left.view(bits) == right.view(bits))).all())


def _fingerprint() -> tuple[object, ...]:
    return libdevice.tanh, tl.load, tl.tensor.__add__, torch.cuda.device, "is_cuda" in vars(torch.Tensor)
