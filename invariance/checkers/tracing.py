"""What torch.compile sees of a candidate, and the candidate compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket

from invariance.candidate import Map, Operator
from invariance.checkers.views import Args

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


def compiled_by_dynamo() -> Callable[..., Tensor]:
    """`call(x, op)` = op(x), compiled for each op anew; what was compiled before is forgotten."""
    torch.compiler.reset()
    # One thread: the default starts worker processes in every child.
    call: Callable[..., Tensor] = torch.compile(_call, options={"compile_threads": 1})
    return call


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
