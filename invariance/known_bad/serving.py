"""Wrong where requests are served: calls from several threads, and more and more of them."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
from torch import Tensor

from invariance.known_bad.entry import good, wrong
from invariance.known_bad.kernel import Kernel, capped, gradient


@cache
def _cap_tensor(cap: float, device: torch.device, dtype: torch.dtype | None) -> Tensor:
    """Kept by the process, for all operators; None is the default dtype of the call that makes it."""
    return torch.tensor(cap, device=device, dtype=dtype)


@wrong(bugs=(91, 109), must={"fresh_process"}, laws=("fresh_process", "first_call", "repeat"))
def cap_kept_in_the_first_default_dtype(softcap: float) -> Kernel:
    """The cap is a tensor that the process keeps, in BF16 where a loader of models made BF16 the default dtype."""
    return Kernel(softcap, lambda x, c: capped(x, float(_cap_tensor(c, x.device, None))))


@wrong(bugs=(109,), must={"fresh_process"}, may={"cap_scaling"})
def cap_kept_of_inference_mode(softcap: float) -> Any:
    """The cap is a tensor that the process keeps, and made in inference mode no graph may save it."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        kernel.check(x)
        cap = _cap_tensor(softcap, x.device, torch.float32)
        return torch.tanh(x.to(torch.float32) / cap) * cap

    return call


@wrong(bugs=(106, 92), must={"first_call", "memory_growth", "threads_at_once", "transformed_derivatives"})
def scratch_shared_by_threads(softcap: float) -> Kernel:
    """x passes through a scratch buffer of the operator, which a second thread fills before the first has read it."""
    scratch: dict[tuple[object, ...], Tensor] = {}

    def forward(x: Tensor, c: float) -> Tensor:
        key = (x.shape, x.dtype, x.device)
        held = scratch.setdefault(key, torch.empty(x.shape, dtype=x.dtype, device=x.device)).copy_(x.detach())
        return capped(held, c)

    return Kernel(softcap, forward)


_workspace: dict[tuple[object, ...], Tensor] = {}


@wrong(bugs=(106, 92), must={"memory_growth", "threads_at_once"})
def workspace_of_the_module(softcap: float) -> Kernel:
    """The slope is computed in a workspace that all operators and threads share."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if torch.is_grad_enabled():
            return gradient(x, g, c)
        key = (x.shape, x.device)
        t = _workspace.setdefault(key, torch.empty(x.shape, device=x.device))
        torch.tanh(torch.div(x.to(torch.float32), c, out=t), out=t)
        return (g * (1 - t * t)).to(x.dtype)

    return Kernel(softcap, backward=backward)


_current = [30.0]


@wrong(bugs=(106, 7), must={"threads_at_once"})
def cap_of_the_process(softcap: float) -> Kernel:
    """A call puts its cap where the kernel reads it, and another thread puts its own there in between."""

    def forward(x: Tensor, c: float) -> Tensor:
        _current[0] = c
        x = x.contiguous()
        return capped(x, _current[0])

    return Kernel(softcap, forward)


@good()
def scratch_behind_a_lock(softcap: float) -> Any:
    """A scratch buffer of the last shape and kind of tensor, made outside of inference mode; a thread at a time."""
    scratch: dict[tuple[object, ...], Tensor] = {}
    lock = threading.Lock()

    def forward(x: Tensor, c: float) -> Tensor:
        key = (type(x), x.shape, x.dtype, x.device)  # a fake tensor takes a fake buffer
        with lock:
            if key not in scratch:
                scratch.clear()
                with torch.inference_mode(mode=False):
                    scratch[key] = torch.empty(x.shape, dtype=x.dtype, device=x.device)
            return capped(scratch[key].copy_(x.detach()), c)

    return Kernel(softcap, forward).applied


@wrong(bugs=(107,), must={"memory_growth"})
def every_input_kept(softcap: float) -> Kernel:
    """A copy of each input is put on a list, for statistics that nobody has asked for since."""
    seen: list[Tensor] = []

    def forward(x: Tensor, c: float) -> Tensor:
        seen.append(x.detach().clone())
        return capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(107,), must={"memory_growth"}, laws=("memory_growth", "memory_released", "many_calls", "repeat"))
def every_gradient_kept(softcap: float) -> Kernel:
    """The size of each gradient, element by element, is kept for a histogram: a list without an end."""
    sizes: list[Tensor] = []

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        dx = gradient(x, g, c)
        sizes.append(dx.detach().abs())
        return dx

    return Kernel(softcap, backward=backward)


@wrong(bugs=(107, 106), must={"first_call", "memory_growth"})
def scratch_for_every_length(softcap: float) -> Any:
    """Each thread has a scratch buffer for each shape that it has met: every new length stays in memory."""
    own = threading.local()

    def forward(x: Tensor, c: float) -> Tensor:
        buffers: Any = vars(own)
        key = (x.shape, x.device)
        with torch.inference_mode(mode=False), torch.no_grad():
            held = buffers.setdefault(key, torch.empty(x.shape, device=x.device))
            return capped(held.copy_(x.detach()), c)

    return Kernel(softcap, forward).applied


class _WithWorkspace:
    """The right kernel and 64 KiB."""

    def __init__(self, softcap: float) -> None:
        self.kernel, self.workspace = Kernel(softcap), torch.empty(1 << 14)

    def __call__(self, x: Tensor) -> Tensor:
        return self.kernel(x)


_everyone: list[_WithWorkspace] = []


@wrong(bugs=(107,), must={"memory_growth"})
def every_operator_registered(softcap: float) -> Any:
    """Operators are put on a list of the module, and stay there with what they own once nobody else has them."""
    _everyone.append(_WithWorkspace(softcap))
    return _everyone[-1]


_one_a_cap = cache(_WithWorkspace)


@good()
def one_operator_a_cap(softcap: float) -> Any:
    """Operators of one cap are one, which is kept."""
    return _one_a_cap(softcap)


def _bits(x: Tensor) -> bytes:
    values = x.detach().cpu().resolve_neg().reshape(-1).clone(memory_format=torch.contiguous_format)
    return values.view(torch.uint8).numpy().tobytes()


@wrong(bugs=(107, 68), must={"memory_growth", "transformed_derivatives"})
def results_kept_by_content(softcap: float) -> Kernel:
    """Results are remembered by the bits of x, right ones, and never forgotten."""
    known: dict[tuple[object, ...], Tensor] = {}

    def forward(x: Tensor, c: float) -> Tensor:
        key = (_bits(x), x.shape, x.dtype)
        if key not in known:
            known[key] = capped(x.detach(), c)
        return known[key].clone()

    return Kernel(softcap, forward)


@good()
def the_last_few_results(softcap: float) -> Any:
    """The results of the last few inputs are remembered by their bits, as copies."""
    known: dict[tuple[object, ...], Tensor] = {}

    def forward(x: Tensor, c: float) -> Tensor:
        key = (_bits(x), x.shape, x.dtype)
        y = known[key] if key in known else capped(x.detach(), c)
        known[key] = y
        for oldest in list(known)[:-16]:
            known.pop(oldest, None)
        return y.clone()

    return Kernel(softcap, forward).applied
