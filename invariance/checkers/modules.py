"""What is done to a whole model and must not reach the cap: copies, pickles, and moves to another dtype."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from invariance.candidate import Map, Operator
from invariance.checkers import NotApplicable, Pick, checker
from invariance.checkers.copies import COPIES
from invariance.checkers.crowds import three_caps
from invariance.checkers.states import deterministic
from invariance.checkers.views import Args
from invariance.judge import Claim
from invariance.serving import module_of

Move = Callable[[nn.Module], nn.Module]

MOVES: dict[str, Move] = {
    "copied": lambda module: module,
    "after .bfloat16()": lambda module: module.bfloat16(),
    "after .half()": lambda module: module.half(),
    "after .double()": lambda module: module.double(),
    "after .bfloat16() and .float()": lambda module: module.bfloat16().float(),
}


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="small",
    bugs=("pytorch/pytorch#190340", "EricLBuehler/mistral.rs#2058", "huggingface/transformers#48892"),
)
def model_dtype(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A module that is copied, moved to another dtype with its model, or built on meta, keeps its cap and its bits."""
    if module_of(f.op) is None:
        raise NotApplicable("the candidate is not a torch.nn.Module: no model moves it")
    at = f.at(three_caps(f.cap)[2])  # one that the 16-bit types round, as a buffer would be
    want = at(*args)
    for label, move in MOVES.items():
        yield Claim(label, got=replace(at, op=_moved(at.op, move))(*args), want=want, of=args)
    yield from _loaded(f.at(three_caps(at.cap)[2]), args)


def _loaded(f: Map, args: Args) -> Iterator[Claim]:
    """The claim for a model that is built without memory, gets some, and then the weights of a checkpoint."""
    label = "built on meta, to_empty() and load_state_dict()"
    want, device = f(*args), args[0].device
    try:
        with torch.device("meta"):
            built = f.at(f.cap)
        module = _module(built.op)
        if any(t.is_meta for t in (*module.parameters(), *module.buffers())):
            with deterministic(device.type):  # which fills the memory with NaN
                module.to_empty(device=device)
            module.load_state_dict(_module(f.op).state_dict())
        got = built(*args)
    except Exception:  # noqa: BLE001 - whatever an operator raises here is a refusal
        yield Claim(label, got="refused", want="refused")
        return
    yield Claim(label, got=got, want=want, of=args)


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    bugs=("pytorch/pytorch#117275", "pytorch/pytorch#51216"),
)
def copied_operator(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A copy of an operator, deep or not or by pickle, cannot be made, or keeps its cap and its bits."""
    if f.candidate.convention == "function":
        raise NotApplicable("the candidate is a function: there is nothing to copy")
    at = f.at(three_caps(f.cap)[2])  # no default, and none that a rounder copy keeps
    want = at(*args)
    for made, op in (("used", at.op), ("new", f.at(at.cap).op)):
        for label, way in COPIES.items():
            try:
                copied = way(op)
            except Exception:  # noqa: BLE001 - whatever an operator raises here is a refusal
                yield Claim(f"{label}, of a {made} operator", got="refused", want="refused")
                continue
            yield Claim(f"{label}, of a {made} operator", replace(at, op=copied)(*args), want, of=args)
    yield Claim("the operator, after it was copied", got=at(*args), want=want, of=args)


def _moved(op: Operator, move: Move) -> Callable[[Tensor], Tensor]:
    """A copy of the operator whose module was moved: a factory may hand the same module out again."""
    try:
        copied = copy.deepcopy(op)
    except Exception as error:  # the copy is the author's code too
        raise NotApplicable(f"the module cannot be copied: {type(error).__name__}: {error}") from error
    move(_module(copied))
    return copied


def _module(op: Operator) -> nn.Module:
    owner = module_of(op)
    assert owner is not None, "a copy of a module is one, and so is a second one"
    return owner
