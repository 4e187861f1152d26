"""What must be taken as it was given, and what must be refused: caps, dtypes and devices."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from invariance.candidate import CandidateRaised, Map
from invariance.checkers import Pick, checker, constructed_candidates
from invariance.checkers.accuracy import Args
from invariance.checkers.analytic import settled_value
from invariance.checkers.scaling import any_cap
from invariance.checkers.views import plain
from invariance.judge import Claim
from oracles.formats import cap_as_fp32
from oracles.truth import Truth
from strategies.caps import BAD_CAPS, TELLING, bad_numbers, cap_text
from strategies.dtypes import TORCH

# Sizes at which a refusal may be forgotten: none, a 0-d one, and what an early way out takes.
_SIZES: tuple[tuple[int, ...], ...] = ((4,), (0,), (), (2, 3), (257, 3), (1025,))


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="telling_caps",
    applies=any_cap,
    bugs=(
        "sgl-project/sgl-kernel-xpu#491",
        "sgl-project/sglang#33915",
        "Dao-AILab/flash-attention#2402",
        "apple/ml-cross-entropy#48",
        "pytorch/pytorch#190340",
        "triton-lang/triton#7439",
    ),
)
def cap_used(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """The cap that is used is the FP32 value nearest to the one given, int or float, with all its bits."""
    yield from _used(f, args, f"cap {cap_text(f.cap)}")
    others = [cap for cap in TELLING if cap != f.cap]
    other = others[pick("other", 0, len(others) - 1)]
    yield from _used(f.at(other), args, f"cap {cap_text(other)}, built after cap {cap_text(f.cap)}")


def _used(f: Map, args: Args, label: str) -> Iterator[Claim]:
    """The claims that the map uses its cap: where y bends, and where it is the cap."""
    x = _bend(cap_as_fp32(f.cap), args[0].dtype, args[0].device)
    grads = tuple(_gradients(g.dtype, g.device) for g in args[1:])
    yield Claim(label, got=f(x, *grads), want=Truth.of(x, f.cap, *grads), within="ulp")
    if not grads:
        far = torch.copysign(torch.full_like(x, torch.inf), x)
        yield settled_value(f"{label}, saturated", f(far), Truth.of(far, f.cap))


def _bend(cap: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """256 inputs of both signs with |x/c| from 0.25 to 3, where y moves with the cap; FP16 ends below some caps."""
    z = torch.linspace(0.25, 3.0, 128, dtype=torch.float64, device=device)
    return (torch.cat((z, -z)) * cap).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).to(dtype)


def _gradients(dtype: torch.dtype, device: torch.device) -> Tensor:
    """256 upstream gradients of both signs and three binades."""
    return (torch.linspace(1.0, 5.0, 256, dtype=torch.float64, device=device) * _alternating(256, device)).to(
        dtype
    )


def _alternating(count: int, device: torch.device) -> Tensor:
    return 1.0 - 2.0 * (torch.arange(count, device=device) % 3 == 0).to(torch.float64)


@checker(
    judgement="invariance",
    passes=("forward",),
    each_cap=False,
    inputs="one",
    applies=constructed_candidates,
    bugs=("EricLBuehler/mistral.rs#1930", "NVIDIA/Megatron-LM#6590", "huggingface/trl#6629"),
)
def bad_caps(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """A number that is not finite and positive as FP32 is refused with an error, at the first call at the latest."""
    # A candidate is only ever given int and float.
    listed = [
        cap for cap in BAD_CAPS if isinstance(cap, (int, float)) and not isinstance(cap, (bool, np.number))
    ]
    for cap in (*listed, *bad_numbers(pick("seed", 0, 1 << 20))):
        yield _refused(f"cap {_short(cap)}", partial(_at, f, cap, args))


def _at(f: Map, cap: float | int, args: Args) -> Tensor:
    return f.at(cap)(*args)


def _short(value: float | int) -> str:
    text = repr(value)
    return text if len(text) < 24 else f"{text[:8]}... ({len(text)} characters)"


@checker(
    judgement="invariance",
    passes=("forward", "inference"),
    each_cap=False,
    inputs="one",
    bugs=("huggingface/trl#6629", "linkedin/Liger-Kernel#1350"),
)
def bad_dtypes(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """FP64, FP8, complex, integer and bool inputs of any size are refused with an error; the operator works on."""
    want = plain(f(*args))
    for dtype in _bad_dtypes(args[0].device):
        # Nothing else has gradients.
        if f.pass_ == "inference" or dtype.is_floating_point or dtype.is_complex:
            for shape in _SIZES:
                x = torch.ones(shape, dtype=torch.float32, device=args[0].device).to(dtype)
                yield _refused(f"{dtype} of shape {shape}", partial(f, x))
    yield Claim("a good input, after the refusals", got=f(*args), want=want, of=args)


@cache
def _bad_dtypes(device: torch.device) -> tuple[torch.dtype, ...]:
    """Every dtype of this torch that an ordinary number converts to on the device, but for the three that are taken."""
    known = {value for value in vars(torch).values() if isinstance(value, torch.dtype)} - set(TORCH.values())
    return tuple(dtype for dtype in sorted(known, key=str) if _holds_numbers(dtype, device))


def _holds_numbers(dtype: torch.dtype, device: torch.device) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one is experimental, says torch, once
            torch.ones(4, device=device).to(dtype)
    except (RuntimeError, NotImplementedError):  # quantised ones, and those that only hold bits
        return False
    return True


def _refused(label: str, call: Callable[[], object]) -> Claim:
    """The claim that a call raises."""
    try:
        call()
    except CandidateRaised:
        return Claim(label, got="refused", want="refused")
    return Claim(label, got="accepted", want="refused")


@checker(
    judgement="invariance",
    passes=("inference",),
    each_cap=False,
    inputs="one",
    bugs=("meta-pytorch/tritonbench#692", "pytorch/pytorch#151859"),
)
def wrong_device(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A tensor on another device is an error, or gives its result there; never a crash."""
    for device in ("meta", "cpu"):
        if device == args[0].device.type:
            continue
        x = args[0].to(device)
        truth = None if device == "meta" else Truth.of(x, f.cap)
        try:
            y = f(x)
        except CandidateRaised:
            yield Claim(f"x on {device}", got="refused", want="refused")
            continue
        yield Claim(f"x on {device}", got=(y.device.type, tuple(y.shape)), want=(device, tuple(x.shape)))
        if truth is not None:
            yield Claim(f"the values on {device}", got=y, want=truth, within="ulp")
