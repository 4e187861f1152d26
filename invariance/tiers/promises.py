"""Hints to the compiler: its code is right only where they hold, and the interpreter ignores them.

What `multiple_of`, `max_contiguous` and `max_constancy` say of a block is defined in Triton's AxisInfo.h: of pointers,
in bytes and by elements. `assume` says that a condition holds in every lane.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton
import triton.runtime.interpreter as triton_interpreter

from invariance.tiers.faults import BrokenPromise
from invariance.tiers.patches import Patches

# Whose frames lie between a hint and the line of a kernel that gives it.
_BETWEEN = tuple(f"{Path(module).parent}{os.sep}" for module in (triton.__file__, __file__))
# No address is looked at more closely: it is what every allocator keeps, and the widest access of a thread.
_ALIGNED = 16

Where = tuple[int, ...]


def check_promises(patches: Patches, kernel: Callable[[], str]) -> None:
    """Have the interpreter raise BrokenPromise where a hint is false; `kernel` names the one that runs."""
    handle, builder = triton_interpreter.TensorHandle, triton_interpreter.interpreter_builder
    remember = handle.set_attr

    def set_attr(value: Any, name: str, promised: Sequence[Any]) -> None:
        numbers = tuple(int(getattr(one, "value", one)) for one in promised)
        hint, broken = _HINTS.get(name, ("", _unknown))
        if value.dtype.scalar.is_int() or value.dtype.scalar.is_ptr():
            for axis, number in enumerate(numbers):
                where = broken(np.atleast_1d(value.data), _step(value), axis, number)
                if where is not None:
                    raise _broken(kernel(), f"{hint}({', '.join(map(str, numbers))})", value, where)
        remember(value, name, promised)

    def create_assume(condition: Any) -> None:
        false = np.argwhere(~np.atleast_1d(condition.data).astype(bool))
        if false.size:
            what = f"the condition does not hold{_at(condition, false[0])}"
            raise BrokenPromise(kernel(), "assume", what, *_place())

    patches.set(handle, "set_attr", set_attr)
    patches.set(builder, "create_assume", create_assume)


def _step(value: Any) -> int:
    """From one element to the next: pointers are counted in bytes."""
    return max(1, value.get_element_ty().primitive_bitwidth // 8) if value.dtype.scalar.is_ptr() else 1


def _steps(data: np.ndarray, axis: int) -> np.ndarray:
    """From each element along the axis to the next one."""
    steps: np.ndarray = np.diff(data.astype(np.int64), axis=axis)
    return steps


def _inside(data: np.ndarray, axis: int, length: int, step: int) -> Where | None:
    """The first element that does not go on from the one before it, though both are in one group of `length`."""
    wrong = np.moveaxis(_steps(data, axis) != step, axis, -1)
    within = np.arange(1, data.shape[axis]) % length != 0
    return _first(np.moveaxis(wrong & within, -1, axis), axis, behind=1)


def _unknown(*_: Any) -> None:
    """Of a hint that is none of these nothing is known."""


def _not_contiguous(data: np.ndarray, step: int, axis: int, length: int) -> Where | None:
    return _inside(data, axis, length, step)


def _not_constant(data: np.ndarray, step: int, axis: int, length: int) -> Where | None:  # noqa: ARG001 - as the others
    return _inside(data, axis, length, 0)


def _not_divisible(data: np.ndarray, step: int, axis: int, divisor: int) -> Where | None:
    """The first element of a contiguous group that is no multiple.

    The groups are the longest of one length, a power of two, into which the axis can be cut.
    """
    divisor = math.gcd(divisor, _ALIGNED) if data.dtype == np.uint64 else divisor  # of addresses
    others = tuple(d for d in range(data.ndim) if d != axis)
    breaks = np.flatnonzero((_steps(data, axis) != step).any(axis=others)) + 1
    length = math.gcd(data.shape[axis], *map(int, breaks))
    length &= -length
    firsts = data[tuple(slice(None, None, length if d == axis else 1) for d in range(data.ndim))]
    where = _first(firsts % firsts.dtype.type(divisor) != 0, axis, behind=0)
    return where and tuple(at * length if d == axis else at for d, at in enumerate(where))


def _first(wrong: np.ndarray, axis: int, behind: int) -> Where | None:
    found = np.argwhere(wrong)
    return tuple(int(at) + behind * (d == axis) for d, at in enumerate(found[0])) if found.size else None


_HINTS: dict[str, tuple[str, Callable[[np.ndarray, int, int, int], Where | None]]] = {
    "tt.divisibility": ("multiple_of", _not_divisible),
    "tt.contiguity": ("max_contiguous", _not_contiguous),
    "tt.constancy": ("max_constancy", _not_constant),
}


def _broken(kernel: str, hint: str, value: Any, where: Where) -> BrokenPromise:
    found, extent = int(np.atleast_1d(value.data)[where]), getattr(value, "extent", None)
    what = str(found)
    if value.dtype.scalar.is_ptr():  # an address would be another one in each process
        place = "a pointer" if extent is None else f"element offset {extent.offset(found)} of {extent}"
        what = f"{place}, {found % _ALIGNED} bytes past a multiple of {_ALIGNED}"
    return BrokenPromise(kernel, hint, f"{what}{_at(value, where)}", *_place())


def _at(value: Any, where: Sequence[Any]) -> str:
    at = [int(one) for one in where]
    return "" if np.size(value.data) == 1 else f" at lane {at[0] if len(at) == 1 else at}"


def _place() -> tuple[Any, str]:
    """The program, and the file and line of the kernel that is being run."""
    program = triton_interpreter.interpreter_builder.grid_idx
    for frame in _frames():
        name = frame.f_code.co_filename
        if not name.startswith(_BETWEEN):
            return program, f"{Path(name).name}:{frame.f_lineno}"
    return program, "an unknown line"


def _frames() -> Iterator[Any]:
    frame = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]  # None at the end
