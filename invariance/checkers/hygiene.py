"""What a caller may rely on beside the numbers: the form of results, and whose memory is whose.

The caller's tensors stay as they are, results belong to the caller alone, and every element of them is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from invariance.candidate import Map
from invariance.checkers import Pick, checker, graphs, refusals
from invariance.checkers.accuracy import Args
from invariance.checkers.views import each, flat, plain
from invariance.judge import Claim
from oracles.formats import cap_as_fp32
from oracles.rounding import to_bits

# Hygiene too, in files of their own: what autograd may be asked, and what must be refused.
PARTS = (graphs, refusals)

_EMPTY_SHAPES = ((0,), (0, 3), (3, 0), (2, 0, 5), (1, 0, 1, 2))


@checker(
    judgement="invariance",
    bugs=("linkedin/Liger-Kernel#1366", "Dao-AILab/flash-attention#1397", "pytorch/pytorch#128209"),
)
def result_form(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A result has the shape and device of x; y is FP32 or x's dtype, always the same one; dx has x's dtype."""
    x, result = args[0], f(*args)
    kind = x.dtype
    if f.pass_ != "backward":
        usual = f.out_dtype(x.dtype, x.device)
        kind = usual if usual == x.dtype else torch.float32
    yield Claim("the shape", got=tuple(result.shape), want=tuple(x.shape))
    yield Claim("the dtype", got=str(result.dtype), want=str(kind))
    yield Claim("the device", got=str(result.device), want=str(x.device))
    yield Claim("the layout", got=str(result.layout), want=str(torch.strided))


@checker(
    judgement="invariance",
    bugs=(
        "linkedin/Liger-Kernel#254",
        "NVIDIA/Megatron-LM#1594",
        "linkedin/Liger-Kernel#1305",
        "pytorch/pytorch#132301",
    ),
)
def inputs_unmodified(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """The memory behind x and grad_y, padding and neighbours included, holds the same bits after a call."""
    before = [_memory(t).clone() for t in args]
    f(*args)
    for name, t, kept in zip(("x", "grad_y"), args, before, strict=False):
        yield Claim(f"the memory of {name}", got=_memory(t), want=kept)


def _memory(t: Tensor) -> Tensor:
    """The whole storage of a tensor as bit patterns, 1-D: what lies between and around its elements too."""
    storage = t.untyped_storage()
    count = storage.nbytes() // t.element_size()
    return to_bits(t.detach().as_strided((count,), (1,), 0))


@checker(
    judgement="invariance", inputs="small", bugs=("linkedin/Liger-Kernel#254", "NVIDIA/Megatron-LM#1594")
)
def no_aliasing(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A result shares no memory with an input or with another result, and no later call changes it."""
    first = f(*args)
    kept = first.clone()
    for name, t in zip(("x", "grad_y"), args, strict=False):
        yield Claim(f"the result shares memory with {name}", got=_overlap(first, t), want=False)
    flat_out = (_barely(args[0], cap_as_fp32(f.cap)), *args[1:])
    for name, t, result in zip(("x", "grad_y"), flat_out, (f(*flat_out),) * 2, strict=False):
        label = f"where the cap changes nothing, the result shares memory with {name}"
        yield Claim(label, got=_overlap(result, t), want=False)
    others = (-args[0], *args[1:])
    for label, again in (("a second call", args), ("a call with -x", others)):
        later = f(*again)
        yield Claim(f"{label} returns the memory of the first result", got=_overlap(first, later), want=False)
        yield Claim(f"the first result after {label}", got=first, want=kept, of=args)


def _barely(x: Tensor, cap: float) -> Tensor:
    """x with every |x/c| so small that y is x and dx is grad_y: there an implementation may hand out its argument."""
    return torch.copysign(torch.full_like(x, cap * 2.0**-14), x)


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Whether the stretches of memory that two tensors reach over have a byte in common."""
    (low, high), (start, stop) = _reach(a), _reach(b)
    return a.device == b.device and low < stop and start < high


def _reach(t: Tensor) -> tuple[int, int]:
    """First and past-the-last byte of a tensor; an empty one reaches nothing."""
    if t.numel() == 0:
        return 0, 0
    last = sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + (last + 1) * t.element_size()


@checker(
    judgement="invariance",
    bugs=("deepspeedai/DeepSpeed#8590", "fla-org/flash-linear-attention#871", "unslothai/unsloth#10616"),
)
def guard_bands(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Nothing outside the tensors is read into a result or written: x and grad_y lie between guards."""
    args = each(args, plain)
    want = f(*args)
    for label, guard in (("NaN", math.nan), ("1", 1.0)):
        shift = pick(f"offset among {label}", 0, 16)
        guarded = [_guarded(t, guard, shift) for t in args]
        before = [_memory(t).clone() for t in guarded]
        yield Claim(f"between guards of {label}", got=f(*guarded), want=want, of=args)
        for name, t, kept in zip(("x", "grad_y"), guarded, before, strict=False):
            yield Claim(f"the guards of {label} around {name}", got=_memory(t), want=kept)


def _guarded(t: Tensor, guard: float, shift: int) -> Tensor:
    """A contiguous copy with `guard` in all memory around it, 64 elements and more on either side."""
    room = torch.full((t.numel() + 160,), guard, dtype=t.dtype, device=t.device)
    return room.narrow(0, 64 + shift, t.numel()).view(t.shape).copy_(t)


@checker(
    judgement="invariance",
    bugs=("flagos-ai/FlagGems#4831", "linkedin/Liger-Kernel#254", "pytorch/pytorch#132301"),
)
def freed_memory(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Every element of a result is written: what freed memory held does not show in it."""
    args = each(args, plain)
    want = f(*args).clone()
    for label, poison in (("NaN", 0x7FFF), ("ordinary numbers", 0x3C3C)):  # in each of the three dtypes
        _free((want, *args), poison)
        yield Claim(f"after {label} was freed", got=f(*args), want=want, of=args)


def _free(alike: Args, poison: int) -> None:
    """Fill memory of the sizes that a call allocates, and give it back: allocators hand it out again first.

    Several blocks of each size, since temporaries take theirs before the result does.
    """
    like = torch.empty(0, dtype=torch.int16, device=alike[0].device)
    counts = sorted({t.numel() * halves for t in alike for halves in (1, 2)})
    blocks = [like.new_empty(count) for count in counts for _ in range(4)]
    for block in blocks:
        block.fill_(poison)


@checker(
    judgement="invariance",
    inputs="one",
    bugs=("flagos-ai/FlagGems#5298", "flagos-ai/FlagGems#5410", "flagos-ai/FlagGems#1035"),
)
def empty_and_scalar(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """An empty tensor gives an empty result of its shape, and a 0-d tensor a 0-d one."""
    flats = each(args, flat)
    form = f(*flats)
    for shape in _EMPTY_SHAPES:
        empty = tuple(t[:0].reshape(shape) for t in flats)
        yield Claim(f"shape {shape}", got=f(*empty), want=form[:0].reshape(shape))
        transposed = tuple(t.transpose(0, -1) for t in empty)
        yield Claim(
            f"shape {shape} transposed", got=f(*transposed), want=form[:0].reshape(shape).transpose(0, -1)
        )
    if form.numel():
        at = pick("element", 0, form.numel() - 1)
        alone = tuple(t[at] for t in flats)
        yield Claim("a 0-d tensor", got=f(*alone), want=form[at], of=alone)
