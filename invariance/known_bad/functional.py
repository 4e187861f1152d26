"""Wrong under torch.func: rules for batches and tangents that a plain call never runs."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from invariance.known_bad.entry import good, wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged, slope

_LAWS = ("function_transforms", "transformed_derivatives", "autograd_gradients", "grad_mode", "repeat")


class _Transformed(torch.autograd.Function):
    """The right kernel with every rule that torch.func asks for."""

    @staticmethod
    def forward(x: Tensor, c: float) -> Tensor:
        return capped(x, c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG004 - torch's
        x, ctx.c = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return gradient(x, grad_y, ctx.c), None

    @staticmethod
    def jvp(ctx: Any, v: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        return v.to(torch.float32) * slope(x, ctx.c)

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int, None], x: Tensor, c: float) -> tuple[Tensor, int]:  # noqa: ARG003 - torch's
        return cast(Tensor, cls.apply(x, c)), in_dims[0]  # type: ignore[no-untyped-call]  # torch's


@cache
def _registered(
    name: str,
    promised: torch.dtype | None = torch.float32,
    order: torch.memory_format = torch.contiguous_format,
) -> Any:
    """The right kernel as operators of torch.library, registered once; None promises the dtype of the input."""

    @torch.library.custom_op(f"softcap_known_bad::{name}", mutates_args=())
    def forward(x: Tensor, c: float) -> Tensor:
        return capped(x, c).contiguous()

    @torch.library.custom_op(f"softcap_known_bad::{name}_backward", mutates_args=())
    def backward(x: Tensor, grad_y: Tensor, c: float) -> Tensor:
        return gradient(x, grad_y, c).contiguous()

    forward.register_fake(lambda x, c: torch.empty_like(x, dtype=promised, memory_format=order))  # noqa: ARG005
    backward.register_fake(lambda x, grad_y, c: torch.empty_like(x, memory_format=order))  # noqa: ARG005

    def keep(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG001 - torch's
        x, ctx.c = inputs
        ctx.save_for_backward(x)

    forward.register_autograd(lambda ctx, g: (backward(ctx.saved_tensors[0], g, ctx.c), None), setup_context=keep)
    return forward


def _operating(operator: Any, softcap: float) -> Any:
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        kernel.check(x)
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:  # type: ignore[no-untyped-call]  # torch's
            raise NotImplementedError("this operator has no tangent")
        return cast(Tensor, operator(x, kernel.softcap))

    return call


@good()
def registered_operator(softcap: float) -> Any:
    """A custom operator with its gradient and fakes, which refuses tangents: torch would drop them without a word."""
    return _operating(_registered("right"), softcap)


@wrong(bugs=(112,), must={"traced"}, laws=("traced", "repeat"), dtypes=("bf16",))
def fake_of_another_dtype(softcap: float) -> Any:
    """The fake of a custom operator promises the dtype of the input, and the operator returns FP32."""
    return _operating(_registered("promising", None), softcap)


@wrong(bugs=(112,), must={"traced"}, elements=1 << 13)
def fake_of_other_strides(softcap: float) -> Any:
    """The fake of a custom operator promises the strides of the input, and the operator returns contiguous memory."""
    return _operating(_registered("striding", order=torch.preserve_format), softcap)


class _FirstDimension(_Transformed):
    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int, None], x: Tensor, c: float) -> tuple[Tensor, int]:  # noqa: ARG003 - torch's
        return cast(Tensor, cls.apply(x, c)), 0  # type: ignore[no-untyped-call]  # torch's


class _AnotherRounding(_Transformed):
    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int, None], x: Tensor, c: float) -> tuple[Tensor, int]:  # noqa: ARG003 - torch's
        return nudged(cls.apply(x, c)), in_dims[0]  # type: ignore[no-untyped-call]  # torch's


class _NoTangent(_Transformed):
    @staticmethod
    def jvp(ctx: Any, v: Tensor, _: None) -> Tensor:  # noqa: ARG004 - torch's
        return torch.zeros_like(v, dtype=torch.float32)


class _TangentOfTanh(_Transformed):
    @staticmethod
    def jvp(ctx: Any, v: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        tangent: Tensor = v.to(torch.float32) * slope(x, ctx.c) / ctx.c
        return tangent


def _through(softcap: float, function: Any) -> Any:
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        kernel.check(x)
        return cast(Tensor, function.apply(x, kernel.softcap))

    return call


class _BatchedGradient(torch.autograd.Function):
    """The gradient, whose rule lays out copies of an x that has no batch element by element, not one by one."""

    @staticmethod
    def forward(x: Tensor, grad_y: Tensor, c: float) -> Tensor:
        return gradient(x, grad_y, c)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, float], output: Tensor) -> None: ...

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, x: Tensor, grad_y: Tensor, c: float) -> tuple[Tensor, int]:
        copies = x.repeat_interleave(info.batch_size, 0).view(info.batch_size, *x.shape)
        x = copies if in_dims[0] is None else x.movedim(in_dims[0], 0)
        grad_y = grad_y.expand(x.shape) if in_dims[1] is None else grad_y.movedim(in_dims[1], 0)
        return cast(Tensor, cls.apply(x, grad_y, c)), 0  # type: ignore[no-untyped-call]  # torch's


class _CopiesForABatch(_Transformed):
    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return _BatchedGradient.apply(x, grad_y, ctx.c), None  # type: ignore[no-untyped-call]  # torch's


@wrong(bugs=(105,), must={"function_transforms"})
def gradients_of_a_batch_for_one_input(softcap: float) -> Any:
    """Of a batch of upstream gradients for one x, the rule for vmap copies x in the wrong order."""
    return _through(softcap, _CopiesForABatch)


@wrong(bugs=(105,), must={"function_transforms", "transformed_derivatives"}, laws=_LAWS)
def batches_over_the_first_dimension(softcap: float) -> Any:
    """The rule for vmap takes the first dimension for the batch, whichever it is."""
    return _through(softcap, _FirstDimension)


@wrong(bugs=(105, 79), must={"function_transforms"}, laws=_LAWS)
def batches_take_another_kernel(softcap: float) -> Any:
    """The rule for vmap calls a batched kernel, one ulp lower."""
    return _through(softcap, _AnotherRounding)


@wrong(bugs=(105, 95), must={"function_transforms", "transformed_derivatives"}, laws=_LAWS)
def no_graph_under_torch_func(softcap: float) -> Any:
    """Under torch.func, where its Function would be refused, the bare kernel runs: gradients and tangents are zeros."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        transformed = torch._C._are_functorch_transforms_active()
        return kernel(x.detach() if transformed else x)

    return call


@wrong(bugs=(105,), must={"transformed_derivatives"})
def zeros_for_a_tangent(softcap: float) -> Any:
    """The rule for forward-mode AD was never written: it gives zeros."""
    return _through(softcap, _NoTangent)


@wrong(bugs=(105, 17), must={"transformed_derivatives"}, laws=_LAWS)
def tangent_without_the_cap(softcap: float) -> Any:
    """The tangent is that of tanh(x / c): it is divided by the cap, and nothing multiplies by it."""
    return _through(softcap, _TangentOfTanh)


@wrong(bugs=(105, 95), must={"transformed_derivatives"}, laws=_LAWS)
def graph_dropped_where_none_is_seen(softcap: float) -> Any:
    """A bare kernel runs where x does not require grad: a dual number does not, nor does a batch that vmap makes."""
    kernel = Kernel(softcap)
    return lambda x: kernel(x) if x.requires_grad else kernel(x.detach())


@good(dtypes=("bf16", "fp32"))
def every_rule(softcap: float) -> Any:
    """A Function with rules of its own for vmap and for forward-mode AD."""
    return _through(softcap, _Transformed)
