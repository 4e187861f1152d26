"""What torch.compile sees of a candidate, the candidate traced, and the candidate compiled."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensorMode

from invariance.candidate import CandidateRaised, GraphLost, Map, Operator
from invariance.checkers import NotApplicable, Pick, checker
from invariance.checkers.views import Args, each, flat, interpreted, plain
from invariance.judge import Claim
from strategies.caps import cap_text

# Operations that only place or describe numbers. Every other one of PyTorch's own computes.
_HARMLESS = frozenset(
    (
        "clone", "contiguous", "detach", "empty", "empty_like", "expand", "flatten", "getattr", "getitem",
        "is_contiguous", "narrow", "new_empty", "numel", "permute", "reshape", "size", "squeeze", "stride", "t",
        "transpose", "unsqueeze", "view", "view_as",
    )
)  # fmt: skip
_OURS = ("torch", "_operator", "operator", "builtins", "math")


def _call(x: Tensor, op: Operator) -> Tensor:
    return op(x)


@contextmanager
def _quietly() -> Iterator[None]:
    """Dynamo does not tell where it leaves a graph: a page on stderr for a kernel that reads one number."""
    log = logging.getLogger("torch._dynamo")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def compiled_by_dynamo() -> Callable[..., Tensor]:
    """`call(x, op)` = op(x), compiled for each op anew; what was compiled before is forgotten."""
    torch.compiler.reset()
    # One thread: the default starts worker processes in every child.
    call: Callable[..., Tensor] = torch.compile(_call, options={"compile_threads": 1})
    return _quietly()(call)


def traced_by_dynamo(function: Callable[..., Tensor] = _call) -> Callable[..., Tensor]:
    """`call(x, op)` = op(x), or another function, traced for each op anew into operations that then run as they are.

    NumPy is left alone: Dynamo would write its functions as torch's, which have other bits.
    """
    torch.compiler.reset()
    call = torch._dynamo.config.patch(trace_numpy=False)(torch.compile(function, backend="aot_eager"))
    quiet: Callable[..., Tensor] = _quietly()(call)
    return quiet


@checker(
    "invariance",
    passes=("inference", "backward"),
    inputs="patterns",
    each_cap=False,
    shrinks=8,
    as_built="a trace takes a second, and is judged against the call that the other laws judge in every mode",
    bugs=("linkedin/Liger-Kernel#1362", "linkedin/Liger-Kernel#1350", "pytorch/pytorch#161944"),
)
def traced(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Traced by torch.compile into a graph that runs as it is, the call gives its bits, also at other caps and forms.

    No compiler writes code here, so that a formula of PyTorch operations has to keep its bits as well. A candidate
    that cannot be traced says so and is outside the law. A result is of the dtype that its fake promised, and of the
    shape and strides, on which compiled code insists.
    """
    if interpreted(f):
        raise NotApplicable(
            "a launch in the interpreter is Python, which Dynamo would trace in place of the kernel"
        )
    call = traced_by_dynamo()
    whole = each(args, _in_three)
    part = each(args, _another_form)
    for cap, given in ((f.cap, whole), (f.cap * 0.75, whole), (f.cap, part)):  # half a second each
        at = f.at(cap)
        want = at(*given)
        try:
            got = replace(at, op=partial(call, op=at.op))(*given)
        except GraphLost:
            raise
        except CandidateRaised as error:
            raise NotApplicable(f"torch.compile cannot trace the candidate: {error}") from error
        label = f"traced at cap {cap_text(cap)}, {given[0].numel():,} elements"
        yield Claim(label, got=got, want=want, of=given)
    if f.pass_ == "inference":
        yield from _promised(f, part)
    try:
        fake = on_fakes(f, part)
    except CandidateRaised:
        return
    yield Claim("the form that a fake tensor promises", got=_form(f(*part)), want=_form(fake))


def _promised(f: Map, args: Args) -> Iterator[Claim]:
    """What a fake implementation promises of the dtype: a cast that follows is left out where it seems to be none."""
    for dtype in (torch.float32, torch.bfloat16):

        def followed(x: Tensor, op: Operator, dtype: torch.dtype = dtype) -> Tensor:
            return op(x).to(dtype)

        got = replace(f, op=partial(traced_by_dynamo(followed), op=f.op))(*args)
        yield Claim("the dtype of a traced result after a cast", got=str(got.dtype), want=str(dtype))


def _another_form(t: Tensor) -> Tensor:
    """Fewer elements, in two dimensions and not contiguous, as logits come."""
    few = flat(t)[: max(1, 2 * ((t.numel() - 1) // 2))]
    return few.view(-1, 2).t() if few.numel() > 1 else few


def _in_three(t: Tensor) -> Tensor:
    """In three dimensions, as a batch of logits comes; as they are where they do not fill it."""
    return plain(t).view(-1, 2, 2) if t.numel() % 4 == 0 else plain(t)


def on_fakes(f: Map, args: Args) -> Tensor:
    """The result for tensors that have a form and no numbers; raises where the kernel reads their memory."""
    with functorch.patch(fake_tensor_allow_unsafe_data_ptr_access=False):  # else their address is 0
        mode = FakeTensorMode()
    fakes = each(args, mode.from_tensor)
    with mode:
        return f(*fakes)


def _form(t: Tensor) -> str:
    """Shape, dtype and the strides that matter."""
    strides = [stride for stride, size in zip(t.stride(), t.shape, strict=True) if size > 1]
    return f"{tuple(t.shape)} of {t.dtype}, strides {strides}"


def formula_seen(f: Map, args: Args) -> bool:
    """Whether Dynamo finds arithmetic in PyTorch operations in the candidate, for the compiler to write anew.

    A Triton kernel, a custom operator and code outside of the graph are left as they are.
    """
    seen: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        seen.extend(_computing(graph))
        return graph.forward

    torch.compiler.reset()
    call = torch.compile(_call, backend=backend)
    with torch.enable_grad():
        leaf = args[0].detach().requires_grad_(f.pass_ != "inference")
        call(leaf, f.op)
    return bool(seen)


def _computing(graph: torch.fx.GraphModule) -> list[str]:
    """The names of PyTorch's own operations in a graph, and in the graphs within, that compute."""
    inner = [module for module in graph.modules() if isinstance(module, torch.fx.GraphModule)]
    nodes = [node for module in inner for node in module.graph.nodes]
    found = [(str(node.target), "torch") for node in nodes if node.op == "call_method"]
    found += [_named(node.target) for node in nodes if node.op == "call_function"]
    return [name for name, house in found if house in _OURS and name not in _HARMLESS]


def _named(target: Any) -> tuple[str, str]:
    """The name of a function and the package that it is from."""
    if isinstance(target, (OpOverload, OpOverloadPacket, HigherOrderOperator)):
        namespace, _, name = str(target).partition(
            "."
        )  # a kernel launch is a higher-order operator: no namespace
        return name.split(".")[0], "torch" if namespace in ("aten", "prims") else namespace
    name = str(getattr(target, "__name__", target))
    return name, str(getattr(target, "__module__", None) or "torch").split(".")[0]
