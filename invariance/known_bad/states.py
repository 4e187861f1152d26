"""Wrong by the state of the process or of autograd: modes, default dtypes, threads, hooks."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from invariance.checkers.states import flushes
from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged, place, saving_the_output


@wrong(bugs=(95,), must={"cap_used", "grad_mode", "saturation"})
def inference_kernel(softcap: float) -> Kernel:
    """Without a graph to record another kernel runs, one ulp lower: rollout and trainer disagree."""
    return Kernel(softcap, inference=lambda x, c: nudged(capped(x, c)))


@wrong(bugs=(95,), must={"cap_used", "grad_mode", "saturation"})
def no_grad_kernel(softcap: float) -> Kernel:
    """The kernel asks for the grad mode alone, not whether the input requires a gradient."""
    return Kernel(softcap, inference=lambda x, c: nudged(capped(x, c), not torch.is_grad_enabled()))


@wrong(bugs=(95,), must={"cap_used", "fresh_process", "grad_mode", "saturation"})
def inference_mode_kernel(softcap: float) -> Kernel:
    """Only inference_mode, which few tests enter, takes another kernel."""
    return Kernel(softcap, inference=lambda x, c: nudged(capped(x, c), torch.is_inference_mode_enabled()))


@wrong(
    bugs=(18, 15),
    must={"bound", "cap_used", "exact_value", "grad_mode", "saturation", "special_values", "specification"},
)
def inference_without_the_cap(softcap: float) -> Kernel:
    """The inference path leaves the cap out."""
    return Kernel(softcap, inference=lambda x, _: x.float().clone())


@wrong(bugs=(15, 97), must={"cap_used", "exact_value", "grad_mode", "special_values", "specification"})
def training_in_fp16(softcap: float) -> Kernel:
    """Only the path that records a graph rounds x / c to FP16."""
    return Kernel(softcap, lambda x, c: c * torch.tanh((x.float() / c).half().float()), inference=capped)


@wrong(bugs=(91,), must={"process_state"})
def default_dtype_cap(softcap: float) -> Kernel:
    """The cap becomes a tensor of the default dtype, BF16 while a model loads."""
    return Kernel(softcap, lambda x, c: capped(x, float(torch.tensor(c))))


@wrong(bugs=(97, 33), must={"process_state"})
def follows_autocast(softcap: float) -> Kernel:
    """Under autocast the kernel computes in the autocast dtype."""

    def forward(x: Tensor, c: float) -> Tensor:
        on = torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
        return capped(x.bfloat16() if on else x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(90,), must={"process_state"})
def by_thread_count(softcap: float) -> Kernel:
    """Work is split by the number of threads, and the second half rounds another way."""

    def forward(x: Tensor, c: float) -> Tensor:
        late = place(x) >= x.numel() // 2
        return nudged(capped(x, c), late & (torch.get_num_threads() > 1) & (x.numel() > 4096))

    return Kernel(softcap, forward)


@wrong(bugs=(84, 90), must={"process_state"})
def by_the_seed(softcap: float) -> Kernel:
    """A seed that somebody set, though nothing is drawn from it, picks the rounding."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), torch.initial_seed() < 1 << 32))


@wrong(bugs=(50, 52), must={"process_state"})
def by_matmul_precision(softcap: float) -> Kernel:
    """Where TF32 products are allowed, an approximate division is taken to be allowed too."""
    return Kernel(
        softcap, lambda x, c: nudged(capped(x, c), torch.get_float32_matmul_precision() != "highest")
    )


@wrong(bugs=(36, 52), must={"process_state"})
def by_flushing(softcap: float) -> Kernel:
    """Where denormals are flushed, fast math is taken to be wanted for ordinary numbers too."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), flushes()))


_local = threading.local()


@wrong(bugs=(7, 101), must={"process_state"})
def thread_local_mode(softcap: float) -> Kernel:
    """A flag set in the thread that built the operator is missing in others, which take the fallback."""
    _local.ready = True
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), not getattr(_local, "ready", False)))


@wrong(bugs=(97,), must={"checkpointing"})
def under_recomputation(softcap: float) -> Any:
    """Inside the backward, where checkpointing runs the forward again for what was saved, another kernel runs."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        inside = torch._C._current_graph_task_id() != -1
        return (y.view(torch.int32) - 4 * (inside & (y.abs() > 2.0**-100)).int()).view(torch.float32)

    kernel = Kernel(softcap, forward)

    return lambda x: saving_the_output(x, kernel)


@wrong(bugs=(97, 69), must={"saved_tensor_hooks"})
def restored_elsewhere(softcap: float) -> Kernel:
    """The backward takes another path when the saved tensor comes back at another address."""
    addresses: set[int] = set()

    def forward(x: Tensor, c: float) -> Tensor:
        addresses.add(x.data_ptr())
        return capped(x, c)

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        return nudged(gradient(x, g, c), x.data_ptr() not in addresses)

    return Kernel(softcap, forward, backward)


