"""Wrong by history: how often, after what and for the how-manieth time it is called."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged


@wrong(bugs=(88,), must={"repeat"})
def tuned_after_three_calls(softcap: float) -> Kernel:
    """From its fourth call on an operator uses the configuration that timing preferred."""
    calls = itertools.count()
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), next(calls) >= 3))


@wrong(bugs=(90,), must={"repeat"})
def every_other_call(softcap: float) -> Kernel:
    """Two buffers take turns, and one of them rounds another way."""
    calls = itertools.count()
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), next(calls) % 2 == 1))


@wrong(bugs=(90,), must={"repeat"})
def dithered(softcap: float) -> Kernel:
    """Results are rounded at random."""

    def forward(x: Tensor, c: float) -> Tensor:
        return nudged(capped(x, c), torch.rand(x.shape, device=x.device) < 0.5)

    return Kernel(softcap, forward)


@wrong(bugs=(90,), must={"repeat"})
def gradient_accumulates_atomically(softcap: float) -> Kernel:
    """The backward adds in an order that changes: an ulp here and there."""
    calls = itertools.count()

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        turn = next(calls) % 3
        at = torch.arange(x.numel(), device=x.device).view(x.shape) % 3
        return nudged(gradient(x, g, c), at == turn)

    return Kernel(softcap, backward=backward)


_pool: dict[tuple[object, ...], Tensor] = {}


def _pooled(x: Tensor, kind: str) -> Tensor:
    return _pool.setdefault((kind, x.shape, x.dtype, x.device), torch.empty(x.shape, device=x.device))


@wrong(bugs=(92,), must={"no_aliasing"})
def output_buffer_reused(softcap: float) -> Kernel:
    """One output buffer a shape: a later call overwrites an earlier result."""
    return Kernel(softcap, lambda x, c: _pooled(x, "y").copy_(capped(x, c)))


@wrong(bugs=(92, 67), must={"no_aliasing"})
def gradient_buffer_reused(softcap: float) -> Kernel:
    """One buffer a shape for all gradients."""
    return Kernel(softcap, backward=lambda x, g, c: _pooled(x, "dx").copy_(gradient(x.detach(), g, c)))


_results: dict[tuple[object, ...], Tensor] = {}


@wrong(bugs=(68,), must={"repeat"})
def cached_by_address(softcap: float) -> Kernel:
    """Results are remembered by the address and shape of x: new numbers in old memory get old results."""

    def forward(x: Tensor, c: float) -> Tensor:
        key = (x.data_ptr(), x.shape, x.stride(), x.dtype, c)
        if key not in _results:
            _results[key] = capped(x, c)
        return _results[key].clone()

    return Kernel(softcap, forward)


_cap_of_the_process: list[float] = []


@wrong(bugs=(88,), must={"fresh_process"})
def first_cap_is_tuned(softcap: float) -> Kernel:
    """The configuration is tuned for the first cap of a process and rounds all the others another way."""

    def forward(x: Tensor, c: float) -> Tensor:
        _cap_of_the_process.append(c)
        return nudged(capped(x, c), c != _cap_of_the_process[0])

    return Kernel(softcap, forward)


_largest: list[int] = [0]


@wrong(bugs=(90, 79), must={"repeat"}, elements=2000)
def workspace_grows(softcap: float) -> Kernel:
    """After a larger call the workspace is larger, and its tail is summed in another order."""

    def forward(x: Tensor, c: float) -> Tensor:
        _largest[0] = max(_largest[0], x.numel())
        return nudged(capped(x, c), _largest[0] > x.numel() and x.numel() > 1024)

    return Kernel(softcap, forward)


@wrong(bugs=(59, 25), must={"freed_memory"})
def unwritten_tail(softcap: float) -> Kernel:
    """Elements past the last multiple of 8 are never written: the output shows what the memory held."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = torch.empty(x.shape, device=x.device)
        whole = x.numel() // 8 * 8
        y.view(-1)[:whole].copy_(capped(x, c).reshape(-1)[:whole])
        return y

    return Kernel(softcap, forward)


@wrong(bugs=(59,), must={"freed_memory"}, elements=1100)
def gradient_tail_unwritten(softcap: float) -> Kernel:
    """The last partial block of dx is never written; below one block the kernel is right."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        whole = x.numel() // 1024 * 1024 if x.numel() > 1024 else x.numel()
        dx.view(-1)[:whole].copy_(gradient(x.detach(), g, c).reshape(-1)[:whole])
        return dx

    return Kernel(softcap, backward=backward)
