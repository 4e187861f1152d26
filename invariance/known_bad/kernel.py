"""The shared right kernel, with a hook in every place where an entry of the catalogue is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from oracles.formats import cap_as_fp32

Forward = Callable[[Tensor, float], Tensor]
Backward = Callable[[Tensor, Tensor, float], Tensor]

ACCEPTED = (torch.float16, torch.bfloat16, torch.float32)


def capped(x: Tensor, c: float) -> Tensor:
    """`c * tanh(x / c)` in FP32, for x of any dtype."""
    return c * torch.tanh(x.to(torch.float32) / c)


def gradient(x: Tensor, grad_y: Tensor, c: float) -> Tensor:
    """`grad_y * (1 - tanh(x / c) ** 2)` in FP32, cast once to the dtype of x."""
    return (grad_y * slope(x, c)).to(x.dtype)


def slope(x: Tensor, c: float) -> Tensor:
    """`1 - tanh(x / c) ** 2` in FP32."""
    t = torch.tanh(x.to(torch.float32) / c)
    return 1 - t * t


class Gradient(torch.autograd.Function):
    """`gradient` with its own derivative, by x and by grad_y, written out."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, grad_y: Tensor, c: float) -> Tensor:
        """dx, of the dtype of x."""
        ctx.c = c
        ctx.save_for_backward(x, grad_y)
        return gradient(x, grad_y, c)

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor, None]:
        """Of `h * dx`."""
        x, grad_y = ctx.saved_tensors
        s, t = slope(x, ctx.c), torch.tanh(x.to(torch.float32) / ctx.c)
        return (h * grad_y * (-2 * t * s / ctx.c)).to(x.dtype), (h * s).to(grad_y.dtype), None


def refuse_dtypes(x: Tensor) -> None:
    """TypeError unless the dtype is one that a softcap takes."""
    if x.dtype not in ACCEPTED:
        raise TypeError(f"softcap takes fp16, bf16 and fp32, not {x.dtype}")


@dataclass
class Kernel:
    """The right kernel, FP32 out, where no hook says otherwise.

    softcap: the cap as given. forward: y of (x, c), called without gradients. backward: dx of (x, grad_y, c).
    inference: y where no graph is recorded, as `forward` unless given. check: refuses inputs. cap: the number given
    -> the number used, or an error.
    """

    softcap: Any
    forward: Forward = capped
    backward: Backward = gradient
    inference: Forward | None = None
    check: Callable[[Tensor], None] = refuse_dtypes
    cap: Callable[[Any], float] = cap_as_fp32

    def __post_init__(self) -> None:
        self.softcap = self.cap(self.softcap)

    def __call__(self, x: Tensor) -> Tensor:
        """The operator."""
        if torch.is_grad_enabled() and x.requires_grad:
            return self.applied(x)
        self.check(x)
        return (self.inference or self.forward)(x, self.softcap)

    def applied(self, x: Tensor) -> Tensor:
        """The operator as a Function whether or not a graph is recorded: a tangent is then refused, not dropped."""
        self.check(x)
        return cast(Tensor, _Applied.apply(x, self))  # type: ignore[no-untyped-call]  # torch's

    def replace(self, **hooks: Any) -> Kernel:
        """The same kernel with other hooks."""
        return replace(self, **hooks)


class _Applied(torch.autograd.Function):
    """Saves x as autograd wants it saved; the backward is made of what the kernel's hook is made of."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(x)
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.kernel.backward(x, grad_y, ctx.kernel.softcap), None


class _SavesOutput(torch.autograd.Function):
    """Saves y as autograd wants it, and takes the slope from it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        y = kernel.forward(x, kernel.softcap)
        ctx.kernel, ctx.dtype = kernel, x.dtype
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        t = ctx.saved_tensors[0] / ctx.kernel.softcap
        return (grad_y * (1 - t * t)).to(ctx.dtype), None


def saving_the_output(x: Tensor, kernel: Kernel) -> Tensor:
    """The kernel on x through a Function that keeps y instead of x."""
    kernel.check(x)
    return cast(Tensor, _SavesOutput.apply(x, kernel))  # type: ignore[no-untyped-call]  # torch's


def nudged(y: Tensor, where: Tensor | bool = True) -> Tensor:
    """y moved one representable value towards zero, where asked; zeros, NaN and infinities stay."""
    movable = (y != 0) & y.isfinite() & where
    return torch.where(movable, torch.nextafter(y, torch.zeros_like(y)), y)


def place(x: Tensor) -> Tensor:
    """The logical position of every element, shaped like x."""
    return torch.arange(x.numel(), device=x.device).view(x.shape)


def read_flat(x: Tensor) -> Tensor:
    """What a kernel reads that takes the memory from the pointer on for the elements, zeros past its end."""
    count = x.untyped_storage().nbytes() // x.element_size()
    memory = x.as_strided((count,), (1,), 0)[x.storage_offset() :][: x.numel()]
    return torch.cat([memory, memory.new_zeros(x.numel() - memory.numel())]).view(x.shape)


def repeats_in_the_middle(t: Tensor) -> bool:
    """Whether stride 0 repeats a tensor of three dimensions or more along the last but one, and along no outer one."""
    return t.dim() > 2 and t.stride(0) != 0 and t.stride(-2) == 0 and t.shape[-2] > 1 and t.stride(-1) != 0
