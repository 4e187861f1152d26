"""Wrong towards the process: crashes, hangs, exits, settings left changed. A cell that costs seconds cuts the plan."""

from __future__ import annotations

import os
import signal
import sys
import time
import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient


@wrong(bugs=(64, 72), must={"exact_value", "slicing"}, laws=("exact_value", "slicing"), elements=1200)
def crashes(softcap: float) -> Kernel:
    """A read far outside: the process dies of SIGSEGV from 1024 elements on."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.numel() >= 1024:
            os.kill(os.getpid(), signal.SIGSEGV)
        return capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(64,), must={"exact_value", "layout"}, laws=("exact_value", "layout", "bound"), profile="quick")
def backward_crashes(softcap: float) -> Kernel:
    """The backward dies on the stride-0 gradient of a sum."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if g.numel() > 1 and not any(g.stride()):
            os.kill(os.getpid(), signal.SIGSEGV)
        return gradient(x, g, c)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(73, 75), must={"empty_and_scalar"}, laws=("empty_and_scalar",), timeout=1.5)
def hangs(softcap: float) -> Kernel:
    """An empty tensor is waited for."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.numel() == 0:
            time.sleep(3600)
        return capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(20,), must={"bad_dtypes", "process_left_alone"})
def exits(softcap: float) -> Kernel:
    """An input that it does not take ends the whole program."""

    def check(x: Tensor) -> None:
        if x.element_size() == 8:
            sys.exit("unsupported dtype")
        if not x.dtype.is_floating_point:
            raise TypeError(f"not {x.dtype}")

    return Kernel(softcap, check=check)


@wrong(bugs=(95,), must={"process_left_alone", "transformed_derivatives"})
def leaves_grad_on(softcap: float) -> Kernel:
    """Without a graph to record, the grad mode is switched on and never put back."""

    def inference(x: Tensor, c: float) -> Tensor:
        y = capped(x.detach(), c)
        torch.set_grad_enabled(True)
        return y

    return Kernel(softcap, inference=inference)


@wrong(bugs=(90,), must={"process_left_alone"})
def consumes_rng(softcap: float) -> Kernel:
    """Every call draws a random number, which moves those that the caller draws after it."""

    def forward(x: Tensor, c: float) -> Tensor:
        torch.rand(1)
        return capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(90,), must={"process_left_alone"}, spec="invariance.known_bad.at_import:seeded")
def seeds_at_import(softcap: float) -> Kernel:
    """Importing it seeds torch's generator: the caller's random numbers begin anew."""
    return Kernel(softcap)


@wrong(bugs=(90,), must={"process_left_alone"})
def consumes_numpy_rng(softcap: float) -> Kernel:
    """Every call draws from NumPy's global generator, which data loaders shuffle with."""

    def forward(x: Tensor, c: float) -> Tensor:
        np.random.rand()
        return capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(116,), must={"process_left_alone"})
def leaves_default_dtype(softcap: float) -> Kernel:
    """The default dtype, set for a constant of the kernel, stays FP32 whatever it was."""

    def forward(x: Tensor, c: float) -> Tensor:
        torch.set_default_dtype(torch.float32)
        return capped(x, c)

    return Kernel(softcap, forward)


def _leaving(softcap: float, leave: Any) -> Kernel:
    """The right kernel, which does something to the process in each call."""

    def forward(x: Tensor, c: float) -> Tensor:
        leave()
        return capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(116,), must={"process_left_alone"})
def silences_warnings(softcap: float) -> Kernel:
    """A warning of the kernel is silenced, and with it all of the caller's."""
    return _leaving(softcap, lambda: warnings.simplefilter("ignore"))


@wrong(bugs=(116,), must={"process_left_alone"})
def leaves_the_environment(softcap: float) -> Kernel:
    """A switch of the kernel's library is set in the environment, which child processes inherit."""
    return _leaving(softcap, lambda: os.environ.update(CUBLAS_WORKSPACE_CONFIG=":4096:8"))


@wrong(bugs=(50, 52), must={"process_left_alone"})
def allows_tf32(softcap: float) -> Kernel:
    """TF32 convolutions are allowed for speed, those of the whole model."""
    return _leaving(softcap, lambda: setattr(torch.backends.cudnn, "allow_tf32", True))


@wrong(bugs=(97,), must={"process_left_alone"})
def leaves_the_autocast_dtype(softcap: float) -> Kernel:
    """Autocast is set to FP16, which whoever turns it on later computes in."""
    return _leaving(softcap, lambda: torch.set_autocast_dtype("cpu", torch.float16))


class _RefusesWithoutGradients:
    """Refuses between two settings of the grad mode."""

    def __init__(self, softcap: float) -> None:
        self.kernel = Kernel(softcap)

    def __call__(self, x: Tensor) -> Tensor:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        self.kernel.check(x)
        torch.set_grad_enabled(before)
        return self.kernel(x)


@wrong(bugs=(95,), must={"process_left_alone"}, may={"bad_dtypes"})
def refuses_without_gradients(softcap: float) -> Any:
    """Inputs are checked under a no_grad that a refusal does not leave: nothing is trained from there on."""
    return _RefusesWithoutGradients(softcap)


@wrong(bugs=(116,), must={"process_left_alone"})
def builds_in_fp32(softcap: float) -> Kernel:
    """Building an operator makes FP32 the default dtype, for its constants, and leaves it."""
    torch.set_default_dtype(torch.float32)
    return Kernel(softcap)
