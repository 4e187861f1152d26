"""What importing a candidate changes in the process: seeds, modes and functions that others would compute with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from invariance.candidate import Candidate, load
from invariance.checkers.settings import settings_of

# What packages set when they are imported, for good reasons, and what moves no bit; a call is held to them too.
FREE_AT_IMPORT = frozenset(
    {
        "the warning filters",
        "the environment",
        "the import path",
        "the working directory",
        "the garbage collector",
        "the recursion limit",
        "signal handlers",
        "torch's print options",
        "NumPy's print options",
        "NumPy's error handling",
    }
)

_OWNERS = (torch, torch.Tensor, torch.nn.functional)

Found = dict[str, Any]


def loaded(spec: str, device: str) -> Candidate:
    """The candidate, and which settings importing it changed; once a process, as a module is imported once.

    Raises CandidateNotLoadable.
    """
    if (spec, device) not in _CANDIDATES:
        before, functions = _settings(), _functions()
        candidate = load(spec, device)
        after = _settings()
        changes = (*_changes(before, after), *_replaced(functions, _functions()))
        _CANDIDATES[spec, device] = replace(candidate, imported=changes, settings=after)
    return _CANDIDATES[spec, device]


_CANDIDATES: dict[tuple[str, str], Candidate] = {}


def _settings() -> Found:
    # An accelerator's own would start it before the candidate is there.
    known = settings_of(torch.device("cpu"))
    return {name: setting.read() for name, setting in known.items()}


def _changes(before: Found, after: Found) -> Iterator[str]:
    for name, was in before.items():
        if name not in FREE_AT_IMPORT and after[name] != was:
            told = f": {was} became {after[name]}"  # the state of a generator is long, and says nothing to a reader
            yield name + (told if len(told) < 80 else "")


def _functions() -> dict[str, Callable[..., Any]]:
    """Torch's own functions by name: one that is replaced computes something else for everybody."""
    return {
        f"{owner.__name__}.{name}": value
        for owner in _OWNERS
        for name, value in vars(owner).items()
        if callable(value) and (not name.startswith("_") or name.startswith("__"))
    }


def _replaced(before: dict[str, Callable[..., Any]], after: dict[str, Callable[..., Any]]) -> Iterator[str]:
    yield from (f"{name}: replaced" for name, function in before.items() if after.get(name) is not function)
