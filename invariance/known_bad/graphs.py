"""Wrong towards autograd: lost graphs, saved tensors that it does not know of, second passes, second derivatives."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from invariance.known_bad.entry import ANY, wrong
from invariance.known_bad.kernel import Gradient, Kernel, capped, gradient


def _dropping(softcap: float, lost: Any) -> Any:
    """The right kernel, whose result carries no graph where `lost(x)`."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        return kernel(x.detach() if lost(x) else x)

    return call


@wrong(bugs=(8, 60), must={"layout"}, may=ANY)
def no_graph_for_strided(softcap: float) -> Any:
    """A strided input takes a path that forgets the graph."""
    return _dropping(softcap, lambda x: not x.is_contiguous())


@wrong(bugs=(95,), must={"exact_value"}, may=ANY, dtypes=("bf16",))
def no_graph_in_bf16(softcap: float) -> Any:
    """BF16 inputs take an inference kernel, gradients or not."""
    return _dropping(softcap, lambda x: x.dtype == torch.bfloat16)


class _Hidden(torch.autograd.Function):
    """Keeps x on the context, where neither version checks nor saved-tensor hooks reach it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel, ctx.x = kernel, x.detach()
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        return ctx.kernel.backward(ctx.x, grad_y, ctx.kernel.softcap), None


class _Once(_Hidden):
    """Gives its memory away in the first backward."""

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        x, ctx.x = ctx.x, torch.zeros_like(ctx.x)
        return ctx.kernel.backward(x, grad_y, ctx.kernel.softcap), None


def _through(softcap: float, function: Any, kernel: Kernel | None = None) -> Any:
    """An operator that always goes through the function."""
    made = kernel or Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        made.check(x)
        return cast(Tensor, function.apply(x, made))

    return call


@wrong(bugs=(69,), must={"changed_in_place", "double_backward"})
def saved_behind_autograd(softcap: float) -> Any:
    """x is kept on the context: changed in place before the backward, it gives a silently wrong gradient."""
    return _through(softcap, _Hidden)


@wrong(bugs=(69,), must={"changed_in_place", "double_backward", "retained_graph"})
def one_backward_only(softcap: float) -> Any:
    """The second backward of a retained graph runs on zeros."""
    return _through(softcap, _Once)


@wrong(bugs=(71,), must={"double_backward"})
def half_a_second_derivative(softcap: float) -> Kernel:
    """The slope is detached: a second derivative through grad_y is right and the one through x is missing."""
    return Kernel(softcap, backward=lambda x, g, c: gradient(x.detach(), g, c))


class _Unsent(Gradient):
    """Its own derivative is that of a sum."""

    @staticmethod
    def backward(ctx: Any, h: Tensor) -> tuple[Tensor, Tensor, None]:
        dx, dg, _ = Gradient.backward(ctx, torch.ones_like(h))
        return dx, dg, None


@wrong(bugs=(71,), must={"double_backward"})
def second_derivative_of_a_sum(softcap: float) -> Kernel:
    """The second derivative takes what is sent to it for ones, as a sum sends them."""
    return Kernel(softcap, backward=lambda x, g, c: cast(Tensor, _Unsent.apply(x, g, c)))  # type: ignore[no-untyped-call]  # torch's


@wrong(bugs=(68, 69), must={"double_backward", "memory_released", "repeat", "threads_at_once"})
def saved_on_the_operator(softcap: float) -> Any:
    """x is kept on the operator: the backward uses the input of the last forward."""
    kernel = Kernel(softcap)
    kept: list[Tensor] = []

    def forward(x: Tensor, c: float) -> Tensor:
        kept[:] = [x.detach()]
        return capped(x, c)

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        last = kept[0].reshape(-1)[: x.numel()]
        return gradient(last.view(x.shape).to(x.dtype) if last.numel() == x.numel() else x, g, c)

    return kernel.replace(forward=forward, backward=backward)


class _Viewed(torch.autograd.Function):
    """Computes on a flat tensor, and returns a view of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(x)
        return kernel.forward(x.reshape(-1), kernel.softcap).view(x.shape)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.kernel.backward(x, grad_y, ctx.kernel.softcap), None


@wrong(bugs=(118,), must={"result_form"})
def view_of_a_flat_result(softcap: float) -> Any:
    """The Function returns a view: autograd refuses the mask that is written into the logits next."""
    return _through(softcap, _Viewed)


class _SpoilsOutput(torch.autograd.Function):
    """The backward takes y's memory for scratch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        y = kernel.forward(x, kernel.softcap)
        ctx.kernel, ctx.y = kernel, y.detach()
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        ctx.y.zero_()
        return ctx.kernel.backward(x, grad_y, ctx.kernel.softcap), None


class _OneBuffer(torch.autograd.Function):
    """All gradients of a graph in one buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel, ctx.dx = kernel, torch.empty(x.shape, dtype=x.dtype, device=x.device)
        ctx.save_for_backward(x)
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return ctx.dx.copy_(ctx.kernel.backward(x, grad_y, ctx.kernel.softcap).detach()), None


@wrong(bugs=(67, 92), must={"no_aliasing"})
def output_spoilt_by_backward(softcap: float) -> Any:
    """The backward uses y, which the caller still holds, for scratch."""
    return _through(softcap, _SpoilsOutput)


@wrong(bugs=(92, 69), must={"retained_graph"})
def one_gradient_buffer_a_graph(softcap: float) -> Any:
    """A second backward over a retained graph overwrites the first gradient."""
    return _through(softcap, _OneBuffer)


@wrong(bugs=(67, 68), must={"accumulation"})
def added_to_what_is_there(softcap: float) -> Kernel:
    """The backward adds to a gradient that x already has by itself, and autograd adds once more."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        there = x.grad if x.is_leaf else None
        dx = gradient(x, g, c)
        return dx if there is None else 2 * dx

    return Kernel(softcap, backward=backward)


@wrong(bugs=(67, 92), must={"accumulation"}, laws=("accumulation", "inputs_unmodified", "grad_mode"))
def gradient_dropped(softcap: float) -> Any:
    """A training step is taken to begin with the forward, which drops the gradient that x has."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        if x.is_leaf and x.requires_grad:
            x.grad = None
        return kernel(x)

    return call
