"""The subject: a kernel given by import path, and the pure map that it is at one cap and in one pass."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from invariance.imports import NoSuchFile, hidden_by_the_suite, import_file, import_module, prefer_own
from invariance.process import in_one_line
from invariance.signatures import (
    by_keyword,
    cap_keyword,
    own_cap,
    positional,
    takes_a_tensor_second,
    takes_the_cap_first,
)

PASSES = ("forward", "inference", "backward")

Operator = Callable[[Tensor], Tensor]

# The names that need no import path. `registry` and `triton-interpreted` are factories made for a device.
SHORT_NAMES = {
    "native": "softcap.reference:NativeFinalLogitSoftcapOp",
    "native-fp32": "softcap.reference:NativeFinalLogitSoftcapOp.forward_fp32",
    "triton": "softcap.triton_op:TritonFinalLogitSoftcapOp",
    "triton-interpreted": "invariance.tiers.interpreter:InterpretedTritonOp",
    "registry": "softcap.registry:registered",
}

INTERPRETED = "interpreted:"  # before any of them: a Triton kernel, judged on a CPU


class CandidateNotLoadable(Exception):
    """The import path leads to nothing that can be judged; the message says what was tried."""

    says_all = True


class CandidateRaised(Exception):
    """The candidate raised where it had to return; `__cause__` is what it raised, the message names its type."""

    says_all = True


class GraphLost(CandidateRaised):
    """The output of a differentiable candidate does not lead back to its input."""


@dataclass(frozen=True)
class Candidate:
    """A softcap kernel.

    `factory(cap)` gives an operator, a callable from one tensor to one tensor. `convention` is how the
    author's object is called: "operator" (`target(softcap=c)(x)`), "function" (`target(x, c)`) or
    "instance" (`target(x)`, whose own cap is `fixed_cap`). `spec` and `device` load it again in another process.
    `imported`: what importing it changed in the process, in words. `settings`: those of the process once it was
    imported, before any call; empty where it was not imported from its spec.
    `mode` is what `invariance.serving` puts it in.
    """

    name: str
    factory: Callable[[float | int], Operator]
    convention: str
    fixed_cap: float | None = None
    spec: str = ""
    device: str = "cpu"
    imported: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    mode: str = ""

    def map(self, cap: float | int, pass_: str) -> Map:
        """This candidate at `cap` in `pass_`; raises CandidateRaised when its constructor raises."""
        return Map(self, _calling(self.factory, cap), cap, pass_)


@dataclass(frozen=True)
class Map:
    """A candidate at one cap and in one pass: a pure function of tensors.

    forward and inference: `f(x) -> y`. backward: `f(x, grad_y) -> grad_x`. `forward` runs with autograd
    recording, `inference` under `torch.no_grad()`, or in the mode of the candidate; results are detached.
    """

    candidate: Candidate
    op: Operator
    cap: float | int
    pass_: str

    def under(self, pass_: str) -> Map:
        """The same operator in another pass."""
        return replace(self, pass_=pass_)

    def at(self, cap: float | int) -> Map:
        """The same candidate, constructed anew at another cap."""
        return self.candidate.map(cap, self.pass_)

    def __call__(self, x: Tensor, grad_y: Tensor | None = None) -> Tensor:  # noqa: D102 - the class says it
        return self.of_object(x.detach().requires_grad_(self.pass_ != "inference"), grad_y)

    def of_object(self, x: Tensor, grad_y: Tensor | None = None) -> Tensor:
        """The map of this very tensor object: a leaf, which requires grad unless the pass is inference."""
        if self.pass_ == "inference":
            with torch.inference_mode() if self.candidate.mode == "inference_mode" else torch.no_grad():
                return _tensor(_calling(self.op, x))
        y = self.recorded(x)
        if self.pass_ == "forward":
            return y.detach()
        assert grad_y is not None, "the backward map takes (x, grad_y)"
        return self.gradient(x, y, grad_y)

    def graph(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`(leaf, y)`: x as a leaf that requires grad, sharing x's memory, and the recorded output."""
        leaf = x.detach().requires_grad_()
        return leaf, self.recorded(leaf)

    def recorded(self, leaf: Tensor) -> Tensor:
        """The output for a leaf, with its graph."""
        with torch.enable_grad():
            return _tensor(_calling(self.op, leaf))

    def gradient(self, leaf: Tensor, y: Tensor, grad_y: Tensor, *, retain_graph: bool = False) -> Tensor:
        """The gradient of `(y * grad_y).sum()` at `leaf`; raises GraphLost when y does not depend on it."""
        if not y.requires_grad:
            raise GraphLost("no gradient: the output does not require grad although the input does")
        (grad_x,) = _calling(
            torch.autograd.grad, y, leaf, grad_y, retain_graph=retain_graph, allow_unused=True
        )
        if grad_x is None:
            raise GraphLost("no gradient: the output's graph does not reach the input")
        return _tensor(grad_x)

    def out_dtype(self, dtype: torch.dtype, device: torch.device | str) -> torch.dtype:
        """The dtype of y for inputs of `dtype`, asked of four elements."""
        return self.under("inference")(torch.zeros(4, dtype=dtype, device=device)).dtype


