"""Proof of what ran: the kernels that a device really launched for a candidate, as its profiler saw them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from invariance.candidate import PASSES, Candidate, CandidateRaised
from strategies.dtypes import TORCH

_SHOWN = 160  # characters: the names of PyTorch's own kernels are C++ templates without an end


def kernels_launched(candidate: Candidate, cap: float | int, dtype: str, device: str) -> dict[str, list[str]]:
    """For each pass the kernels that one call on 1025 elements launched on `device`, sorted, each once.

    The backward pass is the gradient alone, on a graph made before. Copies and fills by the driver are listed as
    what they are ("Memcpy DtoD ..."). A pass that raises, or that has no gradient, has an empty list: its cells
    say why. Raises ValueError for the CPU, which launches nothing.
    """
    if torch.device(device).type == "cpu":
        raise ValueError(f"kernels are launched on an accelerator, not on {device!r}")
    return {pass_: _of_pass(candidate, cap, dtype, device, pass_) for pass_ in PASSES}


def _of_pass(candidate: Candidate, cap: float | int, dtype: str, device: str, pass_: str) -> list[str]:
    x = torch.linspace(-2.0, 2.0, 1025, device=device).to(TORCH[dtype])
    try:
        f = candidate.map(cap, pass_)
        if pass_ != "backward":
            return recorded(lambda: f(x), device)
        leaf, y = f.graph(x)
        grad_y = torch.ones_like(y)
        return recorded(lambda: f.gradient(leaf, y, grad_y, retain_graph=True), device)
    except CandidateRaised:
        return []


def recorded(call: Callable[[], object], device: str) -> list[str]:
    """The names of the kernels that `call` launches when it is called for the second time."""
    call()  # compiles, loads, and fills caches
    torch.cuda.synchronize(device)
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler's own, about cycles and missing counters
        with profile(activities=activities) as record:
            call()
            torch.cuda.synchronize(device)
        events = record.events() or []
    return sorted({event.name[:_SHOWN] for event in events if event.device_type.name != "CPU"})
