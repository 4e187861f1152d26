"""Good softcaps, and a right one with a fault of choice in one pass only: what the laws pass and what they catch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from invariance.candidate import Candidate, Map, adapt
from invariance.checkers import LAWS
from invariance.judge import Judgement, judge
from invariance.run import arguments
from strategies.case import Case

# `fault(result, inputs)` gives the wrong result; inputs are (x,) or, in the backward, (x, grad_y).
Fault = Callable[[Tensor, tuple[Tensor, ...]], Tensor]


class _Softcap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap, fault, gradient_fault):
        ctx.save_for_backward(x)
        ctx.cap, ctx.fault = cap, gradient_fault
        y = (cap * torch.tanh(x.float() / cap)).to(x.dtype)
        return y if fault is None else fault(y, (x,))

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x.float() / ctx.cap)
        dx = (grad_y.float() * (1 - t * t)).to(x.dtype)
        return (dx if ctx.fault is None else ctx.fault(dx, (x, grad_y))), None, None, None


def softcap(x, cap, fault: Fault | None = None, pass_: str = ""):
    """The right formula with its own backward, and with the fault in one pass."""
    here = "forward" if torch.is_grad_enabled() and x.requires_grad else "inference"
    return _Softcap.apply(
        x, float(cap), fault if pass_ == here else None, fault if pass_ == "backward" else None
    )


def faulty(fault: Fault, pass_: str) -> Candidate:
    return adapt("faulty", lambda x, cap: softcap(x, cap, fault, pass_))


def bumped(t: Tensor, where: Tensor | bool = True) -> Tensor:
    """One bit pattern further, where it is asked for."""
    integer = {2: torch.int16, 4: torch.int32}[t.element_size()]
    further = (t.contiguous().view(integer) + 1).view(t.dtype)
    return torch.where(torch.as_tensor(where, device=t.device), further, t)


def plain_autograd(x, cap):
    return (cap * torch.tanh(x.float() / cap)).to(x.dtype)


def fp32_out(x, cap):
    return cap * torch.tanh(x.float() / cap)


def reciprocal(x, cap):
    return (torch.tanh(x.float() * (1.0 / cap)) * cap).to(x.dtype)


def fp64_inside(x, cap):
    return (cap * torch.tanh(x.double() / cap)).to(x.dtype)


GOOD = [softcap, plain_autograd, fp32_out, reciprocal, fp64_inside]


def verdict(law: str, candidate: Candidate, case: Case, pass_: str) -> Judgement:
    """What the law says of the candidate on one case."""
    f: Map = candidate.map(case.cap, pass_)
    return judge(LAWS[law].check(f, arguments(f, case, "cpu"), case.pick))
