"""The operator, its reference, and what a user would pick instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import softcap
from invariance.candidate import load
from softcap.reference import NativeFinalLogitSoftcapOp

PASSES = ("forward", "backward", "forward_backward")
OPERATOR, NATIVE, FORMULA, COMPILED, NARROW = (
    "triton",
    "native forward_fp32",
    "formula, eager",
    "formula, torch.compile",
    "formula in the input dtype",
)


@dataclass(frozen=True)
class Contender:
    """`op` maps x to y. `rules`: what must accept its results before it is timed. `required`: else nothing is."""

    name: str
    op: Callable[[Tensor], Tensor]
    rules: tuple[str, ...]
    required: bool = False


def contenders(cap: float, dtype: torch.dtype, device: str, specs: Sequence[str]) -> list[Contender]:
    """Everybody at one cap. Raises CandidateNotLoadable for a spec that leads nowhere."""

    def formula(x: Tensor) -> Tensor:
        return cap * torch.tanh(x.to(torch.float32) / cap)

    def narrow(x: Tensor) -> Tensor:
        return cap * torch.tanh(x / cap)

    torch.compiler.reset()  # the next shape or cap is compiled for itself, never as the ninth of one function
    strict = ("specification", "ulp")
    found = [
        Contender(OPERATOR, softcap.TritonFinalLogitSoftcapOp(cap), strict, required=True),
        # forward() would cast back to the input dtype and write fewer bytes than the operator.
        Contender(NATIVE, NativeFinalLogitSoftcapOp(cap).forward_fp32, strict, required=True),
        Contender(FORMULA, formula, ("specification",)),
        Contender(COMPILED, torch.compile(formula, dynamic=False), ("specification",)),
    ]
    if dtype != torch.float32:
        found.append(Contender(NARROW, narrow, ("chain",)))
    for spec in specs:
        candidate = load(spec, device)
        found.append(Contender(candidate.name, candidate.factory(cap), ("specification",)))
    return found


def calls(contender: Contender, x: Tensor, grad_y: Tensor) -> dict[str, Callable[[], object]]:
    """One call of each pass; "forward" is to be run under no_grad, the graph of "backward" is built here."""
    leaf, fresh = x.detach().requires_grad_(), x.detach().requires_grad_()
    y = contender.op(leaf)
    upstream = grad_y.to(y.dtype)

    def backward() -> object:
        return torch.autograd.grad(y, leaf, upstream, retain_graph=True)

    def forward_backward() -> object:
        # Not `leaf`: the graph above holds its gradient accumulator, which belongs to the stream that made it, and a
        # capture on another stream must not wait for that one.
        return torch.autograd.grad(contender.op(fresh), fresh, upstream)

    return {
        "forward": lambda: contender.op(x),
        "backward": backward,
        "forward_backward": forward_backward,
    }
