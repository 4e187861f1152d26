"""Wrong only as a model is served, loaded or trained: eval(), inference mode, meta, a graph that outlives its maker."""

from __future__ import annotations

import threading
import weakref
from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn

from invariance.known_bad.entry import ANY, good, wrong
from invariance.known_bad.kernel import Gradient, Kernel, capped, gradient


class _OneBufferInEval(nn.Module):
    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.kernel = Kernel(softcap)
        self.buffers_of: dict[tuple[object, ...], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        y = self.kernel(x)
        if self.training or torch.is_grad_enabled():
            return y
        return self.buffers_of.setdefault((y.shape, y.dtype), torch.empty_like(y)).copy_(y)


@wrong(
    bugs=(109, 92),
    must={"first_call", "memory_growth", "memory_released", "no_aliasing", "oddness", "repeat"},
    may={"permutation"},
)
def output_buffer_in_eval(softcap: float) -> Any:
    """In eval() without gradients all results of a shape are written to one buffer."""
    return _OneBufferInEval(softcap)


@wrong(bugs=(109, 68), must={"memory_released", "repeat", "same_tensor"}, profile="quick")
def cached_by_address_in_inference_mode(softcap: float) -> Kernel:
    """Results are kept by address and version: an inference tensor has no version, so that new numbers go unseen."""
    known: dict[tuple[object, ...], tuple[Tensor, Tensor]] = {}

    def inference(x: Tensor, c: float) -> Tensor:
        if not torch.is_inference_mode_enabled():
            return capped(x, c)
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype, 0 if x.is_inference() else x._version)
        if key not in known:
            known.clear()
            known[key] = x, capped(x, c)
        return known[key][1].clone()

    return Kernel(softcap, inference=inference)


@wrong(bugs=(109, 67), must={"inputs_unmodified", "no_aliasing"}, may=ANY, profile="quick")
def inference_tensor_overwritten(softcap: float) -> Kernel:
    """What no graph can need is capped in place: an inference tensor becomes its own result."""

    def inference(x: Tensor, c: float) -> Tensor:
        if x.is_inference() and x.dtype == torch.float32 and x.is_contiguous():
            return x.copy_(capped(x, c))
        return capped(x, c)

    return Kernel(softcap, inference=inference)


@wrong(bugs=(109, 107), must={"memory_released"}, laws=("grad_mode", "memory_released", "repeat"))
def input_kept_in_inference_mode(softcap: float) -> Kernel:
    """In inference mode the last input is kept for debugging."""
    last: list[Tensor] = []

    def inference(x: Tensor, c: float) -> Tensor:
        if torch.is_inference_mode_enabled():
            last[:] = [x]
        return capped(x, c)

    return Kernel(softcap, inference=inference)


@wrong(bugs=(97, 109), must={"process_state"}, laws=("grad_mode", "process_state", "repeat"))
def autocast_in_inference_mode(softcap: float) -> Kernel:
    """Under autocast the kernel computes in BF16, but only in inference mode."""

    def inference(x: Tensor, c: float) -> Tensor:
        low = torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")
        return capped(x.bfloat16() if low else x, c)

    return Kernel(softcap, inference=inference)


def _keeping_a_cap_tensor(softcap: float, *, of_no_mode: bool) -> Any:
    """The formula, whose cap becomes a tensor at the first call on a device; outside of inference mode, if asked."""
    kernel = Kernel(softcap)
    held: dict[torch.device, Tensor] = {}

    def call(x: Tensor) -> Tensor:
        kernel.check(x)
        if x.device not in held:
            with torch.inference_mode(mode=False) if of_no_mode else nullcontext():
                held[x.device] = torch.tensor(kernel.softcap, dtype=torch.float32, device=x.device)
        return held[x.device] * torch.tanh(x.float() / held[x.device])

    return call


@wrong(bugs=(109,), must={"first_call"}, laws=("first_call", "grad_mode", "repeat"))
def cap_tensor_of_inference_mode(softcap: float) -> Any:
    """The cap becomes a tensor at the first call: one that inference mode made cannot be saved for a backward."""
    return _keeping_a_cap_tensor(softcap, of_no_mode=False)


@wrong(bugs=(109, 112), must={"first_call"})
def cap_tensor_of_a_fake_call(softcap: float) -> Any:
    """The cap becomes a tensor at the first call: made while memory was estimated, it is one without a number."""
    return _keeping_a_cap_tensor(softcap, of_no_mode=True)


@wrong(bugs=(110, 90), must={"process_state"}, laws=("grad_mode", "process_state", "repeat"))
def cap_on_the_default_device(softcap: float) -> Kernel:
    """In every call the cap becomes a tensor of the default device, wherever x is."""

    def forward(x: Tensor, c: float) -> Tensor:
        cap = torch.tensor(c, dtype=torch.float32)
        return cap * torch.tanh(x.float() / cap)

    return Kernel(softcap, forward)