def _tensor(result: object) -> Tensor:
    if not isinstance(result, Tensor):
        raise CandidateRaised(f"returned {type(result).__name__}, not a tensor")
    return result


def _calling(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the author's code; whatever it raises becomes CandidateRaised."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        raise CandidateRaised(f"{in_one_line(error)}{_place(error)}") from error
    if args and isinstance(args[0], Tensor) and function is not torch.autograd.grad:
        _tensor(result)
    return result


def _place(error: BaseException) -> str:
    """The author's line that raised, as ` (kernels.py:12)`; empty where it is none but torch's, Triton's or our own."""
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if file.endswith(".py") and not _NOT_THE_AUTHORS.search(file):
            return f" ({os.path.basename(file)}:{line})"
    return ""


_NOT_THE_AUTHORS = re.compile(r"[/\\](torch|triton|invariance)[/\\]")


def load(spec: str, device: str = "cpu") -> Candidate:
    """The candidate that `spec` names.

    spec: `pkg.mod:attr`, `path/file.py:attr` (attr may be dotted, `Class.method` is the bound method of a
    constructed object), a short name (see SHORT_NAMES) or a stable operator name of `softcap.registry`; behind
    `interpreted:` its Triton kernels run in the interpreter.
    Raises CandidateNotLoadable with the reason and what exists.
    """
    if spec.startswith(INTERPRETED):
        return _interpreted(spec, device)
    path = SHORT_NAMES.get(spec) or (spec if ":" in spec else _stable_names().get(spec, spec))
    source, _, attribute = path.partition(":")
    if not source or not attribute:
        raise CandidateNotLoadable(
            f"candidate {spec!r} is neither 'pkg.mod:attr', 'path/file.py:attr' nor one of "
            f"{', '.join(sorted(SHORT_NAMES))}"
        )
    module = _import(source, spec)
    if spec == "registry":
        factory = by_keyword(_attribute(module, attribute, spec)("final_logit_softcap", device))
        return Candidate(spec, factory, "operator", spec=spec, device=device)
    return replace(_adapt(display_name(spec), module, attribute), spec=spec, device=device)


def _interpreted(spec: str, device: str) -> Candidate:
    """The candidate behind the prefix, its Triton kernels run in the interpreter."""
    if device != "cpu":
        raise CandidateNotLoadable(f"candidate {spec!r}: the interpreter is for the CPU, not for {device}")
    inner = load(spec.removeprefix(INTERPRETED), device)
    strangers = _import("invariance.tiers.strangers", spec)
    try:
        factory = strangers.interpreted_stranger(inner.factory)
    except strangers.OutOfSight as error:
        raise CandidateNotLoadable(
            f"candidate {spec!r}: the interpreter is not applicable: {error}"
        ) from error
    return replace(inner, name=display_name(spec), factory=factory, spec=spec)


def display_name(spec: str) -> str:
    """How reports name a candidate: a file is named relative to the working directory, or by its name."""
    source, colon, attribute = spec.partition(":")
    if not source.endswith(".py") or not os.path.isabs(source):
        return spec
    try:
        return f"{Path(source).relative_to(Path.cwd())}{colon}{attribute}"
    except ValueError:
        return f"{Path(source).name}{colon}{attribute}"


def told_apart(specs: tuple[str, ...]) -> None:
    """Raise CandidateNotLoadable where two candidates have one name in the report, which would mix their cells."""
    named: dict[str, str] = {}
    for spec in specs:
        if (other := named.setdefault(display_name(spec), spec)) != spec:
            raise CandidateNotLoadable(
                f"candidates {other!r} and {spec!r} are both called {display_name(spec)!r} in a report: "
                "name them from a folder above both, or judge each alone"
            )


def _stable_names() -> dict[str, str]:
    prefer_own()
    try:
        names = importlib.import_module("softcap.registry").STABLE_NAMES
    except ImportError:  # the suite also works beside a vendored operator
        return {}
    return dict(names)


def _import(source: str, spec: str) -> ModuleType:
    try:
        if spec in SHORT_NAMES:
            prefer_own()
            return importlib.import_module(source)
        return import_file(Path(source)) if source.endswith(".py") else import_module(source)
    except NoSuchFile as error:
        raise CandidateNotLoadable(str(error)) from error
    except (Exception, SystemExit) as error:
        what = f"candidate {spec!r}: importing {source} raised {type(error).__name__}: {error}{_place(error)}"
        raise CandidateNotLoadable(f"{what}{hidden_by_the_suite(source, error)}") from error


def _attribute(owner: Any, dotted: str, spec: str) -> Any:
    for part in dotted.split("."):
        if not hasattr(owner, part):
            known = [name for name in dir(owner) if not name.startswith("_")]
            where = (
                spec.partition(":")[0] if isinstance(owner, ModuleType) else getattr(owner, "__name__", owner)
            )
            raise CandidateNotLoadable(
                f"candidate {spec!r}: {where} has no {part!r}; it has {', '.join(known[:12]) or 'nothing'}"
            )
        owner = getattr(owner, part)
    return owner


def _adapt(name: str, module: ModuleType, dotted: str) -> Candidate:
    head, _, method = dotted.rpartition(".")
    if (
        head
        and inspect.isclass(owner := _attribute(module, head, name))
        and inspect.isfunction(inspect.getattr_static(owner, method, None))
    ):
        build = by_keyword(owner)
        return Candidate(name, lambda cap: getattr(build(cap), method), "operator")
    target = _attribute(module, dotted, name)
    if not callable(target):
        raise CandidateNotLoadable(
            f"candidate {name!r} is {type(target).__name__}, not a class, a factory, a function or a callable object"
        )
    return adapt(name, target)


def adapt(name: str, target: Any) -> Candidate:
    """A candidate around an object at hand: a class or factory, a function of (x, cap), or an instance."""
    if not inspect.isclass(target) and takes_the_cap_first(target) and takes_a_tensor_second(target):
        raise CandidateNotLoadable(
            f"candidate {name!r} takes the cap first and needs more: a function is called as f(x, c), the tensor "
            "first, and a factory as factory(softcap=c)"
        )
    if inspect.isclass(target) or takes_the_cap_first(target):
        return Candidate(name, by_keyword(target), "operator")
    fixed = own_cap(target)
    carries = not inspect.isroutine(target) or positional(target) == 1
    if carries and isinstance(fixed, (int, float)) and not isinstance(fixed, bool):
        return Candidate(name, lambda cap: target, "instance", float(fixed))  # noqa: ARG005 - judged at its own cap
    if positional(target) >= 2:
        return Candidate(name, lambda cap: lambda x: target(x, cap), "function")
    if (keyword := cap_keyword(target)) is not None:
        return Candidate(name, lambda cap: lambda x: target(x, **{keyword: cap}), "function")
    raise CandidateNotLoadable(
        f"candidate {name!r} takes no cap: give a class or factory called as factory(softcap=c), "
        "a function called as f(x, c) or as f(x, softcap=c), or a configured object or function with a .softcap"
    )
