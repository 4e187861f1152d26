"""Jobs of a child that look at a failure again: after a history of caps, at simpler caps, on one element."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from invariance import process
from invariance.candidate import Candidate, CandidateRaised
from invariance.checkers import NotApplicable, load_laws
from invariance.fuzz.asked import Asked
from invariance.fuzz.element import Element, simplest_element
from invariance.fuzz.grid import Grid, grids, whole
from invariance.fuzz.rounds import RAISED, Broken, Subject, candidate_of, parts_of
from invariance.fuzz.scan import Part
from invariance.judge import Mismatch
from invariance.run import Trial, arguments
from invariance.verdict import FAIL, NOT_APPLICABLE, PASS, Cell, Verdict
from oracles.truth import Truth
from strategies.campaign import CapRange, cap_of_bits
from strategies.caps import as_fp32, fp32_bits
from strategies.case import Case
from strategies.dtypes import FORMATS, TORCH, name, to_bits
from strategies.simplest import simplest_cap

CAPS_TRIED = 150  # a few milliseconds each
BESIDE = ("one step below", "one step above")
LOCAL = (*BESIDE, "its first 8 bits", "as a float")
LISTED = 64  # elements up to which a corpus line writes out the expected bits


@dataclass(frozen=True)
class Seen:
    """A failure met again: at which cap, its plainest failing element (None for what raised), and its variations.

    variations: simple changes of the cap, and whether it fails there too.
    """

    asked: Asked
    element: Element | None
    variations: tuple[tuple[str, bool], ...] = ()
    reason: str | None = None


def exercise(
    candidate: Candidate, history: list[Asked], x: torch.Tensor, passes: tuple[str, ...], device: str
) -> None:
    """Call the candidate at caps, in order, as a process that met them did; what it raises is its own affair."""
    for asked in history:
        with contextlib.suppress(CandidateRaised):
            f = asked.map(candidate, "forward", device)
            if "backward" in passes:
                leaf, y = f.graph(x.clone())
                f.gradient(leaf, y, torch.ones_like(y))
            f.under("inference")(x.clone())


def seen_again(subject: Subject, broken: Broken, history: list[Asked]) -> Seen | None:
    """The failure in a process that met these caps before, or None where it does not come back."""
    candidate = candidate_of(subject)
    grid = next(iter(grids(broken.dtype, as_fp32(broken.asked.cap), subject.seed, subject.device)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exercise(candidate, history, grid.tensor(), subject.passes, subject.device)
    return _look(candidate, subject, broken, broken.asked)


def shrunk_cap(subject: Subject, broken: Broken, within: CapRange, seconds: float = math.inf) -> Seen | None:
    """The failure at the simplest cap that has it, all in this process; None where it does not come back at all.

    seconds: after so many no other cap is tried.
    """
    candidate, end = candidate_of(subject), time.monotonic() + seconds
    if _look(candidate, subject, broken, broken.asked) is None:
        return None

    def fails(cap: float | int) -> bool:
        on_time = time.monotonic() < end
        return on_time and _look(candidate, subject, broken, Asked(cap, broken.asked.form)) is not None

    cap = simplest_cap(broken.asked.cap, fails, within, budget=CAPS_TRIED)
    seen = _look(candidate, subject, broken, Asked(cap, broken.asked.form))
    if seen is None:
        return None
    other = []
    for what, value in _variations(cap):
        if value in within and time.monotonic() < end:
            other.append((what, fails(value)))
    return Seen(seen.asked, seen.element, tuple(other), seen.reason)


def _variations(cap: float | int) -> list[tuple[str, float | int]]:
    """Simple changes of a cap; which of them fail too tells one cause from another."""
    value, bits = as_fp32(cap), fp32_bits(cap)
    found: list[tuple[str, float | int]] = [
        ("one step below", cap_of_bits(bits - 1)),
        ("one step above", cap_of_bits(bits + 1)),
        ("half of it", value / 2),
        ("twice it", value * 2),
        ("its first 8 bits", cap_of_bits(bits >> 16 << 16)),
        ("times 2^-20", value * 2.0**-20),
        ("times 2^20", value * 2.0**20),
    ]
    if isinstance(cap, int):
        found.append(("as a float", value))
    return [(what, other) for what, other in found if other != cap or what == "as a float"]


def _look(candidate: Candidate, subject: Subject, broken: Broken, asked: Asked) -> Seen | None:
    """The same law and pass at another cap, grid by grid; the first one that fails."""
    for grid in _grids(subject, broken, asked):
        try:
            parts = parts_of(candidate, subject, asked, grid)
        except CandidateRaised as error:
            return Seen(asked, None, reason=str(error)) if broken.kind == RAISED else None
        for part in parts:
            if _is(broken, part):
                return Seen(asked, simplest_element(grid, part))
    return None


def _grids(subject: Subject, broken: Broken, asked: Asked) -> Iterator[Grid]:
    if broken.inputs:
        yield Grid(broken.dtype, torch.tensor(broken.inputs, device=subject.device))
    yield from grids(broken.dtype, as_fp32(asked.cap), subject.seed, subject.device)


def _is(broken: Broken, part: Part) -> bool:
    return (part.law, part.pass_) == (broken.law, broken.pass_) and part.wrong.numel() > 0


def one_cap(subject: Subject, asked: Asked, dtype: str) -> int:
    """Call everything of one cap and dtype, for what may not come back; how many results there were."""
    candidate = candidate_of(subject)
    grid: Grid = next(iter(grids(dtype, as_fp32(asked.cap), subject.seed, subject.device)))
    return sum(part.elements for part in parts_of(candidate, subject, asked, grid))


def case_of(broken: Broken, seen: Seen) -> Case:
    """The case of one element; of a whole small domain where nothing is known of elements."""
    cap = seen.asked.cap
    if seen.element is None:
        return Case((1,), broken.dtype, cap, values="constant")
    case = Case((1,), broken.dtype, cap, values=(seen.element.x,))
    if seen.element.grad_y is None:
        return case
    one = fp32_bits(1.0)
    if seen.element.grad_y == one:
        return case.with_knobs(grad_values="ones")
    return case.with_knobs(grad_bits=(seen.element.grad_y,))


def wide_case(broken: Broken, asked: Asked) -> Case:
    """Where one element alone does not fail: all inputs of a 16-bit dtype, or many of FP32."""
    if broken.dtype == "fp32":
        return Case((1 << 16,), "fp32", asked.cap, values="mixed")
    return Case((whole(broken.dtype, "cpu").elements,), broken.dtype, asked.cap, values="domain")


def judge_line(
    spec: str,
    law: str,
    pass_: str,
    case: str,
    device: str,
    history: list[Any],
    cap: Any,
    expected: list[str] | None,
    out_dtype: str | None = None,
) -> tuple[Verdict, list[str] | None, str | None]:
    """One law on one case after a history of caps: what a corpus line says, in a process of its own.

    Gives the verdict, and the bits that are right with their dtype (None for more than 64 elements). Where `expected`
    are other bits than the oracle's the line itself is wrong, which fails too.
    """
    candidate, recipe, known = candidate_of(Subject(spec, device)), Case.loads(case), load_laws()[law]
    asked = Asked.of_record(cap)
    process.announce(case)
    passes = ("forward", "inference", "backward") if pass_ == "backward" else ("forward", "inference")
    exercise(candidate, [Asked.of_record(c) for c in history], recipe.x(device), passes, device)
    cell = Cell(candidate.name, law, pass_, recipe.dtype, recipe.cap)
    shown = asked.given(candidate, device)
    trial = Trial(shown, known, pass_, device)
    try:
        found, reason = trial.judge(recipe)
    except NotApplicable as error:
        return replace(trial.verdict(cell, NOT_APPLICABLE), reason=str(error), case=case), None, None
    right, dtype = _right(shown, recipe, pass_, device, out_dtype)
    if expected is not None and expected != right:
        reason = f"the line expects {expected}, the oracle says {right}"
    failed = found.mismatch is not None or reason is not None or found.elements == 0
    verdict = replace(
        trial.verdict(cell, FAIL if failed else PASS),
        cases=1,
        elements=found.elements,
        flushed=found.flushed,
        escalated=found.escalated,
        worst=found.worst,
        mismatch=found.mismatch,
        reason=reason,
        case=case,
    )
    return verdict, right, dtype


def _right(
    candidate: Candidate, case: Case, pass_: str, device: str, out_dtype: str | None
) -> tuple[list[str] | None, str | None]:
    """The exact results rounded once, in bits, and their dtype: the one given or the candidate's."""
    if case.numel > LISTED:
        return None, None
    try:
        args = arguments(candidate.map(case.cap, pass_), case, device)
        y_dtype = candidate.map(case.cap, pass_).out_dtype(TORCH[case.dtype], device)
    except CandidateRaised:
        return None, None
    dtype = TORCH[out_dtype or (case.dtype if pass_ == "backward" else name(y_dtype))]
    bits = to_bits(Truth.of(args[0], case.cap, *args[1:]).rounded(dtype))
    digits = FORMATS[name(dtype)].width // 4
    return [f"0x{b:0{digits}x}" for b in bits.flatten().tolist()], name(dtype)


def mismatch_of(kind: str, reason: str | None) -> Mismatch:
    """How a report says that there was no result."""
    return Mismatch("the candidate", kind, got=reason, want="a result")
