"""Good softcaps of different making, each of which refuses what must be refused: every law lets all of them pass."""

from __future__ import annotations

import math

import torch

from invariance.candidate import Candidate, adapt

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


class Operator:
    """A class candidate with checks; the subclass says what is computed."""

    def __init__(self, softcap):
        self.cap = torch.tensor(float(softcap), dtype=torch.float64).float().item()
        if not 0 < self.cap < math.inf:
            raise ValueError(softcap)

    def __call__(self, x):
        if x.dtype not in DTYPES:
            raise TypeError(x.dtype)
        return self.value(x)

    def value(self, x):
        raise NotImplementedError


class PlainAutograd(Operator):
    def value(self, x):
        return (self.cap * torch.tanh(x.float() / self.cap)).to(x.dtype)


class WideOutput(Operator):
    def value(self, x):
        return self.cap * torch.tanh(x.float() / self.cap)


class Reciprocal(Operator):
    def value(self, x):
        return (self.cap * torch.tanh(x.float() * (1 / torch.tensor(self.cap, device=x.device)))).to(x.dtype)


class Fp64Inside(Operator):
    def value(self, x):
        return (self.cap * torch.tanh(x.double() / self.cap)).to(x.dtype)


class ContiguousCopies(Operator):
    def value(self, x):
        return self.cap * torch.tanh(x.contiguous().float() / self.cap)


class _SavedY(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        ctx.cap, ctx.dtype = cap, x.dtype
        y = cap * torch.tanh(x.float() / cap)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_y):
        t = ctx.saved_tensors[0] / ctx.cap
        return (grad_y * (1 - t * t)).to(ctx.dtype), None


class SavedY(Operator):
    def value(self, x):
        return _SavedY.apply(x, self.cap)


class _Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cap):
        ctx.cap = cap
        ctx.save_for_backward(x)
        return (cap * torch.tanh(x.float() / cap)).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        e = torch.exp(-2 * (x.float() / ctx.cap).abs())
        return (grad_y.float() * 4 * e / ((1 + e) * (1 + e))).to(x.dtype), None


class ExponentialGradient(Operator):
    def value(self, x):
        return _Exponential.apply(x, self.cap)


OPERATORS = (PlainAutograd, WideOutput, Reciprocal, Fp64Inside, ContiguousCopies, SavedY, ExponentialGradient)
GOOD: list[Candidate] = [adapt(operator.__name__, operator) for operator in OPERATORS]
