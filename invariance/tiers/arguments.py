"""The arguments of a launch: their types in a signature, and what the kernel sees of them in the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
import triton.runtime.jit as triton_jit
from triton.tools.tensor_descriptor import TensorDescriptor

from invariance.tiers.addresses import Extent, mark

_SCALARS = {
    "fp64": (np.float64, tl.float64), "fp32": (np.float32, tl.float32), "fp16": (np.float16, tl.float16),
    "i64": (np.int64, tl.int64), "i32": (np.int32, tl.int32),
}  # fmt: skip
_POINTED = {
    torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.float64: "fp64", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "i1",
}  # fmt: skip


def type_of(parameter: Any, value: Any) -> Any:
    """The type of an argument in a signature, as Triton derives it at a launch; of a tuple those of its parts."""
    return "constexpr" if parameter.is_constexpr else _type(parameter.annotation_type, value)


def _type(declared: str | None, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return "constexpr"
    if isinstance(value, tuple):
        return tuple(_type(None, part) for part in value)
    if isinstance(value, TensorDescriptor):
        return triton_jit.mangle_type(value)
    if hasattr(value, "data_ptr"):
        return f"*{_POINTED.get(value.dtype) or str(value.dtype).removeprefix('torch.')}"
    if declared:
        return str(declared)
    if isinstance(value, bool):
        return "i1"
    return "fp32" if isinstance(value, float) else "i32" if -(2**31) <= value < 2**31 else "i64"


def argument(parameter: Any, value: Any, extents: list[Extent]) -> Any:
    """The value as the kernel sees it: scalars in the type that a GPU launch gives them."""
    if parameter.is_constexpr:
        return value
    return _converted(parameter.name, parameter.annotation_type, value, extents)


def _converted(name: str, declared: str | None, value: Any, extents: list[Extent]) -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, tuple):
        parts = [_converted(f"{name}[{i}]", None, part, extents) for i, part in enumerate(value)]
        return triton_interpreter._tuple_create(value, parts)
    if hasattr(value, "data_ptr") or isinstance(value, TensorDescriptor):
        return _pointing(name, value, extents)
    declared = declared or ("fp32" if isinstance(value, float) else "")
    if declared not in _SCALARS:
        return triton_interpreter._implicit_cvt(value)
    storage, kind = _SCALARS[declared]
    return tl.tensor(triton_interpreter.TensorHandle(np.array([value], dtype=storage), kind), kind)


def _pointing(name: str, value: Any, extents: list[Extent]) -> Any:
    """A tensor, or a descriptor of one, whose pointers are known to point into it."""
    tensor = getattr(value, "base", value)
    if tensor.device.type != "cpu":
        raise ValueError(f"the interpreter takes CPU tensors, {name} is on {tensor.device}")
    converted = triton_interpreter._implicit_cvt(value)
    extents.append(Extent.of(name, tensor))
    mark(getattr(converted.handle, "base", converted.handle), extents[-1])
    return converted
