"""What a caller may rely on beside the numbers: the form of results, and whose memory is whose.

The caller's tensors stay as they are, results belong to the caller alone, and every element of them is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from invariance.candidate import Map, Operator
from invariance.checkers import Pick, checker, graphs, left_alone, refusals
from invariance.checkers.accuracy import Args
from invariance.checkers.memory import laps_itself, memory, overlap, seen, version
from invariance.checkers.views import each, flat, plain, through
from invariance.judge import Claim
from invariance.process import in_one_line
from invariance.serving import learns
from oracles.formats import cap_as_fp32
from strategies.layouts import LAYOUTS

# Hygiene too, in files of their own: what autograd may be asked, the process, and what must be refused.
PARTS = (graphs, left_alone, refusals)

_TWICE_ALIGNED = 64  # elements of two bytes: torch aligns to 64 bytes on a CPU
_EMPTY_SHAPES = ((0,), (0, 3), (3, 0), (2, 0, 5), (1, 0, 1, 2))


@checker(
    judgement="invariance",
    bugs=("linkedin/Liger-Kernel#1366", "Dao-AILab/flash-attention#1397", "pytorch/pytorch#128209"),
)
def result_form(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A result has x's shape and device; y is FP32 or of x's dtype, always the same, and takes a mask; dx is of x's."""
    x, result = args[0], f(*args)
    kind = x.dtype
    if f.pass_ != "backward":
        usual = f.out_dtype(x.dtype, x.device)
        kind = usual if usual == x.dtype else torch.float32
    yield Claim("the type", got=str(type(result)), want=str(Tensor))
    yield Claim("the shape", got=tuple(result.shape), want=tuple(x.shape))
    yield Claim("the dtype", got=str(result.dtype), want=str(kind))
    yield Claim("the device", got=str(result.device), want=str(x.device))
    yield Claim("the layout", got=str(result.layout), want=str(torch.strided))
    if all(t.is_contiguous() for t in args):
        yield Claim("of contiguous inputs, contiguous", got=result.is_contiguous(), want=True)
    yield Claim("two elements in one place", got=laps_itself(result), want=False)
    lapped = f(*each(args, LAYOUTS["windows"]))
    yield Claim("of rows that overlap, two elements in one place", got=laps_itself(lapped), want=False)
    # What carries a graph holds memory, and an inference tensor cannot be trained on.
    if f.pass_ == "forward" and not learns(f.op):
        carries = f.recorded(x.detach()).requires_grad
        yield Claim("of an input that requires no grad, requires grad", got=carries, want=False)
    if f.pass_ == "forward":
        yield Claim("with a graph, masked in place", got=_masked(f.graph(x)[1]), want="masked")
    if f.pass_ == "inference":
        yield Claim("under no_grad, requires grad", got=result.requires_grad, want=False)
        if not args[0].is_inference():
            yield Claim("under no_grad, an inference tensor", got=result.is_inference(), want=False)


def _masked(y: Tensor) -> str:
    """What becomes of a mask that autograd records in place, as decoding has it: a view of a Function's raises."""
    try:
        y.masked_fill_(torch.ones_like(y, dtype=torch.bool), -math.inf)
    except RuntimeError as error:
        return f"raised {in_one_line(error)}"
    return "masked"


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
    """The memory behind x and grad_y, padding and neighbours included, keeps its bits in a call; x keeps its form."""
    before = [memory(t).clone() for t in args]
    versions = [version(t) for t in args]
    forms: list[tuple[tuple[str, object], ...]] = []

    def watched(op: Operator, x: Tensor) -> Tensor:
        forms.append(seen(x))
        y = op(x)
        forms.append(seen(x))
        return y

    through(f, watched)(*args)
    for name, t, kept in zip(("x", "grad_y"), args, before, strict=False):
        yield Claim(f"the memory of {name}", got=memory(t), want=kept)
    for (name, was), (_, now) in zip(*forms[:2], strict=True):
        yield Claim(f"{name} of the tensor given", got=now, want=was)
    yield Claim("the versions of the inputs", got=[version(t) for t in args], want=versions)
    if f.pass_ != "inference":  # an activation, as of a model's last layer, that has other readers
        _, activation, kept, was = _of_an_activation(f, args)
        yield Claim("the memory of x, an intermediate result", got=memory(activation), want=kept)
        yield Claim("the version of x, an intermediate result", got=version(activation), want=was)


