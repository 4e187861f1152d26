"""Wrong by history: how often, after what and for the how-manieth time it is called."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from invariance.known_bad.entry import ANY, wrong
from invariance.known_bad.kernel import Forward, Kernel, capped, gradient, nudged


@wrong(bugs=(88,), must={"repeat"}, may=ANY)
def tuned_after_three_calls(softcap: float) -> Kernel:
    """From its fourth call on an operator uses the configuration that timing preferred."""
    calls = itertools.count()
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), next(calls) >= 3))


@wrong(bugs=(88,), must={"grad_mode"}, may=ANY)
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


@wrong(bugs=(92,), must={"no_aliasing"}, may=ANY)
def output_buffer_reused(softcap: float) -> Kernel:
    """One output buffer a shape: a later call overwrites an earlier result."""
    return Kernel(softcap, lambda x, c: _pooled(x, "y").copy_(capped(x, c)))


@wrong(
    bugs=(92, 67),
    must={"double_backward", "fresh_process", "no_aliasing", "oddness", "permutation", "repeat"},
    may={"retained_graph"},
)
def gradient_buffer_reused(softcap: float) -> Kernel:
    """One buffer a shape for all gradients."""
    return Kernel(softcap, backward=lambda x, g, c: _pooled(x, "dx").copy_(gradient(x.detach(), g, c)))


_results: dict[tuple[object, ...], Tensor] = {}


@wrong(bugs=(68,), must={"repeat"}, may=ANY)
def cached_by_address(softcap: float) -> Kernel:
    """Results are remembered by the address and shape of x: new numbers in old memory get old results."""

    def forward(x: Tensor, c: float) -> Tensor:
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype, c)
        if key not in _results:
            _results[key] = capped(x, c)
        return _results[key].clone()

    return Kernel(softcap, forward)


_cap_of_the_process: list[float] = []


_largest: list[int] = [0]


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
    bugs=(92, 67), must={"cap_scaling", "fresh_process", "interleaved_caps", "no_aliasing", "process_state"}
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
