"""What an operator was called with before, how often, and on which tensor objects: none of it may move a bit."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from invariance.candidate import CandidateRaised, Map, Operator
from invariance.checkers import NotApplicable, Pick, checker
from invariance.checkers.memory import held, overlap
from invariance.checkers.tracing import on_fakes
from invariance.checkers.views import Args, each, flat, interpreted, plain, through, tiled
from invariance.judge import Claim
from strategies.layouts import LAYOUTS

_CALLS, _INTERPRETED_CALLS = 512, 40  # while a first result is held: rings of output buffers are shorter
# Calls of which each may leave something, in rounds of twice as many each: a cache is full by then, and what a process
# loads or sets up at its first calls is there. An operator in the interpreter gets fewer elements. Of lengths and of
# operators there are fewer: a kernel may be compiled for each.
_ADDED, _COMPILED, _ROUNDS = 64, 16, 5
_WIDE, _INTERPRETED = 1 << 13, 1 << 9
# Seconds. A device's backward runs in a thread of the engine's, which lets go of its tensors after the caller goes on:
# one of many thousand cases on an H200 met a result that was still there.
_LATE = 1.0
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="small",
    bugs=("triton-lang/triton#9368", "vllm-project/vllm#48391", "pytorch/pytorch#119963"),
)
def first_call(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Whatever dtype, shape, layout, values or mode an operator first meets, later calls give the same bits."""
    want = f(*args)
    for label, first in _firsts(f, args):
        fresh = f.at(f.cap)
        fresh(*first)
        yield Claim(f"first called with {label}", got=fresh(*args), want=want, of=args)
    if f.pass_ != "inference":  # what is made there and kept, no graph may save
        fresh = f.at(f.cap)
        with torch.inference_mode():
            fresh.under("inference")(args[0].clone())
        yield Claim("first called in inference_mode", got=fresh(*args), want=want, of=args)
    fresh = f.at(f.cap)
    with suppress(CandidateRaised):  # as a kernel may that has no form without numbers
        on_fakes(fresh, args)
    yield Claim("first called with fake tensors", got=fresh(*args), want=want, of=args)


def _firsts(f: Map, args: Args) -> Iterator[tuple[str, Args]]:
    """First calls in another dtype, where the candidate takes it, and of another shape, layout or content."""
    for dtype in _DTYPES:
        if dtype != args[0].dtype and (others := _in_dtype(f, args, dtype)) is not None:
            yield str(dtype), others
    yield "no elements", each(args, lambda t: flat(t)[:0])
    yield "NaN", each(args, lambda t: torch.full_like(t, math.nan))
    if args[0].numel() > 0:
        yield "one element", each(args, lambda t: flat(t)[0])
        yield "257 rows", each(args, lambda t: tiled(t, 771).view(257, 3))
        yield "16,385 elements", each(args, lambda t: tiled(t, 16385))
        yield "every second element", each(args, LAYOUTS["stepped"])


