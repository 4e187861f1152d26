"""What surrounds a call and must not move a bit: repeats, grad modes, other caps, other processes, settings, hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from invariance.candidate import CandidateRaised, Map, load
from invariance.checkers import Pick, checker
from invariance.checkers.copies import received, sent
from invariance.checkers.crowds import crowd, listed, three_caps
from invariance.checkers.modes import GRAD_MODES, GRADIENTS, in_module_states, of_a_dropped_operator
from invariance.checkers.packing import Packed, packed, unpacked
from invariance.checkers.states import STATES, default_dtype, threads, with_flushing
from invariance.checkers.views import LARGE, Args, each, flat, interpreted, plain, through, tiled
from invariance.judge import Claim
from invariance.process import fresh
from strategies.caps import cap_text
from strategies.layouts import LAYOUTS

Cap = float | int
Pickle = bytes | None
Way = Callable[..., Tensor]

_FEW = 4  # elements of a call that is made for what it leaves behind
_INTERPRETED = 16  # operators of a crowd, in the interpreter: milliseconds each


@checker(
    judgement="invariance",
    bugs=("triton-lang/triton#9368", "NVIDIA/TensorRT-LLM#16782", "NVIDIA/TransformerEngine#2986"),
)
def repeat(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """The same call gives the same bits again, whatever was called in between."""
    first = f(*args)
    kept = plain(first)
    for number in range(2, 5):
        yield Claim(f"call {number}", got=f(*args), want=kept, of=args)
    line = each(args, flat)
    between = {
        "other content": each(args, torch.neg),
        "fewer elements": each(line, lambda t: t[: pick("fewer", 0, t.numel())]),
        "more elements": each(line, lambda t: torch.cat([t, t[: LARGE - 1], t[:1]])),
    }
    for label, others in between.items():
        f(*others)
        yield Claim(f"the first result, after a call with {label}", got=first, want=kept, of=args)
        yield Claim(f"again, after a call with {label}", got=f(*args), want=kept, of=args)
    yield from _same_memory(f, args)
    if len(args) == 2:
        leaf, y = f.graph(args[0])
        f.graph(0.5 * torch.cat([line[0], line[0]]))
        yield Claim("with another forward before the backward", f.gradient(leaf, y, args[1]), kept, of=args)
        yield from _two_at_once(f, args, kept)
    elif _went_backward(f, plain(args[0])):
        yield Claim("again, after a backward", got=f(*args), want=kept, of=args)
    other = _another(args[0].dtype)
    f.under("inference")(args[0].to(other))
    yield Claim(f"again, after a call with {other}", got=f(*args), want=kept, of=args)


def _two_at_once(f: Map, args: Args, want: Tensor) -> Iterator[Claim]:
    """Two forwards of one shape before either backward, as of two heads, keep apart what each backward needs."""
    inputs = (args[0], 0.5 * args[0])  # not -1: dx is even in x
    wants = (want, f(inputs[1], args[1]))
    for order, turn in (("in order", (0, 1)), ("in reverse", (1, 0))):
        graphs = [f.graph(x) for x in inputs]
        for number in turn:
            label = f"backward {number + 1} of two forwards of one shape, {order}"
            of = (inputs[number], args[1])
            yield Claim(label, f.gradient(*graphs[number], args[1]), wants[number], of=of)


def _another(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype == torch.float32 else torch.float32


def _went_backward(f: Map, x: Tensor) -> bool:
    """Whether the operator can go backward, which it has then done."""
    try:
        leaf, y = f.graph(x)
        f.gradient(leaf, y, torch.ones_like(y))
    except CandidateRaised:  # the laws about gradients say more
        return False
    return True


def _same_memory(f: Map, args: Args) -> Iterator[Claim]:
    """New numbers where others stood: what is remembered by an address is stale."""
    held = each(args, plain)
    f(*held)
    held[0].mul_(0.5)  # not -1: dx is even in x
    fresh_memory = each(held, plain)
    yield Claim("other content in the same memory", got=f(*held), want=f(*fresh_memory), of=fresh_memory)


@checker(
    judgement="invariance",
    bugs=(
        "Dao-AILab/flash-attention#1397",
        "pytorch/pytorch#128209",
        "intel/intel-extension-for-pytorch#597",
        "unslothai/unsloth#4502",
        "RLinf/RLinf#1534",
    ),
    as_built="it enters the modes itself, one after the other",
)
def grad_mode(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Every grad mode gives the same bits; so do a module's states, and every way of asking for the gradient."""
    want = f(*args)
    for label, way in (GRADIENTS if f.pass_ == "backward" else GRAD_MODES).items():
        yield Claim(label, got=way(f, *args), want=want, of=args)
    for label, got in in_module_states(f, args):
        yield Claim(label, got=got, want=want, of=args)
    # The trainer's operator and the rollout's are two, and what comes first may stick.
    if f.pass_ != "backward":
        other = "inference" if f.pass_ == "forward" else "forward"
        got = f.at(f.cap).under(other)(*args)
        yield Claim(f"an operator of its own, first called in {other}", got=got, want=want, of=args)
    else:
        yield Claim("of an operator that is gone", got=of_a_dropped_operator(f, *args), want=want, of=args)


