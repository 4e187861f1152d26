"""Jobs of a child that look at a failure again: after a history of caps, at simpler caps, several times."""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from invariance.candidate import Candidate, CandidateRaised
from invariance.fuzz.alive import TOGETHER, alive
from invariance.fuzz.asked import Asked
from invariance.fuzz.element import Element, simplest_element
from invariance.fuzz.grid import Grid, grids, whole
from invariance.fuzz.rounds import Broken, Subject, built, candidate_of, parts_of
from invariance.fuzz.scan import LAW, LEAVES, Part, Raised
from invariance.judge import differs
from strategies.campaign import CapRange, cap_of_bits
from strategies.caps import as_fp32, fp32_bits
from strategies.case import Case
from strategies.dtypes import to_bits
from strategies.simplest import simplest_cap

CAPS_TRIED = 150  # a few milliseconds each
BESIDE = ("one step below", "one step above")
LOCAL = (*BESIDE, "its first 8 bits", "as a float")
CALLS = 4  # of one operator, to see whether it gives the same twice
MANY_CALLS = 400  # where nothing plainer explains it


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
        with contextlib.suppress(CandidateRaised, *LEAVES):
            f = asked.map(candidate, "forward", device)
            if "backward" in passes:
                leaf, y = f.graph(x.clone())
                f.gradient(leaf, y, torch.ones_like(y))
            elif "forward" in passes:
                f.under("forward")(x.clone())
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
    try:
        for grid, part in _parts(candidate, subject, broken, asked):
            if (part.law, part.pass_) == (broken.law, broken.pass_) and part.wrong.numel():
                return Seen(asked, simplest_element(grid, part, as_fp32(asked.cap)))
    except Raised as error:
        return Seen(asked, None, reason=str(error)) if broken.is_of(error) else None
    return None


def _parts(
    candidate: Candidate, subject: Subject, broken: Broken, asked: Asked
) -> Iterator[tuple[Grid, Part]]:
    """What a campaign would see of a cap as far as it speaks of this law, grid by grid; raises Raised."""
    if broken.law == TOGETHER:
        yield from alive(candidate, (broken.pass_,), asked, broken.dtype, subject.device)
        return
    f = built(candidate, subject, asked)
    for grid in _grids(subject, broken, asked):
        for part in parts_of(f, subject, asked, grid):
            yield grid, part


def _grids(subject: Subject, broken: Broken, asked: Asked) -> Iterator[Grid]:
    if broken.inputs:
        yield Grid(broken.dtype, torch.tensor(broken.inputs, device=subject.device))
    yield from grids(broken.dtype, as_fp32(asked.cap), subject.seed, subject.device)


def unsteady_at_last(subject: Subject, broken: Broken, seconds: float) -> tuple[str, Seen] | None:
    """As `unsteady` in very many calls of some elements, for what is seldom wrong; none begins after the seconds."""
    grid, end = next(_grids(subject, broken, broken.asked)), time.monotonic() + seconds
    few = Grid(broken.dtype, to_bits(grid.positive[:: max(grid.positive.numel() // 1024, 1)]).to(torch.int64))
    try:
        f = built(candidate_of(subject), subject, broken.asked)
        first = parts_of(f, subject, broken.asked, few)
        for _ in range(MANY_CALLS):
            if (found := _moved(few, broken, first, parts_of(f, subject, broken.asked, few))) is not None:
                return found
            if time.monotonic() >= end:
                break
    except Raised:
        pass
    return None


def _moved(grid: Grid, broken: Broken, first: list[Part], again: list[Part]) -> tuple[str, Seen] | None:
    """The pass in which a second run gave other bits than the first, and where."""
    for one, other in zip(first, again, strict=True):
        if one.got.dtype == other.got.dtype and bool((moved := differs(other.got, one.got)).any()):
            part = replace(one, wrong=moved.nonzero().flatten())
            return one.pass_, Seen(broken.asked, simplest_element(grid, part, as_fp32(broken.asked.cap)))
    return None


def unsteady(subject: Subject, broken: Broken) -> tuple[str, Seen] | None:
    """The pass in which one operator, called several times, gives other bits, and where; None where none does.

    None as well where the failure is one of accuracy and some element fails each time: that is told as what it is.
    """
    grid = next(_grids(subject, broken, broken.asked))
    try:
        f = built(candidate_of(subject), subject, broken.asked)
        runs = [parts_of(f, subject, broken.asked, grid) for _ in range(CALLS)]
    except Raised:
        return None
    for parts in zip(*runs, strict=True):
        if broken.law == LAW == parts[0].law and parts[0].pass_ == broken.pass_:
            always = torch.ones(grid.elements, dtype=torch.int64, device=subject.device)
            for part in parts:
                always *= torch.zeros_like(always).index_fill_(0, part.wrong, 1)
            if bool(always.any()):
                return None
    found = (_moved(grid, broken, runs[0], again) for again in runs[1:])
    return next((seen for seen in found if seen is not None), None)


def one_cap(subject: Subject, asked: Asked, dtype: str, law: str = LAW) -> int:
    """Call what a law calls at one cap and dtype, for what may not come back; how many results there were."""
    if law == TOGETHER:
        with contextlib.suppress(Raised):
            parts = alive(candidate_of(subject), subject.passes, asked, dtype, subject.device)
            return sum(part.elements for _, part in parts)
        return 0
    grid = next(iter(grids(dtype, as_fp32(asked.cap), subject.seed, subject.device)))
    with contextlib.suppress(Raised):
        f = built(candidate_of(subject), subject, asked)
        return sum(part.elements for part in parts_of(f, subject, asked, grid))
    return 0


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
