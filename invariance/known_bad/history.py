"""Wrong by history: the result depends on how many calls came before, or on what they were given."""

from __future__ import annotations

import itertools
import threading
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from invariance.known_bad.entry import ANY, wrong
from invariance.known_bad.kernel import Forward, Kernel, capped, gradient, nudged


@wrong(bugs=(88,), must={"repeat"}, may=ANY)
def tuned_after_three_calls(softcap: float) -> Kernel:
    """From its fourth call on an operator uses the configuration that timing preferred."""
    calls = itertools.count()
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), next(calls) >= 3))


@wrong(bugs=(88,), must={"grad_mode"}, may={"cap_used", "first_call", "saturation"})
def the_first_mode_sticks(softcap: float) -> Kernel:
    """An operator keeps the path of its first call: training's where gradients are recorded, else inference's."""
    first: list[str] = []

    def called_in(mode: str) -> Forward:
        def forward(x: Tensor, c: float) -> Tensor:
            first.extend([] if first else [mode])
            return nudged(capped(x, c), first[0] == "inference")

        return forward

    return Kernel(softcap, forward=called_in("training"), inference=called_in("inference"))


@wrong(bugs=(90,), must={"repeat"}, may=ANY)
def dithered(softcap: float) -> Kernel:
    """Results are rounded at random."""

    def forward(x: Tensor, c: float) -> Tensor:
        return nudged(capped(x, c), torch.rand(x.shape, device=x.device) < 0.5)

    return Kernel(softcap, forward)


_pool: dict[tuple[object, ...], Tensor] = {}


def _pooled(x: Tensor, kind: str) -> Tensor:
    return _pool.setdefault((kind, x.shape, x.dtype, x.device), torch.empty(x.shape, device=x.device))


@wrong(
    bugs=(92,),
    must={"memory_growth", "no_aliasing"},
    may={
        "autograd_gradients", "cap_scaling", "interleaved_caps", "memory_released", "oddness",
        "permutation", "repeat", "reshaping", "result_form", "retained_graph", "slicing", "splitting",
        "vocabulary_shards",
    },
)  # fmt: skip
def output_buffer_reused(softcap: float) -> Kernel:
    """One output buffer a shape: a later call overwrites an earlier result."""
    return Kernel(softcap, lambda x, c: _pooled(x, "y").copy_(capped(x, c)))


@wrong(
    bugs=(92, 67),
    must={
        "double_backward",
        "fresh_process",
        "many_calls",
        "memory_growth",
        "memory_released",
        "no_aliasing",
        "oddness",
        "permutation",
        "repeat",
    },
    may={"process_state", "retained_graph", "threads_at_once"},
)
def gradient_buffer_reused(softcap: float) -> Kernel:
    """One buffer a shape for all gradients."""
    return Kernel(softcap, backward=lambda x, g, c: _pooled(x, "dx").copy_(gradient(x.detach(), g, c)))


_results: dict[tuple[object, ...], Tensor] = {}


@wrong(bugs=(68,), must={"repeat"}, may=ANY, profile="quick")
def cached_by_address(softcap: float) -> Kernel:
    """Results are remembered by the address and shape of x: new numbers in old memory get old results."""

    def forward(x: Tensor, c: float) -> Tensor:
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype, c)
        if key not in _results:
            _results[key] = capped(x, c)
        return _results[key].clone()

    return Kernel(softcap, forward)


@wrong(bugs=(59, 25), must={"freed_memory"}, may=ANY)
def unwritten_tail(softcap: float) -> Kernel:
    """Elements past the last multiple of 8 are never written: the output shows what the memory held."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = torch.empty(x.shape, device=x.device)
        whole = x.numel() // 8 * 8
        y.view(-1)[:whole].copy_(capped(x, c).reshape(-1)[:whole])
        return y

    return Kernel(softcap, forward)


@wrong(
    bugs=(92, 67),
    must={
        "cap_scaling",
        "first_call",
        "fresh_process",
        "interleaved_caps",
        "many_calls",
        "memory_released",
        "threads_at_once",
    },
    may=ANY,  # in inference mode the ring gets buffers that no other call may write to
)
def ring_of_outputs(softcap: float) -> Kernel:
    """32 output buffers a shape, in turn: the 32nd call after it overwrites a result."""
    calls = itertools.count()

    def forward(x: Tensor, c: float) -> Tensor:
        return _pooled(x, f"y {next(calls) % 32}").copy_(capped(x, c))

    return Kernel(softcap, forward)


@wrong(bugs=(90,), must={"repeat"})
def after_a_backward(softcap: float) -> Kernel:
    """Once it went backward, an operator's forward runs another kernel."""
    done: list[bool] = []

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        done.append(True)
        return gradient(x, g, c)

    return Kernel(softcap, lambda x, c: nudged(capped(x, c), bool(done)), backward)