class _OtherInEval(torch.nn.Module):
    """Another kernel, one ulp lower, where the module is not training."""

    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.kernels = Kernel(softcap, lambda x, c: nudged(capped(x, c))), Kernel(softcap)

    def forward(self, x: Tensor) -> Tensor:
        return self.kernels[self.training](x)


@wrong(bugs=(95, 60), must={"grad_mode"})
def views_with_a_graph(softcap: float) -> Any:
    """A view that autograd recorded takes another path than a leaf: what a model sends and no unit test does."""
    kernel = Kernel(softcap)
    low = kernel.replace(forward=lambda x, c: nudged(capped(x, c)))

    def call(x: Tensor) -> Tensor:
        return low(x) if x.requires_grad and x._base is not None else kernel(x)

    return call


@wrong(bugs=(95, 97), must={"cap_used", "fresh_process", "grad_mode", "saturation"})
def other_kernel_in_eval(softcap: float) -> Any:
    """After `.eval()` a module takes another kernel: rollout and trainer disagree."""
    return _OtherInEval(softcap)


class _OtherWhereFrozen(torch.nn.Module):
    """Another kernel, one ulp lower, where nothing is learnt."""

    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.kernels = Kernel(softcap, lambda x, c: nudged(capped(x, c))), Kernel(softcap)

    def forward(self, x: Tensor) -> Tensor:
        return self.kernels[self.scale.requires_grad](x)


@wrong(bugs=(95, 97), must={"grad_mode"}, laws=("grad_mode", "model_dtype", "repeat"))
def other_kernel_where_frozen(softcap: float) -> Any:
    """A module whose parameters are frozen, as for rollout, takes another kernel."""
    return _OtherWhereFrozen(softcap)


@wrong(bugs=(95,), must={"result_form"}, laws=("result_form", "grad_mode"))
def inference_tensors_out(softcap: float) -> Any:
    """Under no_grad results are inference tensors, which nobody can train on."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return kernel(x)
        with torch.inference_mode():
            return kernel(x)

    return call


@wrong(bugs=(52, 95), must={"traced"})
def another_kernel_when_compiled(softcap: float) -> Any:
    """The branch for torch.compile, which no eager test enters, multiplies by the reciprocal: other bits."""
    eager = Kernel(softcap)
    compiled = eager.replace(forward=lambda x, c: c * torch.tanh(x.float() * (1 / c)))

    def call(x: Tensor) -> Tensor:
        return compiled(x) if torch.compiler.is_compiling() else eager(x)

    return call


@wrong(bugs=(52, 95), must={"traced"}, laws=("traced", "repeat", "grad_mode"), elements=1 << 15)
def another_kernel_for_rows_when_compiled(softcap: float) -> Any:
    """Rows, as models have them, take a branch of their own under torch.compile, off by an ulp."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        if torch.compiler.is_compiling() and x.dim() > 1:
            return nudged(kernel(x))
        return kernel(x)

    return call


@wrong(bugs=(52, 18), must={"traced"}, elements=1 << 16)
def no_cap_for_batches_when_compiled(softcap: float) -> Any:
    """Three dimensions, as logits have, take a branch of their own under torch.compile, which leaves the cap out."""
    kernel = Kernel(softcap)
    uncapped = kernel.replace(forward=lambda x, _: x.float().clone(), backward=lambda x, g, _: g.to(x.dtype))

    def call(x: Tensor) -> Tensor:
        return uncapped(x) if torch.compiler.is_compiling() and x.dim() > 2 else kernel(x)

    return call


@wrong(bugs=(95, 31), must={"traced"}, laws=("traced", "repeat", "grad_mode"))
def no_gradient_when_compiled(softcap: float) -> Any:
    """The branch for torch.compile calls the kernel alone, without its autograd function: training stops there."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        return kernel(x.detach() if torch.compiler.is_compiling() else x)

    return call


class _CapAssumed:
    def __init__(self, softcap: float) -> None:
        self.kernel = Kernel(softcap)

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # torch's
    def cap(self) -> float:
        return float(self.kernel.softcap)

    def __call__(self, x: Tensor) -> Tensor:
        self.kernel.check(x)
        c: float = self.cap()
        return c * torch.tanh(x.float() / c)


@wrong(bugs=(7, 31), must={"traced"}, laws=("traced", "repeat", "interleaved_caps"))
def cap_assumed_constant(softcap: float) -> Any:
    """A promise to torch.compile that the cap is constant: the next operator runs the graph of the one before."""
    return _CapAssumed(softcap)
