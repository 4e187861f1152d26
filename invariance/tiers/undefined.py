"""Masked lanes of a load without `other`: undefined, as the documentation of `tl.load` says; the interpreter has zeros.

NVIDIA's backend has them too (so measured on an H200 with Triton 3.6), but no promise: triton-lang/triton#737 and
intel/intel-xpu-backend-for-triton#1142 are kernels that found something else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter

from invariance.tiers.patches import Patches

# As they are stored: NaN and the largest numbers of both signs. For sums and products a NaN is enough; the maximum and
# the minimum of a block leave it out.
_BITS: dict[Any, np.ndarray] = {
    tl.bfloat16: np.array([0x7FC0, 0x7F7F, 0xFF7F], dtype=np.uint16),
    **{
        kind: np.array([0x7F, 0x77, 0xF7], dtype=np.uint8)
        for kind in (tl.float8e5, tl.float8e5b16, tl.float8e4nv, tl.float8e4b8, tl.float8e4b15)
    },
}


def anything(kind: Any, storage: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Values that no right kernel lets through to its result, by the place of a lane: the same in each process."""
    values: np.ndarray
    if kind in _BITS:
        values = _BITS[kind]
    elif storage.kind == "f":
        most = np.finfo(storage).max
        values = np.array([np.nan, most, -most], dtype=storage)
    elif storage.kind == "b":
        values = np.array([True])
    else:
        odd = np.iinfo(storage).max // 3 | 1
        values = np.array([odd, -odd if storage.kind == "i" else odd - 2], dtype=storage)
    lanes: np.ndarray = np.resize(values, shape)
    return lanes


def fill_masked_lanes(patches: Patches) -> None:
    """Have masked lanes of a load without `other` hold `anything`."""
    builder = triton_interpreter.interpreter_builder
    load = builder.create_masked_load

    def create_masked_load(pointers: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        if other is None and not np.asarray(mask.data).all():
            kind = pointers.get_element_ty()
            storage = triton_interpreter._get_np_dtype(kind)
            other = triton_interpreter.TensorHandle(anything(kind, storage, pointers.data.shape), kind)
        return load(pointers, mask, other, *rest, **options)

    patches.set(builder, "create_masked_load", create_masked_load)
