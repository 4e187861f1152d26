"""What is a theorem of every good implementation, whatever its formula.

Correctly rounded and sign-symmetric operations make y odd and dx even in bits; multiplying by a power of two is exact
while everything stays normal; tanh never leaves [-1, 1]. What only looks like a theorem (monotonicity, y = x for tiny
x, dx = grad_y at 0, |dx| <= |grad_y|) fails for good kernels by an ulp and is not stated here.

The laws call the map on contiguous copies: that the layout does not matter is stated elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from invariance.candidate import Map
from invariance.checkers import Pick, checker, scaling
from invariance.checkers.accuracy import Args, judged_cap, unfit
from invariance.checkers.views import each, flat, plain, tiled
from invariance.judge import Claim
from oracles.rounding import neighbour, round_once
from oracles.tolerances import load_contract
from oracles.truth import Truth
from oracles.ulp import spacing

# Analytic too, in a file of its own: what a power of two may be pulled out of.
PARTS = (scaling,)

# Elements of a case whose numbers also fill rows of 257, alike throughout: the size tells nothing then.
_FEW = 32


@checker(
    judgement="accuracy",
    inputs="domain",
    bugs=("triton-lang/triton#8551", "ROCm/pytorch#2804", "tenstorrent/tt-metal#48328"),
)
def oddness(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """y is odd in x, dx is even in x and odd in grad_y, bit for bit."""
    judged_cap(f)
    args = each(args, plain)
    x, result = args[0], f(*args)
    if len(args) == 1:
        yield Claim("f(-x)", got=f(-x), want=-result, of=(-x,))
        return
    yield Claim("dx at -x", got=f(-x, args[1]), want=result, of=(-x, args[1]))
    yield Claim("dx for -grad_y", got=f(x, -args[1]), want=-result, of=(x, -args[1]))


@checker(
    judgement="accuracy",
    passes=("forward", "inference"),
    inputs="domain",
    bugs=("vllm-project/vllm#56578", "unslothai/unsloth-zoo#593", "sgl-project/sgl-kernel-xpu#491"),
)
def bound(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """|y| never exceeds the cap, rounded to the dtype of y."""
    args, exact = each(args, plain), judged_cap(f)
    y = f(*args)
    if (misfit := unfit(y, args[0])) is not None:
        yield misfit
        return
    cap = _rounded(exact, y)
    yield Claim("|y| <= c", got=y, want=torch.where(y.abs() > cap, torch.copysign(cap, y), y), of=args)


@checker(
    judgement="accuracy", inputs="domain", bugs=("triton-lang/triton#8551", "JuliaDiff/DiffRules.jl#102")
)
def sign(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """y has the sign of x, or is zero; dx has the sign of a finite grad_y, or is zero."""
    judged_cap(f)
    args = each(args, plain)
    result = f(*args)
    if (misfit := unfit(result, args[0])) is not None:
        yield misfit
        return
    leader = args[-1]
    free = (result == 0) | result.isnan()
    if len(args) == 2:
        free |= leader.isinf()
    want = torch.where(free, result, torch.copysign(result, leader.to(result.dtype)))
    yield Claim("the sign", got=result, want=want, of=args)


@checker(
    judgement="accuracy",
    inputs="small",
    explored=True,
    bugs=("ROCm/rocm-libraries#11697", "pytorch/pytorch#188546"),
)
def zeros(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Zeros keep their sign: y at x = ±0, and dx for grad_y = ±0 wherever x is a number."""
    judged_cap(f)
    args = each(args, plain)
    if len(args) == 1:
        zero = _zero_like(args[0])
        y = f(zero)
        yield Claim("y at ±0", got=y, want=zero.to(y.dtype), of=(zero,))
        return
    x, zero = torch.where(args[0].isnan(), 0.0, args[0]), _zero_like(args[1])
    dx = f(x, zero)
    yield Claim("dx for a gradient of ±0", got=dx, want=zero.to(dx.dtype), of=(x, zero))


def _zero_like(t: Tensor) -> Tensor:
    return torch.copysign(torch.zeros_like(t), t)


