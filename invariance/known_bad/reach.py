"""Offsets past 2^31 elements, in the interpreter: memory that exists only where it is touched, and three programs."""

from __future__ import annotations

import sys
from typing import Any

import torch

from invariance.candidate import load

LAW = "beyond_int32"
ELEMENTS = 2**31 + 65543  # past 2^31 by more than a block of any size, and no multiple of one

_BF16, _FP32 = torch.bfloat16, torch.float32
# The tensors that each kernel takes in front of the cap and the number of elements.
_KERNELS = {
    "forward": ("softcap_forward_kernel", (_BF16, _FP32)),
    "backward": ("softcap_backward_kernel", (_BF16, _FP32, _BF16)),
}


def out_of_reach(spec: str) -> tuple[list[tuple[str, str, str, str]], int]:
    """The passes whose kernel leaves its tensors there, as (law, pass, dtype, what), and how many were tried."""
    edited: Any = load(spec).factory(30.0)
    module = sys.modules[edited.kind.__module__]
    found = []
    for pass_, (name, dtypes) in _KERNELS.items():
        what = _fault(getattr(module, name), module.BLOCK, dtypes)
        if what is not None:
            found.append((LAW, pass_, "bf16", what))
    return found, len(_KERNELS)


def _fault(kernel: Any, block: int, dtypes: tuple[torch.dtype, ...]) -> str | None:
    """What the address check says of the first, the first past 2^31 and the last program of a launch."""
    from invariance.tiers import interpreter as tier  # noqa: PLC0415 - needs Triton

    tier.self_test()  # once for every kernel: what the laws said of it stands on the same repairs
    tensors = [tier.virtual_tensor(ELEMENTS, dtype) for dtype in dtypes]
    blocks = -(-ELEMENTS // block)
    try:
        with tier.interpreted(program_ids=(0, 2**31 // block, blocks - 1), total=blocks):
            kernel[(blocks,)](*tensors, 30.0, ELEMENTS, BLOCK=block)
    except tier.OutOfBounds as error:
        return str(error)
    return None
