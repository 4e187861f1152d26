"""Candidates for the sweep's tests, and what calls an engine on a small range."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from invariance.candidate import Candidate, adapt
from invariance.sweep.certificate import Certificate
from invariance.sweep.subject import key_of, subject
from invariance.sweep.torch_engine import TorchEngine
from oracles.formats import cap_as_fp32
from oracles.rounding import neighbour, to_bits
from oracles.tolerances import load_contract
from oracles.truth import Truth

BLOCK = 1 << 11


class _Rounded(torch.autograd.Function):
    """The exact result and the exact gradient, each rounded once."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cap: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.cap = cap
        return Truth.of(x, cap).rounded(x.dtype)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return Truth.of(x, ctx.cap, grad_y).rounded(x.dtype), None


class Rounded:
    """Correctly rounded, in the dtype of the input."""

    def __init__(self, softcap: float) -> None:
        self.cap = cap_as_fp32(softcap)

    def __call__(self, x: Tensor) -> Tensor:
        return _Rounded.apply(x, self.cap)


class _Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cap: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.cap = cap
        return cap * torch.tanh(x / cap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        t = torch.tanh(x / ctx.cap)
        return grad_y * (1 - t * t), None


class Native:
    """c * tanh(x / c) with the gradient g * (1 - tanh²)."""

    def __init__(self, softcap: float) -> None:
        self.cap = cap_as_fp32(softcap)

    def __call__(self, x: Tensor) -> Tensor:
        return _Slope.apply(x, self.cap)


class Reciprocal(Native):
    """Division by the cap as a product with its reciprocal."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(x * (1.0 / torch.tensor(self.cap)))


class Flushing(Native):
    """As a GPU's math library: x/c below the normal range is taken as zero."""

    def __call__(self, x: Tensor) -> Tensor:
        z = x / self.cap
        return self.cap * torch.tanh(torch.where(z.abs() < 2.0**-126, z * 0, z))


class Quotient(Native):
    """(e² - 1) / (e² + 1): NaN once e² overflows."""

    def __call__(self, x: Tensor) -> Tensor:
        e = torch.exp(2 * x / self.cap)
        return self.cap * ((e - 1) / (e + 1))


class Sigmoid(Native):
    """2 * sigmoid(2z) - 1: wrong near zero, not odd."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.cap * (2 * torch.sigmoid(2 * x / self.cap) - 1)


class _Bumped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, x: Tensor, pattern: int, steps: int, forward: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.where = pattern, steps, forward
        return _bump(y, x, pattern, steps) if forward else y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return grad, None, None, None, None


def _bump(y: Tensor, x: Tensor, pattern: int, steps: int) -> Tensor:
    width = 8 * x.element_size()
    signed = pattern - ((pattern >> (width - 1)) << width)
    return torch.where(to_bits(x) == signed, neighbour(y, steps), y)


def planted(base: type, pattern: int, steps: int) -> Candidate:
    """A candidate that is `base` but for one input, at which its forward result is off by `steps` encodings."""

    class Planted(base):  # type: ignore[misc, valid-type]
        def __call__(self, x: Tensor) -> Tensor:
            y = super().__call__(x)
            return y if y.requires_grad and not x.is_leaf else _Bumped.apply(y, x, pattern, steps, True)

    return adapt(f"planted {pattern:#x}", Planted)


class _BumpedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pattern: int, steps: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.where = pattern, steps
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return _bump(grad, x, *ctx.where), None, None


def planted_gradient(base: type, pattern: int, steps: int) -> Candidate:
    """The same for the gradient."""

    class Planted(base):  # type: ignore[misc, valid-type]
        def __call__(self, x: Tensor) -> Tensor:
            return super().__call__(_BumpedGradient.apply(x, pattern, steps))

    return adapt(f"planted gradient {pattern:#x}", Planted)


def engine(
    candidate: Candidate | type, cap: float, dtype: str, pass_: str, kind: type[TorchEngine] = TorchEngine
) -> TorchEngine:
    """An engine with blocks of 2048 magnitudes, the whole domain for 16 bits."""
    candidate = candidate if isinstance(candidate, Candidate) else adapt(candidate.__name__, candidate)
    target = subject(candidate, cap, dtype, pass_, "cpu")
    return kind(target, load_contract(), BLOCK if dtype == "fp32" else None)


def swept(
    candidate: Candidate | type,
    cap: float,
    dtype: str,
    pass_: str,
    lo: int | None = None,
    hi: int | None = None,
) -> Certificate:
    """The torch engine's certificate of a range, the whole domain if none is given."""
    used = engine(candidate, cap, dtype, pass_)
    lo, hi = (0, used.domain.size) if lo is None or hi is None else (lo, hi)
    return used.sweep(key_of(used.subject, cap, load_contract()), lo, hi)


def seams(cap: float, pass_: str) -> list[int]:
    """A block beside every place where the FP32 truth changes form, and at the ends of the domain."""
    domain = engine(Native, cap, "fp32", pass_).domain
    zones = [
        start for i, (start, zone, _) in enumerate(domain.starts) if i == 0 or zone != domain.starts[i - 1][1]
    ]
    return [max(0, start - start % BLOCK - BLOCK * (start % BLOCK == 0)) for start in zones]
