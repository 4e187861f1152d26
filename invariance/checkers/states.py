"""Settings of the whole process, each a context that restores what it found, and what may move under one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch
from torch import Tensor

from invariance.candidate import Map
from invariance.checkers.views import Args
from invariance.judge import Claim
from strategies.caps import as_fp32

# Each takes the device type that the candidate runs on.
State = Callable[[str], AbstractContextManager[None]]


@contextmanager
def default_dtype(device: str, *, dtype: torch.dtype) -> Iterator[None]:  # noqa: ARG001 - a State
    """New floating tensors have this dtype: how model loaders build layers, and where a cap kept as a tensor rounds."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Torch's CPU operators run on that many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def deterministic(device: str) -> Iterator[None]:  # noqa: ARG001 - a State
    """Deterministic algorithms only; torch also fills uninitialised memory with NaN then."""
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("error")  # use_deterministic_algorithms imports the compiler: a second
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


@contextmanager
def autocast(device: str, *, dtype: torch.dtype) -> Iterator[None]:
    """Mixed precision: a cap is elementwise FP32 arithmetic, which no autocast list touches."""
    with torch.autocast(device, dtype=dtype):
        yield


@contextmanager
def anomaly(device: str) -> Iterator[None]:  # noqa: ARG001 - a State
    """Autograd's debugging mode, without its refusal of NaN: inputs may hold some."""
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        yield


@contextmanager
def seeded(device: str, *, seed: int) -> Iterator[None]:
    """Random numbers start from this seed, which whoever reads their state sees, without drawing any."""
    generators = [torch.default_generator, *(torch.cuda.default_generators if device == "cuda" else ())]
    before = [generator.get_state() for generator in generators]
    for generator in generators:
        generator.manual_seed(seed)
    try:
        yield
    finally:
        for generator, state in zip(generators, before, strict=True):
            generator.set_state(state)


@contextmanager
def matmul_precision(device: str, *, precision: str) -> Iterator[None]:  # noqa: ARG001 - a State
    """What FP32 matrix products may be rounded to (TF32, BF16): no business of an elementwise operator."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def flushes() -> bool:
    """Whether the calling thread takes an FP32 subnormal for zero."""
    return float(torch.tensor(2.0**-140, dtype=torch.float32, device="cpu").mul(1.0)) == 0.0


@contextmanager
def flushing(*, on: bool) -> Iterator[None]:
    """The calling thread takes subnormals for zeros, or does not; CPUs that cannot leave it as it is."""
    before = flushes()
    torch.set_flush_denormal(on)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def with_flushing(f: Map, args: Args) -> Claim:
    """The claim that flushing denormals, or no longer, moves nothing where nothing is subnormal."""
    want = f(*args)
    with flushing(on=not flushes()):
        got = f(*args)
    if got.shape != want.shape or got.dtype != want.dtype:
        return Claim("with denormals flushed", got=got, want=want, of=args)
    sure = _far_from_subnormal(f.cap, args, want)
    return Claim("with denormals flushed", got=torch.where(sure, got, want), want=want, of=args)


def _far_from_subnormal(cap: float | int, args: Args, want: Tensor) -> Tensor:
    """Where x / c, grad_y and the result are zeros, not finite, or so large that no step is subnormal."""
    z = args[0].to(torch.float64) / as_fp32(cap)
    # |z| from 2^-12 on: the low words of a tanh in two words are normal too.
    sizes = [z * 2.0**-88, want.to(torch.float64)]
    sizes += [g.to(torch.float64) * min(1.0, as_fp32(cap)) for g in args[1:]]
    sure = torch.ones_like(want, dtype=torch.bool)
    for size in sizes:
        sure &= (size == 0) | ~(size.abs() < 2.0**-100)
    return sure


STATES: dict[str, State] = {
    "default dtype bfloat16": partial(default_dtype, dtype=torch.bfloat16),
    "default dtype float16": partial(default_dtype, dtype=torch.float16),
    "default dtype float64": partial(default_dtype, dtype=torch.float64),
    "deterministic algorithms": deterministic,
    "autocast to bfloat16": partial(autocast, dtype=torch.bfloat16),
    "autocast to float16": partial(autocast, dtype=torch.float16),
    "anomaly detection": anomaly,
    "an even seed": partial(seeded, seed=0x5EED0),
    "an odd seed": partial(seeded, seed=0xACE5),
    "matmul precision medium": partial(matmul_precision, precision="medium"),
}
