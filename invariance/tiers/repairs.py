"""Where Triton's interpreter computes something else than a GPU, made right for the time of a call.

The list ``SUBSTITUTIONS`` goes into every report of this tier: a tanh that is torch's says nothing about the
accuracy of a GPU's tanh, so the tier judges invariance, bounds and formulas, never a library function.
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter

from invariance.tiers.faults import MOST_PROGRAMS
from invariance.tiers.patches import Patches
from invariance.tiers.undefined import fill_masked_lanes

SUBSTITUTIONS = (
    "libdevice functions: torch's CPU functions of the same name in the same precision",
    "FP32 to BF16: rounded to nearest even (the interpreter truncates)",
    "BF16 to FP32: exact for subnormals too (Triton 3.9's interpreter widens most of them to 2^-127)",
    "FP64 and integers to BF16: through FP32",
    "FP32 fma: one rounding (the interpreter of Triton 3.6 rounds the product too)",
    "BF16 arithmetic: in FP32, rounded to BF16 after each operation (the interpreter computes on the bits)",
    "masked lanes of a load without `other`: NaN and the largest numbers (the interpreter has zeros)",
    "autotuned kernels: the first configuration, without timing; one law takes others too",
    f"calls of many programs: left out where a cell would run more than {MOST_PROGRAMS:,}",
)

_MODULES = (
    "triton.language.extra.libdevice",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.hip.libdevice",
)
_UNARY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "erfc", "exp",
            "exp2", "expm1", "floor", "log", "log10", "log1p", "log2", "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh",
            "trunc",
        )
    },
    "fast_expf": torch.exp,
    "fast_tanhf": torch.tanh,
    "rcp_rn": torch.reciprocal,
    "rint": torch.round,
}  # fmt: skip
_BINARY: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add_rn": torch.add,
    "copysign": torch.copysign,
    "div_rn": torch.div,
    "fast_dividef": torch.div,
    "mul_rn": torch.mul,
    "pow": torch.pow,
    "sub_rn": torch.sub,
}


def repair(patches: Patches) -> dict[Any, Any]:
    """Install all repairs; gives back the substitute of each replaced libdevice function."""
    _repair_rounding(patches)
    _repair_bf16_arithmetic(patches)
    _repair_fma(patches)
    _repair_conditions(patches)
    _repair_indices(patches)
    fill_masked_lanes(patches)
    substitutes, replaced = _libdevice()
    for module, functions in substitutes:
        patches.update(module, functions)
    return replaced


@functools.cache
def _libdevice() -> tuple[list[tuple[ModuleType, dict[str, Any]]], dict[Any, Any]]:
    """The modules of libdevice, each with its substitutes by name, and the substitute of each function.

    Made once, before any is replaced: there are hundreds, and every interpreted call replaces them.
    """
    substitutes: list[tuple[ModuleType, dict[str, Any]]] = []
    replaced: dict[Any, Any] = {}
    for path in _MODULES:
        module = importlib.import_module(path)
        if not hasattr(module, "tanh"):
            raise RuntimeError(f"{path} has no tanh: its functions have moved in this Triton")
        members = inspect.getmembers(module, inspect.isfunction)
        own = {name: f for name, f in members if f.__module__ == path and not name.startswith("_")}
        functions = {name: _substitute(name) for name in own}
        substitutes.append((module, functions))
        replaced |= {own[name]: function for name, function in functions.items()}
    return substitutes, replaced


def round_to_bf16(values: np.ndarray) -> np.ndarray:
    """FP32 values as the bits of BF16 (uint16), rounded to nearest, ties to even; NaN stays NaN."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)).astype(
        np.uint16
    )
    quiet = ((bits >> np.uint32(16)) | np.uint32(0x40)).astype(np.uint16)
    result: np.ndarray = np.where(np.isnan(values), quiet, rounded).reshape(values.shape)
    return result


def _from_bf16(bits: np.ndarray) -> np.ndarray:
    values: np.ndarray = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return values


def _substitute(name: str) -> Callable[..., Any]:
    function: Callable[..., torch.Tensor] | None = _UNARY.get(name) or _BINARY.get(name)
    arity = 1 if name in _UNARY else 2

    def call(*args: Any, **_: Any) -> Any:
        if function is None or len(args) != arity:
            raise NotImplementedError(f"libdevice.{name} has no substitute in the interpreter")
        semantic = triton_interpreter.interpreter_semantic
        tensors = [semantic.to_tensor(arg) for arg in args]
        if any(tensor.dtype not in (tl.float32, tl.float64) for tensor in tensors):
            raise TypeError(f"libdevice.{name} takes FP32 or FP64, got {tensors[0].dtype}")
        arrays = np.broadcast_arrays(*(tensor.handle.data for tensor in tensors))
        result = function(*(torch.from_numpy(np.array(array)) for array in arrays)).numpy()
        widest = max(tensors, key=lambda tensor: len(tensor.shape))
        return tl.core.tensor(triton_interpreter.TensorHandle(result, widest.dtype), widest.type)

    return call