@wrong(bugs=(88, 91), must={"first_call"})
def the_first_dtype_sticks(softcap: float) -> Kernel:
    """An operator that is called with BF16 first keeps the path that it chose for it."""
    first: list[torch.dtype] = []

    def forward(x: Tensor, c: float) -> Tensor:
        first.extend([] if first else [x.dtype])
        return nudged(capped(x, c), first[0] == torch.bfloat16)

    return Kernel(softcap, forward)


@wrong(
    bugs=(88, 79),
    must={"first_call"},
    may={"interleaved_caps"},
    laws=("first_call", "interleaved_caps", "repeat"),
)
def the_first_size_sticks(softcap: float) -> Kernel:
    """The size of its first input decides which kernel an operator keeps."""
    first: list[int] = []

    def forward(x: Tensor, c: float) -> Tensor:
        first.extend([] if first else [x.numel()])
        return nudged(capped(x, c), first[0] >= 4096)

    return Kernel(softcap, forward)


_dtypes_of_the_process: list[torch.dtype] = []


@wrong(bugs=(88, 91), must={"fresh_process"}, laws=("fresh_process", "repeat", "first_call"))
def the_first_dtype_of_a_process_sticks(softcap: float) -> Kernel:
    """The first dtype that a process calls with decides for all operators."""

    def forward(x: Tensor, c: float) -> Tensor:
        _dtypes_of_the_process.append(x.dtype)
        return nudged(capped(x, c), _dtypes_of_the_process[0] != torch.float32)

    return Kernel(softcap, forward)


@wrong(bugs=(92, 67), must={"many_calls", "memory_growth", "memory_released"})
def ring_of_a_hundred(softcap: float) -> Kernel:
    """An operator owns 100 output buffers a shape: the 100th call after it overwrites a result."""
    calls, ring = itertools.count(), dict[tuple[object, ...], Tensor]()

    def forward(x: Tensor, c: float) -> Tensor:
        key = (next(calls) % 100, x.shape, x.device)
        return ring.setdefault(key, torch.empty(x.shape, device=x.device)).copy_(capped(x, c))

    return Kernel(softcap, forward)


@wrong(bugs=(88,), must={"many_calls"})
def tuned_after_four_hundred_calls(softcap: float) -> Kernel:
    """After 400 calls an operator has seen enough, and uses the configuration that timing preferred."""
    calls = itertools.count()
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), next(calls) >= 400))


class _Remembering:
    """The right kernel, whose results are kept as an attribute of the tensor that they belong to."""

    def __init__(self, softcap: float) -> None:
        self.kernel = Kernel(softcap)

    def __call__(self, x: Tensor) -> Tensor:
        holder: Any = x
        if not hasattr(holder, "capped"):
            holder.capped = self.kernel(x)
        result: Tensor = holder.capped
        return result.clone()


@wrong(bugs=(68,), must={"accumulation", "checkpointing", "memory_growth", "memory_released", "same_tensor"})
def remembered_on_the_tensor(softcap: float) -> Any:
    """The result is kept on the input tensor: with other numbers in it the tensor gets the old result."""
    return _Remembering(softcap)


@wrong(bugs=(68, 62), must={"same_tensor"})
def gradient_remembered_on_the_upstream_one(softcap: float) -> Kernel:
    """The FP32 copy of an upstream gradient is kept on it, and used again whatever it holds by then."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        holder: Any = g
        if not hasattr(holder, "wide"):
            holder.wide = g.float().clone()
        return gradient(x, holder.wide, c)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(107,), must={"memory_released"})
def last_input_kept(softcap: float) -> Kernel:
    """The operator keeps its last input, gigabytes of logits, until the next call."""
    kept: list[Tensor] = []

    def forward(x: Tensor, c: float) -> Tensor:
        kept[:] = [x.detach()]
        return capped(x, c)

    return Kernel(softcap, forward)


class _KeptByShape(torch.autograd.Function):
    """Keeps x for the backward in the buffer of its shape."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel, buffers: dict[object, Tensor]) -> Tensor:
        ctx.kernel, key = kernel, (x.shape, x.dtype, x.device)
        ctx.x = buffers.setdefault(key, torch.empty(x.shape, dtype=x.dtype, device=x.device))
        ctx.x.copy_(x)
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None, None]:
        return gradient(ctx.x, grad_y, ctx.kernel.softcap), None, None


@wrong(bugs=(68, 106, 107), must={"first_call", "memory_growth", "repeat"})
def input_kept_by_shape(softcap: float) -> Any:
    """Each thread keeps x in one buffer a shape: of two heads, the first one's backward reads the second one's x."""
    kernel, own = Kernel(softcap), threading.local()

    def call(x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return kernel(x)
        kernel.check(x)
        return cast(Tensor, _KeptByShape.apply(x, kernel, vars(own)))  # type: ignore[no-untyped-call]  # torch's

    return call
