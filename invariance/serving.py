"""How operators are served, as serving code calls them: modules in `eval()`, everything in `torch.inference_mode()`.

A mode is part of a case, so that every law is judged in all of them: what a kernel does only there, no unit test meets.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import torch

from invariance.candidate import Candidate, Operator


def module_of(op: Operator) -> torch.nn.Module | None:
    """The module that an operator is, or is a method of."""
    owner = op if isinstance(op, torch.nn.Module) else getattr(op, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None


def learns(op: Operator) -> bool:
    """Whether a gradient is asked for of something else than the input: a result has a graph then in any case."""
    owner = module_of(op)
    return owner is not None and any(parameter.requires_grad for parameter in owner.parameters())


@contextmanager
def serving(candidate: Candidate, pass_: str, mode: str) -> Iterator[Candidate]:
    """The candidate in a mode, for as long as the context is open: tensors that are made meanwhile are in it too.

    Modules are put back, for a factory may hand the same one out again. ValueError for a pass that the mode has not.
    """
    if mode == "inference_mode" and pass_ != "inference":
        raise ValueError(f"in inference_mode no graph is recorded: it is for the pass inference, not {pass_}")
    if not mode:
        yield candidate
        return
    changed: list[weakref.ref[torch.nn.Module]] = []

    def build(cap: float | int) -> Operator:
        op = candidate.factory(cap)
        if (owner := module_of(op)) is not None:
            changed.extend(weakref.ref(module) for module in owner.modules() if module.training)
            owner.eval()
        return op

    with ExitStack() as stack:
        if mode == "inference_mode":
            stack.enter_context(torch.inference_mode())
        try:
            yield replace(candidate, factory=build, mode=mode)
        finally:
            for module in filter(None, (reference() for reference in changed)):
                module.training = True