def _repair_rounding(patches: Patches) -> None:
    convert = triton_interpreter._convert_float
    towards_zero = triton_interpreter._ir.ROUNDING_MODE.RTZ

    def convert_float(values: np.ndarray, source: Any, target: Any, mode: Any) -> Any:
        if source == tl.float32 and target == tl.bfloat16 and mode != towards_zero:
            return round_to_bf16(values)
        if source == tl.bfloat16 and target == tl.float32:
            return _from_bf16(values.view(np.uint16)).view(np.uint32).reshape(values.shape)
        return convert(values, source, target, mode)

    patches.set(triton_interpreter, "_convert_float", convert_float)
    builder = triton_interpreter.interpreter_builder
    cast = builder.cast_impl

    def cast_impl(value: Any, target: Any) -> Any:
        source = value.dtype.scalar
        if target.scalar == tl.bfloat16 and source not in (tl.float32, tl.bfloat16):
            return triton_interpreter.TensorHandle(
                round_to_bf16(value.data.astype(np.float32)), target.scalar
            )
        if source == tl.bfloat16 and target.scalar not in (tl.float32, tl.bfloat16):
            return cast(triton_interpreter.TensorHandle(_from_bf16(value.data), tl.float32), target)
        return cast(value, target)

    patches.set(builder, "cast_impl", cast_impl)


def _repair_bf16_arithmetic(patches: Patches) -> None:
    builder = triton_interpreter.interpreter_builder
    binary, unary = builder.binary_op, builder.unary_op

    def in_fp32(operation: Callable[..., np.ndarray], *operands: Any) -> Any:
        result = operation(*(_from_bf16(operand.data) for operand in operands))
        data = result if result.dtype == bool else round_to_bf16(result)
        return triton_interpreter.TensorHandle(data, tl.bfloat16)

    def binary_op(left: Any, right: Any, operation: Callable[..., np.ndarray]) -> Any:
        if left.dtype.scalar == tl.bfloat16 and right.dtype.scalar == tl.bfloat16:
            return in_fp32(operation, left, right)
        return binary(left, right, operation)

    def unary_op(value: Any, operation: Callable[..., np.ndarray]) -> Any:
        return in_fp32(operation, value) if value.dtype.scalar == tl.bfloat16 else unary(value, operation)

    patches.set(builder, "binary_op", binary_op)
    patches.set(builder, "unary_op", unary_op)


def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """``x * y + z`` of FP32 arrays, rounded once.

    The product is exact in FP64 and the sum is rounded to odd there, which no later rounding to fewer than
    52 digits can see (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(all="ignore"):
        product, addend = x.astype(np.float64) * y, z.astype(np.float64)
        total = product + addend
        part = total - product
        lost = (product - (total - part)) + (addend - part)
        even = total.view(np.int64) & 1 == 0
        towards = np.nextafter(total, np.copysign(np.inf, lost))
        odd = np.where((lost != 0) & np.isfinite(lost) & even, towards, total)
        result: np.ndarray = odd.astype(np.float32)
    return result


def _repair_fma(patches: Patches) -> None:
    builder = triton_interpreter.interpreter_builder
    fma = builder.create_fma

    def create_fma(x: Any, y: Any, z: Any) -> Any:
        if x.dtype.scalar != tl.float32:
            return fma(x, y, z)
        data = fused(*np.broadcast_arrays(x.data, y.data, z.data))
        return triton_interpreter.TensorHandle(data, tl.float32)

    patches.set(builder, "create_fma", create_fma)


def _repair_indices(patches: Patches) -> None:
    """A scalar as a bound or an index: Triton 3.6 converts an array of one element, which NumPy 2.5 refuses."""
    patch_tensor = triton_interpreter._patch_lang_tensor

    def patch(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    patches.set(triton_interpreter, "_patch_lang_tensor", patch)


def _repair_conditions(patches: Patches) -> None:
    """A comparison of scalars stays a condition when it meets a mask; the interpreter makes an int32 of it."""
    builder = triton_interpreter.interpreter_builder
    splat = builder.create_splat

    def create_splat(kind: Any, value: Any) -> Any:
        result = splat(kind, value)
        if value.data.dtype == bool and result.data.dtype != bool:
            return triton_interpreter.TensorHandle(result.data.astype(bool), tl.int1)
        return result

    patches.set(builder, "create_splat", create_splat)
