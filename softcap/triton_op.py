"""The Triton operator: argument checks, autograd and the launch of the two kernels."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from softcap.contract import DEFAULT_SOFTCAP, INPUT_DTYPES, check_cap, check_input
from softcap.kernels import BLOCK, softcap_backward_kernel, softcap_forward_kernel
from softcap.launch import Launcher

# Without fusion 1 - t*t is a product and a difference, with it an fma, and Triton changes its default.
# Without it the gradient has the bits of the reference formula.
ENABLE_FP_FUSION = False

# 128 threads on both vendors, with eight elements of a block each: two accesses in flight, and half the address
# arithmetic of four elements.
NUM_WARPS = 2 if torch.version.hip else 4

# Up to SMALL elements there are too few blocks to fill a large GPU: 256 threads with two elements each are done
# sooner (262144 elements in a CUDA graph on an H200: 1.74 us, where blocks of 1024 take 2.2).
SMALL = 1 << 18
SMALL_BLOCK = 512
SMALL_NUM_WARPS = 2 * NUM_WARPS


def configuration(n: int) -> tuple[int, int]:
    """Elements and warps of a program in a launch over ``n`` elements."""
    return (SMALL_BLOCK, SMALL_NUM_WARPS) if n <= SMALL else (BLOCK, NUM_WARPS)


def _launcher(kernel: Any, n: int) -> Launcher:
    """How ``kernel`` is launched over ``n`` elements."""
    block, num_warps = configuration(n)
    return Launcher(kernel, block, num_warps=num_warps, enable_fp_fusion=ENABLE_FP_FUSION)


_small_forward, _large_forward = (_launcher(softcap_forward_kernel, n) for n in (SMALL, SMALL + 1))
_small_backward, _large_backward = (_launcher(softcap_backward_kernel, n) for n in (SMALL, SMALL + 1))

_FIRST_ORDER_ONLY = (
    "TritonFinalLogitSoftcapOp supports first-order gradients only; "
    "NativeFinalLogitSoftcapOp has those of second order too"
)


class _Softcap(torch.autograd.Function):
    """Saves the contiguous input in its own dtype and recomputes tanh in the backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, softcap: float) -> Tensor:
        ctx.softcap = softcap
        ctx.save_for_backward(x)
        return _forward(x, softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        grad_x = _backward(x, grad_y, ctx.softcap)
        # Gradients are enabled here exactly under create_graph.  once_differentiable looks at grad_y alone
        # and lets a second derivative through x vanish silently when grad_y is constant.
        if torch.is_grad_enabled():
            grad_x = _FirstOrderOnly.apply(grad_x, x, grad_y)  # type: ignore[no-untyped-call]  # torch's
        return grad_x, None


# What apply of torch.autograd.Function comes to here, without its search for setup_context (2.6 us of 21).
_node = super(torch.autograd.Function, _Softcap).apply
# And what the node's apply comes to in the backward, without its look at which of two methods was overridden.
_Softcap._backward_cls.apply = _Softcap.backward  # type: ignore[attr-defined]  # torch's metaclass makes it


class _FirstOrderOnly(torch.autograd.Function):
    """The identity on ``grad_x``, tied to what it depends on, so that differentiating it is an error."""

    @staticmethod
    def forward(_ctx: Any, grad_x: Tensor, _x: Tensor, _grad_y: Tensor) -> Tensor:
        return grad_x.view_as(grad_x)

    @staticmethod
    def backward(_ctx: Any, *_: Tensor) -> tuple[Tensor, ...]:
        raise RuntimeError(_FIRST_ORDER_ONLY)


def _plain(tensor: Tensor) -> Tensor:
    """``tensor`` with its values in memory in order: contiguous, and not a lazily negated view."""
    if tensor.is_contiguous() and not tensor.is_neg():
        return tensor
    return tensor.contiguous().resolve_neg()


def _forward(x: Tensor, softcap: float) -> Tensor:
    # Contiguous as x is: memory_format= would say it again, for a tenth of the call.
    y = torch.empty_like(x, dtype=torch.float32)
    n = x.numel()
    if n:
        launch = _small_forward if n <= SMALL else _large_forward
        launch(softcap, n, x, y)
    return y


def _backward(x: Tensor, grad_y: Tensor, softcap: float) -> Tensor:
    # Hooks on saved tensors may give x back in another layout.
    if not (x.is_contiguous() and grad_y.is_contiguous()) or x.is_neg() or grad_y.is_neg():
        x, grad_y = _plain(x), _plain(grad_y)
    grad_x = torch.empty_like(x)
    n = x.numel()
    if n:
        launch = _small_backward if n <= SMALL else _large_backward
        launch(softcap, n, x, grad_y, grad_x)
    return grad_x


class TritonFinalLogitSoftcapOp:
    """``y = c * tanh(x / c)`` in FP32 with Triton kernels, for CUDA and ROCm tensors.

    ``softcap``: any real number that is finite and positive in FP32, else ValueError; the attribute of that
    name holds the FP32 value.  Inputs: FP16, BF16 or FP32 of any shape and layout, else TypeError; a tensor
    that is not on a GPU is a RuntimeError.  Output: FP32, contiguous.  First-order gradients only:
    differentiating a gradient raises RuntimeError.  Under ``torch.compile`` each launch is one
    opaque node, with the same bits.
    """

    def __init__(self, softcap: object = DEFAULT_SOFTCAP) -> None:
        self.softcap = check_cap(softcap)

    def forward(self, x: Tensor) -> Tensor:
        """The capped values in FP32, in the shape of ``x`` and on its device."""
        if is_compiling():
            check_input(x)
            return cast(Tensor, opaque_forward(x, self.softcap))
        # What is asked here of every call is written out: a function each would be a tenth of a decode-sized call.
        if getattr(x, "dtype", None) not in INPUT_DTYPES or not x.is_cuda:
            _refuse(x)
        if not x.is_contiguous() or x.is_neg():
            x = _plain(x)
        # A node is built only when a gradient can flow.  Under forward-mode AD it is built too, and says that it
        # has no tangent, where a bare launch would drop the tangent in silence.
        if (x.requires_grad and torch.is_grad_enabled()) or forward_ad._current_level >= 0:
            transformed = torch._C._are_functorch_transforms_active()
            apply = _Softcap.apply if transformed else _node
            y: Tensor = apply(x, self.softcap)  # type: ignore[no-untyped-call]  # torch's
            return y
        return _forward(x, self.softcap)

    __call__ = forward

    def __repr__(self) -> str:
        return f"{type(self).__name__}(softcap={self.softcap!r})"


def _refuse(x: Tensor) -> None:
    """Raise what is wrong with ``x``: TypeError for its dtype, else RuntimeError for where it is."""
    check_input(x)
    if not x.is_cuda:
        raise RuntimeError(
            f"TritonFinalLogitSoftcapOp needs a CUDA or ROCm tensor, got one on {x.device}; "
            "move it to a GPU or use NativeFinalLogitSoftcapOp"
        )


# Under torch.compile the launches are opaque operators: Dynamo can trace the kernels, but it cannot carry
# enable_fp_fusion to them, and an inlined launch would have other gradient bits.
_NAMESPACE = __name__.replace(".", "_")


def _regular(x: Tensor) -> Tensor:
    """``x`` in memory in order, with the strides that a compiled graph is told: a side of 1 may have any other."""
    return _plain(x).flatten().view(x.shape)


@torch.library.custom_op(f"{_NAMESPACE}::forward", mutates_args=())
def opaque_forward(x: Tensor, softcap: float) -> Tensor:
    """The forward launch as one node of a compiled graph; FP32, contiguous."""
    if not x.is_cuda:
        _refuse(x)
    return _forward(_regular(x), softcap)


@torch.library.custom_op(f"{_NAMESPACE}::backward", mutates_args=())
def opaque_backward(x: Tensor, grad_y: Tensor, softcap: float) -> Tensor:
    """The backward launch as one node of a compiled graph; in the dtype of x, contiguous."""
    return _backward(_regular(x), grad_y, softcap)


@opaque_forward.register_fake
def _(x: Tensor, _: float) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)


@opaque_backward.register_fake
def _(x: Tensor, _grad_y: Tensor, _: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:  # noqa: ARG001  # torch's signature
    x, ctx.softcap = inputs
    ctx.save_for_backward(x)


def _opaque_gradient(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
    (x,) = ctx.saved_tensors
    return opaque_backward(x, grad_y, ctx.softcap), None


opaque_forward.register_autograd(_opaque_gradient, setup_context=_save)
