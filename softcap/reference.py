"""The PyTorch reference: FP32 arithmetic on whatever device the input is on."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from softcap.contract import DEFAULT_SOFTCAP, check_cap, check_input


class _Softcap(torch.autograd.Function):
    """FP32 ``c * tanh(x / c)`` with the gradient ``g * (1 - tanh(x / c) ** 2)``.

    Plain autograd computes ``((g * c) * (1 - t * t)) / c``: the cap does not cancel, it overflows for
    finite g, and dx differs from g at x = 0 for one g in ten.  Here it cancels by construction.  The
    backward is made of differentiable operations on the saved input, so second-order gradients are right
    too.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, softcap: float) -> Tensor:
        return softcap * torch.tanh(x.to(torch.float32) / softcap)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG004  # torch's signature
        x, ctx.softcap = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return (grad_y * _slope(x, ctx.softcap)).to(x.dtype), None


class _SoftcapWithTangent(_Softcap):
    """The same, with forward-mode AD; apart because Dynamo refuses a Function that defines ``jvp``."""

    @staticmethod
    def jvp(ctx: Any, x_tangent: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        return x_tangent.to(torch.float32) * _slope(x, ctx.softcap)


def _slope(x: Tensor, softcap: float) -> Tensor:
    t = torch.tanh(x.to(torch.float32) / softcap)
    return 1 - t * t


class NativeFinalLogitSoftcapOp:
    """``y = c * tanh(x / c)`` in FP32 with PyTorch operations.

    ``softcap``: any real number that is finite and positive in FP32, else ValueError; the attribute of that
    name holds the FP32 value.  Inputs: FP16, BF16 or FP32 of any shape and layout on any device, else
    TypeError. Differentiable to second order, with forward-mode AD and vmap.
    """

    def __init__(self, softcap: object = DEFAULT_SOFTCAP) -> None:
        self.softcap = check_cap(softcap)

    def __call__(self, x: Tensor) -> Tensor:
        """``forward(x)``."""
        return self.forward(x)

    def forward(self, x: Tensor) -> Tensor:
        """The capped values in the dtype of ``x``: FP32 arithmetic, one cast at the end."""
        return self.forward_fp32(x).to(x.dtype)

    def forward_fp32(self, x: Tensor) -> Tensor:
        """The capped values in FP32; the gradient is computed in FP32 and cast once to the dtype of ``x``."""
        check_input(x)
        function = _Softcap if torch.compiler.is_compiling() else _SoftcapWithTangent
        return cast(Tensor, function.apply(x, self.softcap))  # type: ignore[no-untyped-call]  # torch's

    def __repr__(self) -> str:
        return f"{type(self).__name__}(softcap={self.softcap!r})"
