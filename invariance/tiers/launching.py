"""One launch under the interpreter: the arguments as a GPU launch would give them, the programs one by one."""

from __future__ import annotations

import functools
import inspect
import math
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter
import triton.runtime.jit as triton_jit

from invariance.tiers.addresses import Extent
from invariance.tiers.arguments import argument, type_of
from invariance.tiers.far import ROUNDS, Far, virtual
from invariance.tiers.faults import BUDGET, GaveUp, NoLaunch
from invariance.tiers.loops import counted, counted_at_the_ends
from invariance.tiers.orders import WHOLE, Grid, Order, in_order
from invariance.tiers.races import Meetings

_MOST = (2**31 - 1, 65_535, 65_535)  # programs along the axes of a grid, by CUDA
_LANES = 1 << 14  # elements of a block that cost as much as a program does without any
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "enable_fp_fusion")
# Stands for a function that sees the language under both of its names, as Triton's own library does.
_LANGUAGE = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
_rewritten: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Variant:
    """What a GPU would compile for a launch: the kernel, Triton's signature, the constants, the launch options."""

    kernel: Any
    signature: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Launch:
    """One launch, interpreted to its end or to its first fault: the kernel's name, the grid asked for, the programs."""

    kernel: str
    grid: tuple[int, int, int]
    programs: int
    compiled_as: Variant | None = field(default=None, repr=False, compare=False)


@dataclass
class Session:
    """What ``interpreted`` gives: the launches so far, and how they are run.

    configuration: which one of an autotuned kernel runs. measured: after others on the same tensors. tuned: by kernel
    the configurations that it has.
    raised: whether a kernel raised something, which a compiler would have said, or a launch did.
    """

    order: Order = in_order
    configuration: int = 0
    measured: bool = False
    races: bool = False
    far: Far | None = None
    launches: list[Launch] = field(default_factory=list)
    tuned: dict[str, list[str]] = field(default_factory=dict)
    extents: list[Extent] = field(default_factory=list)
    replaced: Mapping[Any, Any] = field(default_factory=dict)
    functions: dict[Any, Any] = field(default_factory=dict)
    meetings: Meetings | None = None
    raised: bool = False
    accesses: int = 0
    lanes: int = 0

    @property
    def loop(self) -> Callable[..., Iterator[Any]]:
        """What stands for `range` in a kernel."""
        return counted if self.far is None else counted_at_the_ends

    def tensor(self, shape: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Zeros that take no memory, for a session that is `far`."""
        return virtual(shape, stride, dtype)

    def watch(self, what: str, addresses: np.ndarray, width: int, extent: Extent) -> None:
        """Take note of an access of the program that runs; raises Race, and GaveUp in a loop without end."""
        self.lanes = max(self.lanes, addresses.size)
        self.accesses += 1
        if self.meetings is not None:
            self.meetings.access(what, addresses, width, extent)
        if self.far is not None:
            if what == "store":
                self.far.stored(addresses, width, extent)
            if self.accesses > ROUNDS:
                raise GaveUp("a loop over all elements, which is not cut short")

    def function(self, kernel: Any) -> Any:
        """What the interpreter runs for a kernel or for a function that a kernel calls; over the globals of now."""
        if kernel.fn not in self.functions:  # a JITFunction hashes its source and whatever that calls
            self.functions[kernel.fn] = rewrite(kernel, self)
        return self.functions[kernel.fn]

    def run(self, programs: Iterable[Grid], grid: Grid) -> Iterator[Grid]:
        """The programs of a launch, each while it runs."""
        if self.far is not None:
            self.far.begin()
        for program in chain(programs, () if self.far is None else self.far.further(grid)):
            self.accesses = 0
            triton_interpreter.interpreter_builder.set_grid_idx(*program)
            if self.far is not None:
                self.far.program = program
            if self.meetings is not None:
                self.meetings.enter(program)
            yield program
        if self.meetings is not None:
            self.meetings.settle()


def execute(session: Session, kernel: Any, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> None:
    """Run ``kernel[grid](*args, **kwargs)`` on the CPU; launch options among the keywords are ignored."""
    named = {name: value for name, value in kwargs.items() if name in kernel.arg_names}
    bound = kernel.signature.bind(*args, **named)
    bound.apply_defaults()
    for hook in kernel.pre_run_hooks:
        hook(*args, **kwargs)
    sizes = tuple(grid(bound.arguments) if callable(grid) else grid)
    full = (*sizes, 1, 1)[:3]
    _require(kernel, full)
    if session.order in WHOLE:
        BUDGET.require(math.prod(full))
    programs = session.order(full)
    options = {name: kwargs[name] for name in _OPTIONS if name in kwargs}
    variant = _variant(kernel, bound.arguments, options)
    session.launches.append(Launch(kernel.fn.__name__, full, len(programs), variant))
    outer, session.extents = session.extents, []
    session.functions = {}
    function = session.function(kernel)
    scope = triton_interpreter._patch_lang(_LANGUAGE)
    try:
        arguments = {
            parameter.name: argument(parameter, bound.arguments[parameter.name], session.extents)
            for parameter in kernel.params
        }
        scope.set_attr(tl, "range", session.loop)
        session.lanes, session.meetings = 0, Meetings(session.extents) if session.races else None
        triton_interpreter.interpreter_builder.set_grid_dim(*full)
        for _ in session.run(programs, full):
            function(**arguments)
        BUDGET.spend(len(programs) * (1 + session.lanes // _LANES))
    except Exception:
        session.raised = True
        raise
    finally:
        scope.restore()
        session.extents = outer


def _require(kernel: Any, grid: Grid) -> None:
    """Raises NoLaunch for a grid that is too large."""
    for axis, (size, most) in enumerate(zip(grid, _MOST, strict=True)):
        if size > most:
            raise NoLaunch(kernel.fn.__name__, axis, size, most)


def _variant(kernel: Any, arguments: Mapping[str, Any], options: Mapping[str, Any]) -> Variant:
    signature = {p.name: type_of(p, arguments[p.name]) for p in kernel.params}
    constants = {name: arguments[name] for name, kind in signature.items() if kind == "constexpr"}
    return Variant(kernel, signature, constants, options)


@functools.cache
def _builtins(owner: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((name, member) for name, member in inspect.getmembers(owner) if tl.core.is_builtin(member))


def patch_builtin(owner: Any, builder: Any, scope: Any) -> None:
    """As the interpreter's own, which looks through all members again for each launch: a third of its time."""
    for name, member in _builtins(owner):
        triton_interpreter._patch_attr(owner, name, member, builder, scope)


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
    function.__globals__.update({"range": session.loop, **live})
    for name, value in live.items():
        if inspect.isfunction(value) and value in session.replaced:
            function.__globals__[name] = session.replaced[value]