@checker(
    judgement="accuracy",
    passes=("forward", "inference"),
    inputs="small",
    explored=True,
    bugs=(
        "AMD-AGI/Primus#1057",
        "lightseekorg/tokenspeed#183",
        "EricLBuehler/mistral.rs#2058",
        "triton-lang/triton#8551",
    ),
)
def saturation(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """From |x/c| = 10 on y is exactly ±c, in 16 bits ±c rounded."""
    cap = judged_cap(f)
    x = _saturated(plain(args[0]), cap, pick("octaves beyond", 0, 12))
    truth = Truth.of(x, cap)
    yield settled_value("±c", f(x), truth)


def settled_value(label: str, y: Tensor, truth: Truth) -> Claim:
    """The claim that y is ±c rounded for the saturated x of a truth; within the rule where c is beside a midpoint."""
    if (misfit := unfit(y, truth.x)) is not None:
        return misfit
    if not _settled(truth.cap, y.dtype):
        return Claim(label, got=y, want=truth, within="ulp")
    want = torch.copysign(_rounded(truth.cap, y), truth.x.to(y.dtype))
    # A cap below the format is ±0, whose sign a flush may lose.
    return Claim(label, got=y, want=torch.where((y == 0) & (want == 0), y, want), of=(truth.x,))


def _saturated(x: Tensor, cap: float, octaves: int) -> Tensor:
    """x with every |x| raised to at least 10 * cap * 2^octaves, rounded up; infinite where the dtype ends first."""
    exact = torch.tensor(math.ldexp(load_contract().saturation_z * cap, octaves), dtype=torch.float64)
    least = round_once(exact, x.dtype)
    least = (neighbour(least, 1) if least.to(torch.float64) < exact else least).to(x.device)
    return torch.copysign(torch.where(x.abs() > least, x.abs(), least), x)


def _settled(cap: float, dtype: torch.dtype) -> bool:
    """Whether all that accuracy accepts beside the cap rounds alike: no midpoint of `dtype` is within 6 FP32 ulp."""
    exact = torch.tensor(cap, dtype=torch.float64)
    room = load_contract().forward_ulps * spacing(exact, torch.float32)
    return dtype == torch.float32 or bool(round_once(exact - room, dtype) == round_once(exact + room, dtype))


@checker(
    judgement="accuracy",
    inputs="small",
    explored=True,
    bugs=(
        "pytorch/pytorch#188546",
        "pytorch/ao#4271",
        "NVIDIA/TensorRT-LLM#18082",
        "huggingface/transformers#32390",
        "vllm-project/vllm#56578",
    ),
)
def special_values(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """NaN, infinities, zeros, subnormals and the largest finite numbers give what they must, among ordinary ones."""
    turns = judged_cap(f), pick("first", 0, 1 << 10), pick("parity", 0, 1)
    mixed = _with_specials(each(args, plain), *turns)
    truth = Truth.of(mixed[0], f.cap, *mixed[1:])
    yield Claim("special among ordinary values", got=f(*mixed), want=truth, within="ulp")
    if 1 < args[0].numel() <= _FEW:
        wide = _with_specials(each(args, lambda t: tiled(t, 3 * 257).view(3, 257)), *turns)
        for label, alike in _alike(wide):
            truth = Truth.of(alike[0], f.cap, *alike[1:])
            yield Claim(label, got=f(*alike), want=truth, within="ulp")


def _alike(mixed: Args) -> Iterator[tuple[str, Args]]:
    """One value everywhere, and in the first row alone: what a kernel asks of a tensor or a row to save work."""
    for value in (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0):
        yield f"every x {value}", (torch.full_like(mixed[0], value), *mixed[1:])
    for place in range(len(mixed)):
        for value in (0.0, -0.0) if place else (-math.inf, math.nan, 1.0):
            row = plain(mixed[place])
            row[0] = value
            yield (
                f"the first row of {('x', 'grad_y')[place]} {value}",
                (*mixed[:place], row, *mixed[place + 1 :]),
            )
    for grad_y in mixed[1:]:
        for value in (0.0, -0.0):
            yield f"every grad_y {value}", (mixed[0], torch.full_like(grad_y, value))


def _with_specials(args: Args, cap: float, first: int, parity: int) -> Args:
    """Every other element replaced by a special x, or by a pair of a special x and a special grad_y, in turn.

    Both tables turn at once, so that a few elements meet each of their entries, and 288 each pair.
    """
    place = torch.arange(args[0].numel(), device=args[0].device)
    turn, chosen = place // 2 + first, place % 2 == parity
    limits = torch.finfo(args[0].dtype)
    subnormal = limits.smallest_normal * limits.eps
    sizes = [
        math.nan,
        math.inf,
        0.0,
        subnormal,
        limits.smallest_normal - subnormal,
        limits.smallest_normal,
        limits.max,
    ]
    ordinary = [min(z * cap, limits.max) for z in (0.5, 3.0)]
    xs = _table([*sizes, *ordinary], args[0])
    mixed = [torch.where(chosen, xs[turn % len(xs)], flat(args[0])).view(args[0].shape)]
    for grad_y in args[1:]:
        gs = _table([math.nan, math.inf, 0.0, 1.0], grad_y)
        mixed.append(
            torch.where(chosen, gs[(turn + turn // math.lcm(len(xs), len(gs))) % len(gs)], flat(grad_y)).view(
                grad_y.shape
            )
        )
    return tuple(mixed)


def _table(sizes: list[float], like: Tensor) -> Tensor:
    """The sizes with both signs, in the dtype and on the device of `like`."""
    signed = [s * size for size in sizes for s in (1.0, -1.0)]
    return torch.tensor(signed, dtype=torch.float64).to(like.dtype).to(like.device)


def _rounded(cap: float, like: Tensor) -> Tensor:
    """The cap rounded once to the dtype of `like`, 0-d."""
    return round_once(torch.tensor(cap, dtype=torch.float64), like.dtype).to(like.device)