def _in_dtype(f: Map, args: Args, dtype: torch.dtype) -> Args | None:
    """The arguments in another dtype; None where the candidate raises on it, as one made for a single dtype may."""
    try:
        result = f.out_dtype(dtype, args[0].device)
    except CandidateRaised:
        return None
    return (args[0].to(dtype), *(g.to(result) for g in args[1:]))


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    bugs=("triton-lang/triton#9368", "pytorch/pytorch#132301"),
)
def many_calls(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A result outlives 512 later calls, none of which takes its memory; the same call then gives its bits again."""
    first = f(*args)
    kept, count = plain(first), _INTERPRETED_CALLS if interpreted(f) else _CALLS
    others = (-args[0], *args[1:])
    met = any(overlap(first, f(*others)) for _ in range(count))
    yield Claim(f"one of {count} more calls returns the memory of the first result", got=met, want=False)
    yield Claim(f"the first result after {count} more calls", got=first, want=kept, of=args)
    yield Claim(f"again, after {count} more calls", got=f(*args), want=kept, of=args)


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="small",
    bugs=("linkedin/Liger-Kernel#1305", "triton-lang/triton#4004", "pytorch/pytorch#132301"),
)
def same_tensor(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """One tensor object given again, after its numbers changed, gives the result of the numbers that it holds now."""
    held = [plain(t) for t in args]
    held[0].requires_grad_(f.pass_ != "inference")
    f.of_object(*held)
    for name, t in zip(("x", "grad_y"), held, strict=False):
        for how in ("in place", "through .data"):
            with torch.no_grad():
                (t if how == "in place" else t.data).mul_(0.5)  # not -1: dx is even in x
            yield _as_anew(f"the same {name}, changed {how}", f, held)
    if len(held) == 2:
        held[1] = -held[1]
        yield _as_anew("the same x, another grad_y", f, held)


def _as_anew(label: str, f: Map, held: list[Tensor]) -> Claim:
    """The claim that the tensors held give what copies of them give."""
    anew = tuple(plain(t.detach()) for t in held)
    return Claim(label, got=f.of_object(*held), want=f(*anew), of=anew)


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="kept",
    bugs=("linkedin/Liger-Kernel#1268", "triton-lang/triton#4004"),
)
def memory_released(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A call keeps nothing: once a caller drops x, grad_y and the result, their memory is free."""
    ways = [_called_and_dropped] if f.pass_ == "inference" else [_called_and_dropped, _with_an_activation]
    for way in ways:
        kept = way(f, args)
        wait_for_release(list(kept.values()), patience=0.0 if args[0].device.type == "cpu" else _LATE)
        for name, storage in kept.items():
            state = "released" if _expired(storage) else "kept"
            yield Claim(f"the memory of {name}, after a call", got=state, want="released")


def wait_for_release(storages: Sequence[StorageWeakRef], patience: float) -> None:
    """Wait until nobody holds them, for so many seconds at most."""
    end = time.monotonic() + patience
    while not all(map(_expired, storages)):
        gc.collect()  # what waits for the collector, as a cycle through an autograd context does, is not kept
        if time.monotonic() >= end:
            return
        time.sleep(0.001)


def _called_and_dropped(f: Map, args: Args) -> dict[str, StorageWeakRef]:
    """Weak references to the memory of a call's tensors, of which none is left here."""
    given = each(args, plain)
    return _storages(dict(zip(("x", "grad_y"), given, strict=False)) | {"the result": f(*given)})


def _with_an_activation(f: Map, args: Args) -> dict[str, StorageWeakRef]:
    """A weak reference to the memory of an intermediate result that was called with."""
    given: dict[str, Tensor] = {}

    def call(op: Operator, x: Tensor) -> Tensor:
        given["x, an intermediate result"] = activation = x.clone()
        return op(activation)

    through(f, call)(*args)
    return _storages(given)


def _storages(tensors: dict[str, Tensor]) -> dict[str, StorageWeakRef]:
    return {name: StorageWeakRef(t.untyped_storage()) for name, t in tensors.items()}  # type: ignore[no-untyped-call]  # torch's


def _expired(storage: StorageWeakRef) -> bool:
    return bool(storage.expired())  # type: ignore[no-untyped-call]  # torch's


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    shrinks=4,
    bugs=("triton-lang/triton#1358", "asappresearch/sru#171", "pytorch/pytorch#96937"),
)
def memory_growth(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Calls do not add up: many of them, of one length or of many, by one operator or by many, leave no more memory."""
    if held(args[0].device) is None:
        raise NotApplicable("this C library does not say how much memory it has given out")
    count = _INTERPRETED if interpreted(f) else _WIDE
    given = each(args, lambda t: tiled(t, count)) if args[0].numel() else each(args, flat)
    with _collecting_quickly():
        for label, added, calls in (
            ("call", _ADDED, _with_other_numbers),
            ("length", _COMPILED, _of_other_lengths),
            ("operator", _COMPILED, _of_new_operators),
        ):
            made = partial(calls, f, given)
            grew = all(_grew(made, added, 1 << number, args[0].device, count) for number in range(_ROUNDS))
            yield Claim(f"memory, with every {label}", got="grows" if grew else "as before", want="as before")


@contextmanager
def _collecting_quickly() -> Iterator[None]:
    """What was there before is not freed meanwhile, nor looked at by the collector, which takes it 50 ms."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _grew(calls: Callable[[range], None], added: int, batches: int, device: torch.device, count: int) -> bool:
    """Whether batches of calls added half of the memory that a 16-bit copy of each x would take."""
    before = held(device) or 0
    for number in range(batches, 2 * batches):
        calls(range(number * added, (number + 1) * added))
    gc.collect()  # what waits for the collector is not kept
    return (held(device) or 0) - before > batches * added * count


def _with_other_numbers(f: Map, args: Args, numbers: range) -> None:
    """Calls with different numbers in different memory, all of which the caller holds up to the last."""
    given = [each(args, partial(_marked, at=number)) for number in numbers]
    for one in given:
        f(*one)


def _of_other_lengths(f: Map, args: Args, numbers: range) -> None:
    for number in numbers:
        f(*each(args, lambda t: tiled(t, t.numel() + number) if t.numel() else t))  # noqa: B023 - called here


def _of_new_operators(f: Map, args: Args, numbers: range) -> None:
    """Calls of operators of one cap, for which one may be kept."""
    for operator in [f.at(f.cap) for _ in numbers]:
        operator(*args)


def _marked(t: Tensor, at: int) -> Tensor:
    """A copy with a zero at one place."""
    t = t.clone()
    if t.numel():
        t[at % t.numel()] = 0
    return t