def _of_an_activation(f: Map, args: Args) -> tuple[Tensor, Tensor, Tensor, int | None]:
    """A result, the intermediate result that was its input, and the memory and version that this had before."""
    found: list[tuple[Tensor, Tensor, int | None]] = []

    def call(op: Operator, x: Tensor) -> Tensor:
        activation = x.clone()
        found.append((activation, memory(activation).clone(), version(activation)))
        return op(activation)

    result = through(f, call)(*args)
    return result, *found[0]


@checker(judgement="invariance", inputs="kept", bugs=("linkedin/Liger-Kernel#254", "NVIDIA/Megatron-LM#1594"))
def no_aliasing(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A result shares no memory with an input or with another result, and no later call changes it."""
    first = f(*args)
    kept = first.clone()
    for name, t in zip(("x", "grad_y"), args, strict=False):
        yield Claim(f"the result shares memory with {name}", got=overlap(first, t), want=False)
    if f.pass_ != "inference":
        result, activation, *_ = _of_an_activation(f, args)
        label = "the result shares memory with x, an intermediate result"
        yield Claim(label, got=overlap(result, activation), want=False)
    flat_out = (_barely(args[0], cap_as_fp32(f.cap)), *args[1:])
    for name, t, result in zip(("x", "grad_y"), flat_out, (f(*flat_out),) * 2, strict=False):
        label = f"where the cap changes nothing, the result shares memory with {name}"
        yield Claim(label, got=overlap(result, t), want=False)
    others = (-args[0], *args[1:])
    for label, again in (("a second call", args), ("a call with -x", others)):
        later = f(*again)
        yield Claim(f"{label} returns the memory of the first result", got=overlap(first, later), want=False)
        yield Claim(f"the first result after {label}", got=first, want=kept, of=args)
    if len(args) == 2:
        leaf, y = f.graph(args[0])
        sent = plain(y.detach())
        gradient = f.gradient(leaf, y, args[1])
        yield Claim("the gradient shares memory with y", got=overlap(gradient, y), want=False)
        yield Claim("y after the backward", got=y.detach(), want=sent, of=args[:1])


def _barely(x: Tensor, cap: float) -> Tensor:
    """x with every |x/c| so small that y is x and dx is grad_y: there an implementation may hand out its argument."""
    return torch.copysign(torch.full_like(x, cap * 2.0**-14), x)


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
        before = [memory(t).clone() for t in guarded]
        yield Claim(f"between guards of {label}", got=f(*guarded), want=want, of=args)
        for name, t, kept in zip(("x", "grad_y"), guarded, before, strict=False):
            yield Claim(f"the guards of {label} around {name}", got=memory(t), want=kept)


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
        between = _free((want, *args), poison)
        yield Claim(f"after {label} was freed", got=f(*args), want=want, of=args)
        del between


def _free(alike: Args, poison: int) -> list[Tensor]:
    """Fill memory of the sizes that a call allocates, and give it back: allocators hand it out again first.

    Several blocks of each size, since temporaries take theirs before the result does. Every second one is returned, to
    be kept: free neighbours become one block, whose parts come later. glibc looks for an aligned block in one that is
    larger by twice the alignment.
    """
    like = torch.empty(0, dtype=torch.int16, device=alike[0].device)
    counts = sorted({t.numel() * halves for t in alike for halves in (1, 2)})
    blocks = [
        like.new_empty(count + more) for count in counts for more in (0, _TWICE_ALIGNED) for _ in range(8)
    ]
    for block in blocks:
        block.fill_(poison)
    return blocks[::2]


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