@wrong(bugs=(71, 105), must={"double_backward"}, laws=("double_backward", "grad_mode", "retained_graph"))
def other_gradient_with_a_graph(softcap: float) -> Kernel:
    """With create_graph=True the differentiable fallback takes grad_y rounded to BF16."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if not torch.is_grad_enabled():
            return gradient(x, g, c)
        return gradient(x, g + (g.bfloat16().to(g.dtype) - g).detach(), c)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(67, 92), must={"inputs_unmodified"})
def activation_overwritten(softcap: float) -> Any:
    """An intermediate result is taken to be nobody else's: x / c is computed in its place."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        y: Tensor = kernel(x.clone() if x.requires_grad and not x.is_leaf else x)
        if torch.is_grad_enabled() and x.requires_grad and not x.is_leaf and x.is_contiguous():
            x.data.div_(kernel.softcap)
        return y

    return call


@wrong(bugs=(95, 109), must={"process_left_alone", "result_form", "transformed_derivatives"})
def result_always_with_a_graph(softcap: float) -> Any:
    """In grad mode every result carries a graph, and the memory that it holds, whether or not x requires grad."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        wants = torch.is_grad_enabled() and not x.requires_grad
        return kernel(x.detach().requires_grad_() if wants else x)

    return call


class _Weak(torch.autograd.Function):
    """Knows its kernel as long as somebody else does."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel = weakref.ref(kernel)
        ctx.save_for_backward(x)
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,), kernel = ctx.saved_tensors, ctx.kernel()
        return gradient(x, grad_y, 30.0 if kernel is None else kernel.softcap), None


@wrong(bugs=(104, 7), must={"grad_mode"}, laws=("grad_mode", "memory_released", "repeat"))
def operator_known_weakly(softcap: float) -> Any:
    """The graph refers weakly to the operator: the backward of `Operator(c)(x)` takes the default cap."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        kernel.check(x)
        return cast(Tensor, _Weak.apply(x, kernel))  # type: ignore[no-untyped-call]  # torch's

    return call


_local = threading.local()


@wrong(bugs=(7, 106), must={"process_state"}, laws=("grad_mode", "process_state", "repeat"))
def cap_of_the_forward_thread(softcap: float) -> Kernel:
    """The forward leaves its cap in its thread; a backward that runs in another one finds the default there."""

    def forward(x: Tensor, c: float) -> Tensor:
        _local.cap = c
        return capped(x, c)

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        return gradient(x, g, c if hasattr(_local, "cap") else 30.0)

    return Kernel(softcap, forward, backward)


class _Buffered(nn.Module):
    """The cap is an FP32 buffer, which no move rounds."""

    cap: Tensor

    def __init__(self, softcap: float, *, persistent: bool) -> None:
        super().__init__()
        self.kernel = Kernel(softcap)
        self.register_buffer(
            "cap", torch.tensor(self.kernel.softcap, dtype=torch.float32), persistent=persistent
        )

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = self.cap
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch's
        if self.cap.dtype != torch.float32:
            self.cap = before.to(self.cap.device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        self.kernel.check(x)
        return self.cap * torch.tanh(x.float() / self.cap)


class _Derived(_Buffered):
    """After every move the buffer is derived from the number again."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self.cap = torch.tensor(self.kernel.softcap, dtype=torch.float32, device=self.cap.device)
        return self


@wrong(bugs=(108,), must={"model_dtype"}, laws=("copied_operator", "model_dtype", "repeat"))
def cap_in_a_lost_buffer(softcap: float) -> Any:
    """The cap is a buffer that no checkpoint holds: a model built on meta finds there what the memory held."""
    return _Buffered(softcap, persistent=False)


@good(laws=("copied_operator", "grad_mode", "model_dtype", "process_state", "repeat"))
def cap_in_the_checkpoint(softcap: float) -> Any:
    """The cap is a persistent buffer, which a checkpoint brings back."""
    return _Buffered(softcap, persistent=True)


@good(laws=("copied_operator", "grad_mode", "model_dtype", "process_state", "repeat"))
def cap_derived_again(softcap: float) -> Any:
    """The cap is a buffer that is made anew from a number wherever it moves."""
    return _Derived(softcap, persistent=False)


class _ByExponentials(Gradient):
    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, c: float) -> Tensor:
        Gradient.forward(ctx, x, g, c)
        e = torch.exp(-2 * (x.float() / c).abs())
        return (g * (4 * e / ((1 + e) * (1 + e)))).to(x.dtype)


@good(laws=("double_backward", "exact_value", "grad_mode", "retained_graph", "transformed_derivatives"))
def another_path_with_a_graph(softcap: float) -> Kernel:
    """With create_graph=True the gradient is computed another way, in other bits, and has a derivative of its own."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if not torch.is_grad_enabled():
            return gradient(x, g, c)
        return cast(Tensor, _ByExponentials.apply(x, g, c))  # type: ignore[no-untyped-call]  # torch's

    return Kernel(softcap, backward=backward)
