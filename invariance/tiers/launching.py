"""One launch under the interpreter: the arguments as a GPU launch would give them, the programs one by one."""

from __future__ import annotations

import inspect
import types
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
import triton.runtime.jit as triton_jit

from invariance.tiers.addresses import Extent, mark

_SCALARS = {
    "fp64": (np.float64, tl.float64), "fp32": (np.float32, tl.float32), "fp16": (np.float16, tl.float16),
    "i64": (np.int64, tl.int64), "i32": (np.int32, tl.int32),
}  # fmt: skip
_rewritten: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Launch:
    """One launch that was interpreted: the kernel's name, the grid asked for, the programs that ran."""

    kernel: str
    grid: tuple[int, int, int]
    programs: int


@dataclass
class Session:
    """What ``interpreted`` gives: the launches so far, and how they are run."""

    program_ids: Sequence[int] | None = None
    total: int | None = None
    launches: list[Launch] = field(default_factory=list)
    extents: list[Extent] = field(default_factory=list)
    replaced: Mapping[Any, Any] = field(default_factory=dict)


def execute(session: Session, kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> None:
    """Run ``kernel[grid](*args, **kwargs)`` on the CPU; launch options among the keywords are ignored."""
    named = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    bound = kernel.signature.bind(*args, **named)
    bound.apply_defaults()
    for hook in kernel.pre_run_hooks:
        hook(*args, **kwargs)
    sizes = tuple(grid(bound.arguments) if callable(grid) else grid)
    full = (*sizes, 1, 1)[:3]
    first = range(full[0]) if session.program_ids is None else session.program_ids
    function = rewrite(kernel, session)
    outer, session.extents = session.extents, []
    scope = triton_interpreter._patch_lang(function)
    try:
        arguments = {
            parameter.name: _argument(parameter, bound.arguments[parameter.name], session.extents)
            for parameter in kernel.params
        }
        builder = triton_interpreter.interpreter_builder
        builder.set_grid_dim(session.total or full[0], full[1], full[2])
        for x in first:
            for y in range(full[1]):
                for z in range(full[2]):
                    builder.set_grid_idx(x, y, z)
                    function(**arguments)
    finally:
        scope.restore()
        session.extents = outer
    session.launches.append(Launch(kernel.fn.__name__, full, len(first) * full[1] * full[2]))


def _argument(parameter: Any, value: Any, extents: list[Extent]) -> Any:
    """The value as the kernel sees it: scalars in the type that a GPU launch gives them."""
    if parameter.is_constexpr or value is None:
        return value
    if hasattr(value, "data_ptr"):
        tensor = getattr(value, "base", value)
        if tensor.device.type != "cpu":
            raise ValueError(f"the interpreter takes CPU tensors, {parameter.name} is on {tensor.device}")
        converted = triton_interpreter._implicit_cvt(value)
        extents.append(Extent.of(parameter.name, tensor))
        mark(converted.handle, extents[-1])
        return converted
    declared = parameter.annotation_type or ("fp32" if isinstance(value, float) else "")
    if declared not in _SCALARS:
        return triton_interpreter._implicit_cvt(value)
    storage, kind = _SCALARS[declared]
    return tl.tensor(triton_interpreter.TensorHandle(np.array([value], dtype=storage), kind), kind)


def rewrite(kernel: Any, session: Session) -> Any:
    """The kernel's function as the interpreter wants it, over a copy of its globals.

    The copy keeps the interpreter's own names out of the kernel's module, and holds the substitutes of
    libdevice functions that the module imported by name.
    """
    original = kernel.fn
    if original not in _rewritten:
        clone = types.FunctionType(
            original.__code__, {}, original.__name__, original.__defaults__, original.__closure__
        )
        clone.__module__, clone.__qualname__ = original.__module__, original.__qualname__
        clone.__annotations__ = {}
        _refresh(clone, original, session)
        # Triton 3.9's rewriter makes a JITFunction of the clone, which takes the kernel's place in this
        # table.
        table = getattr(triton_jit, "_triton_jit_function_registry", {})
        registered = dict(table)
        _rewritten[original] = triton_interpreter.FunctionRewriter(clone).rewrite_ast()
        table.update(registered)
    function = _rewritten[original]
    _refresh(function, original, session)
    return function


def _refresh(function: Any, original: Any, session: Session) -> None:
    live = {**original.__globals__, **inspect.getclosurevars(original).nonlocals}
    function.__globals__.update(live)
    for name, value in live.items():
        if inspect.isfunction(value) and value in session.replaced:
            function.__globals__[name] = session.replaced[value]