@checker(judgement="invariance", bugs=("Dao-AILab/flash-attention#2402", "sgl-project/sglang#33915"))
def interleaved_caps(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Operators of several caps, used in turn and however many are alive, each keep the result their cap has alone."""
    caps = three_caps(f.cap)
    alone = [plain(f.at(cap)(*args)) for cap in caps]
    maps = [f.at(cap) for cap in caps]
    yield Claim(
        f"cap {cap_text(f.cap)}, built before {listed(caps[1:])}", got=f(*args), want=alone[0], of=args
    )
    turn = pick("turn", 0, len(caps) - 1)
    for number in (2, 0, 1, 1, 2, 0):
        at = (number + turn) % len(caps)
        label = f"cap {cap_text(caps[at])} in turn with {listed(caps[:at] + caps[at + 1 :])}"
        yield Claim(label, got=maps[at](*args), want=alone[at], of=args)
    if len(args) == 2:
        graphs = [each_map.graph(args[0]) for each_map in maps]
        for cap, one, graph, want in zip(caps, maps, graphs, alone, strict=True):
            label = f"backward at cap {cap_text(cap)}, forwards of {listed(caps)} first"
            yield Claim(label, one.gradient(*graph, args[1]), want, of=args)
    yield from _in_a_crowd(f, args, alone[0])


def _in_a_crowd(f: Map, args: Args, want: Tensor) -> Iterator[Claim]:
    """The claims that it stays right while more and more operators are built and used: places for 1, 2, 4, ... caps."""
    few = tuple(t[:_FEW] for t in each(args, flat))
    graph = f.graph(args[0]) if len(args) == 2 else None
    brief = not interpreted(f)
    caps, alive = crowd(f.cap)[: None if brief else _INTERPRETED], []
    for number, cap in enumerate(caps, 1):
        alive.append(f.at(cap))
        alive[-1](*few)
        if number == len(caps) or (brief and number & (number - 1) == 0):
            label = f"cap {cap_text(f.cap)}, after operators of {listed(caps[:number])}"
            yield Claim(label, got=f(*args), want=want, of=args)
    if graph is not None:
        label = f"backward at cap {cap_text(f.cap)}, its forward before operators of {listed(caps)}"
        yield Claim(label, f.gradient(*graph, args[1]), want, of=args)


# One cell a pass and dtype: a fresh process costs a tenth of a second, and several caps are asked of each.
@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    bugs=("triton-lang/triton#9368", "Dao-AILab/flash-attention#2402"),
)
def fresh_process(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A fresh process gives the same bits, whatever either has computed before; so do operators pickled to it."""
    if args[0].numel() == 0 or not f.candidate.spec:
        return
    long = each(args, partial(tiled, count=1025))
    caps = three_caps(f.cap)
    maps = [f.at(cap) for cap in caps]
    here = [each_map(*long) for each_map in maps]
    answers = fresh(
        "invariance.checkers.calls:results",
        spec=f.candidate.spec,
        device=f.candidate.device,
        pass_=f.pass_,
        caps=caps[::-1],  # another order, or a cap that sticks would stick alike
        given=[packed(t) for t in long],
        pickles=[sent(each_map.op) for each_map in maps[::-1]],
    )
    for cap, got, (own, other) in zip(caps, here, answers[::-1], strict=True):
        yield Claim(f"cap {cap_text(cap)}", got=got, want=unpacked(own, f.candidate.device), of=long)
        if other is not None:
            there = unpacked(other, f.candidate.device)
            yield Claim(f"cap {cap_text(cap)}, pickled and sent", got=there, want=got, of=long)


def results(
    spec: str, device: str, pass_: str, caps: tuple[Cap, ...], given: list[Packed], pickles: list[Pickle]
) -> list[tuple[Packed, Packed | None]]:
    """In the fresh process, which begins as a server does: the results at each cap, in the order given.

    With each that of the operator which was sent, None where it was not, or is not to be unpickled here. The first
    calls are in inference mode, under the default dtype of a BF16 model, the very first in another dtype.
    """
    candidate = load(spec, device)
    args = tuple(unpacked(one, device) for one in given)
    for dtype in (_another(args[0].dtype), args[0].dtype):
        with default_dtype(device, dtype=torch.bfloat16), torch.inference_mode(), suppress(CandidateRaised):
            candidate.map(caps[0], "inference")(args[0].to(dtype))  # it may be made for one dtype
    answers = []
    for cap, data in zip(caps, pickles, strict=True):
        own, op = candidate.map(cap, pass_), received(data)
        other = None if op is None else packed(replace(own, op=op)(*args))
        answers.append((packed(own(*args)), other))
    return answers


@checker(judgement="invariance", inputs="small", bugs=("NVIDIA/torch-harmonics#86",))
def process_state(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Settings of the process move no bit: default dtype, seeds, precisions, threads, denormals, autocast, modes."""
    cap = three_caps(f.cap)[2]  # under a default of BF16 a cap loses its last bits, where it has any
    usual = f.at(cap)(*args)
    for label, state in STATES.items():
        with state(args[0].device.type):
            built = f.at(cap)
            inside, again = built(*args), f(*args)
        after = built(*args)
        yield Claim(f"built and called under {label}", got=inside, want=usual, of=args)
        yield Claim(f"built under {label}, called after", got=after, want=usual, of=args)
        yield Claim(f"called under {label}", got=again, want=f(*args), of=args)
    yield with_flushing(f, args)
    # The default device, of the call alone: buffers of what is built there have no numbers.
    with torch.device("meta"):
        got = f(*args)
    yield Claim("called under the default device meta", got=got, want=f(*args), of=args)
    with ThreadPoolExecutor(1) as pool:
        if len(args) == 2:  # before the thread has seen a forward
            leaf, y = f.graph(args[0])
            got = pool.submit(f.gradient, leaf, y, args[1]).result()
            yield Claim("the backward in another thread", got=got, want=f(*args), of=args)
        elsewhere = pool.submit(f, *args).result()
    yield Claim("called from another thread", got=elsewhere, want=f(*args), of=args)
    if interpreted(f):
        return
    # torch gives a second thread work from 32,768 elements on
    if args[0].numel() > 0:
        long = each(args, partial(tiled, count=(1 << 15) + 17))
        usual, count = f(*long), 2 if torch.get_num_threads() == 1 else 1
        yield Claim(
            f"with another number of threads, {count}", got=_with_threads(count, f, long), want=usual, of=long
        )


def _with_threads(count: int, f: Map, args: Args) -> Tensor:
    with threads(count):
        return f(*args)


@checker(judgement="invariance", passes=("forward", "backward"), bugs=("RLinf/RLinf#1534",))
def checkpointing(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Activation checkpointing, which runs the forward twice, does not move a bit."""
    want = f(*args)
    yield Claim("checkpointed", got=through(f, _checkpointed)(*args), want=want, of=args)
    yield Claim("inside a checkpointed segment", got=through(f, _segment)(*args), want=want, of=args)


def _checkpointed(op: Way, x: Tensor) -> Any:
    return checkpoint(op, x, use_reentrant=False)


def _segment(op: Way, x: Tensor) -> Any:
    return checkpoint(lambda given: op(given.clone()), x, use_reentrant=False)


@checker(judgement="invariance", passes=("forward", "backward"))
def saved_tensor_hooks(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Saved tensors that are packed away and come back in other memory do not move a bit."""
    want = f(*args)
    for label, hooks in _HOOKS.items():
        yield Claim(label, got=through(f, partial(_hooked, hooks))(*args), want=want, of=args)


def _hooked(hooks: Callable[[], AbstractContextManager[object]], op: Way, x: Tensor) -> Tensor:
    with hooks():
        return op(x)


def _stepped(t: Tensor) -> Tensor:
    """Every second element of a wider tensor; masks and indices, which have no NaN, stay where they are."""
    return LAYOUTS["stepped"](t) if t.is_floating_point() else t


_HOOKS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "saved on the CPU": save_on_cpu,
    "copied and copied back": partial(saved_tensors_hooks, lambda t: plain(t.detach()), plain),
    "back with other strides": partial(saved_tensors_hooks, _stepped, lambda t: t),
}
