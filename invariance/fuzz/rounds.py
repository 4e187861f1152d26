"""A round of caps, judged in a child beside the candidate. What a process has seen of caps is remembered."""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from dataclasses import dataclass, field, replace

import torch

from invariance import process
from invariance.candidate import Candidate, Map, load
from invariance.fuzz.alive import TOGETHER, alive, built_beside, due
from invariance.fuzz.asked import Asked
from invariance.fuzz.bounds import bound
from invariance.fuzz.every import Every, every_fp32
from invariance.fuzz.grid import Grid, grids
from invariance.fuzz.scan import CONSTRUCTOR, LAW, Part, Raised, during, scan
from oracles.tolerances import load_contract
from strategies.caps import as_fp32, fp32_bits

WRONG, RAISED, REFUSED, CRASHED, LATE = "wrong", "raised", "refused", "crashed", "timed out"
POISONED = 70  # exit status of a child whose device is of no more use
REMEMBERED = 1024  # operators before a failure whose caps are kept with it, some three a cap


@dataclass(frozen=True)
class Subject:
    """What a campaign judges, and how: plain data, the same in every process.

    passes: of "forward", "inference", "backward". dtypes: short names. seed: of the FP32 samples.
    """

    spec: str
    device: str = "cpu"
    seed: int = 0
    dtypes: tuple[str, ...] = ("fp16", "bf16", "fp32")
    passes: tuple[str, ...] = ("forward", "inference", "backward")


@dataclass(frozen=True)
class Point:
    """The worst result of a pass at a cap: see `scan.Part.error`. x: the input's bits."""

    error: float
    dtype: str
    x: int


@dataclass(frozen=True)
class Broken:
    """A law broken at a cap. before: the caps of the operators built before; wrong of total elements of one grid.

    kind: WRONG, RAISED, REFUSED (by the constructor), CRASHED or LATE; reason: in words, for all but the first. inputs:
    magnitudes known to fail, where they are not among those of `grids`.
    """

    law: str
    pass_: str
    dtype: str
    asked: Asked
    wrong: int = 1
    total: int = 1
    kind: str = WRONG
    reason: str | None = None
    before: tuple[Asked, ...] = ()
    inputs: tuple[int, ...] = ()

    @property
    def cause(self) -> tuple[str, ...]:
        """What failures that are likely to be one have in common."""
        if self.kind in (RAISED, REFUSED):
            return self.kind, told(self.reason)
        return self.law, self.pass_, self.kind

    def is_of(self, error: Raised) -> bool:
        """Whether this is the same kind of exception, from the same place."""
        stage = CONSTRUCTOR if self.kind == REFUSED else self.pass_ if self.kind == RAISED else None
        return stage == error.stage and type_of(self.reason) == type_of(str(error))


@dataclass
class Judged:
    """What was seen of one cap. worst: by pass."""

    asked: Asked
    elements: int = 0
    flushed: int = 0
    escalated: int = 0
    worst: dict[str, Point] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)

    def share(self, pass_: str) -> float:
        """The worst error of a pass as a share of what a correct kernel may have at this cap."""
        return self.worst[pass_].error / bound(pass_, self.asked.cap)


_NUMBER = re.compile(r"[-+]?(0x[0-9a-f.]+(p[-+]?\d+)?|\d+\.?\d*(e[-+]?\d+)?|\binf\b|\bnan\b)", re.IGNORECASE)
_DTYPE = re.compile(r"\b(fp|b?float)(16|32)\b|\b(Half|BFloat16|Float)\b")


def told(reason: str | None) -> str:
    """What was raised, whatever the numbers and dtypes in it: a message mostly names the cap."""
    return _NUMBER.sub("#", _DTYPE.sub("dtype", reason or ""))


def type_of(reason: str | None) -> str:
    """The type of what was raised."""
    return (reason or "").partition(":")[0]


_candidates: dict[tuple[str, str], Candidate] = {}
_seen: list[Asked] = []


def candidate_of(subject: Subject) -> Candidate:
    """The candidate, loaded once a process."""
    key = (subject.spec, subject.device)
    if key not in _candidates:
        _candidates[key] = load(subject.spec, subject.device)
    return _candidates[key]


def run_round(subject: Subject, caps: list[Asked], seconds: float = math.inf) -> list[Judged]:
    """Judge caps in order, as many as begin within the seconds; announces each, so that a crash has a cap."""
    candidate, end = candidate_of(subject), time.monotonic() + seconds
    found = []
    for asked in caps:
        try:
            found.append(judge_cap(candidate, subject, asked, seconds))
        finally:
            _end_if_poisoned(subject, asked)
        if time.monotonic() >= end:
            break
    return found


def _end_if_poisoned(subject: Subject, asked: Asked) -> None:
    """End this process where the device's context is lost: every cap after it would be a failure too."""
    if torch.device(subject.device).type == "cpu":
        return
    try:
        torch.zeros(1, device=subject.device).item()
    except RuntimeError as error:
        reason = process.in_one_line(error)
        announce(asked, subject.dtypes[0], why=f"the device's context was lost: {reason}")
        os._exit(POISONED)


def announce(asked: Asked, dtype: str, law: str = LAW, why: str | None = None) -> None:
    """Tell the parent what is judged now; why: what it ends of, where this process knows."""
    process.announce(json.dumps([asked.record(), dtype, law, why]))


def judge_cap(candidate: Candidate, subject: Subject, asked: Asked, seconds: float = math.inf) -> Judged:
    """Every grid of every dtype at one cap, on an accelerator all FP32 inputs of the forward pass besides; then, at the
    first cap of a process and at some of the others, operators of several caps in turn if that takes no longer than the
    seconds.
    """
    judged, first = Judged(asked), not _seen
    for dtype in subject.dtypes:
        announce(asked, dtype)
        every = dtype == "fp32" and subject.device != "cpu" and "forward" in subject.passes
        # What all inputs show the sample need not.
        sampled = (
            replace(subject, passes=tuple(p for p in subject.passes if p != "forward")) if every else subject
        )
        try:
            if sampled.passes:
                f = built(candidate, subject, asked)
                for grid in grids(dtype, as_fp32(asked.cap), subject.seed, subject.device):
                    for part in parts_of(f, sampled, asked, grid):
                        _take(judged, grid, part)
            if every:
                with during("forward"):
                    given = asked.given(candidate, subject.device)
                    _take_every(judged, every_fp32(given, asked.cap, subject.device))
        except Raised as error:
            _take_raised(judged, dtype, error)
        _seen.append(asked)
    if not judged.broken and due(asked, first=first):
        _together(candidate, subject, judged, seconds)
    return judged


def _together(candidate: Candidate, subject: Subject, judged: Judged, seconds: float) -> None:
    """Operators of several caps in turn; the few elements are not counted, as it depends on the process which caps."""
    dtype = subject.dtypes[-1]
    announce(judged.asked, dtype, TOGETHER)
    try:
        for grid, part in alive(candidate, subject.passes, judged.asked, dtype, subject.device, seconds):
            _take_broken(judged, grid, part)
    except Raised as error:
        _take_raised(judged, dtype, error, TOGETHER)
    _seen.extend(built_beside(judged.asked))


def built(candidate: Candidate, subject: Subject, asked: Asked) -> Map:
    """The operator of a cap; raises Raised."""
    with warnings.catch_warnings(), during(CONSTRUCTOR):
        warnings.simplefilter("ignore")  # a candidate's warnings are not evidence
        return asked.map(candidate, "forward", subject.device)


def parts_of(f: Map, subject: Subject, asked: Asked, grid: Grid) -> list[Part]:
    """The scan of one grid at one cap; half of the caps with upstream gradients of 1, half with hashed ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return scan(f, grid, load_contract(), passes=subject.passes, grads=upstream(asked))


def upstream(asked: Asked) -> str:
    """The upstream gradient of a cap."""
    return ("ones", "hashed")[(fp32_bits(asked.cap) * 0x9E3779B1 >> 16) & 1]


def _take(judged: Judged, grid: Grid, part: Part) -> None:
    judged.elements += part.elements
    judged.flushed += part.flushed
    judged.escalated += part.escalated
    if part.law == LAW:
        _keep_worst(judged, part.pass_, Point(part.error, grid.dtype, grid.pattern(part.at)))
    _take_broken(judged, grid, part)


def _take_broken(judged: Judged, grid: Grid, part: Part) -> None:
    if part.wrong.numel():
        before = tuple(_seen[-REMEMBERED:])
        total = (part.wrong.numel(), part.elements)
        _keep_broken(judged, Broken(part.law, part.pass_, grid.dtype, judged.asked, *total, before=before))


def _take_raised(judged: Judged, dtype: str, error: Raised, law: str = LAW) -> None:
    """No result: neither the constructor nor a pass that was not reached says anything of gradients."""
    refused = error.stage == CONSTRUCTOR
    pass_, kind = ("forward", REFUSED) if refused else (error.stage, RAISED)
    before = tuple(_seen[-REMEMBERED:])
    judged.broken.append(Broken(law, pass_, dtype, judged.asked, kind=kind, reason=str(error), before=before))


def _take_every(judged: Judged, seen: Every) -> None:
    """What a sweep of all FP32 inputs found in the forward pass."""
    judged.elements += seen.inputs
    judged.flushed += seen.flushed
    judged.escalated += seen.escalated
    _keep_worst(judged, "forward", Point(seen.error, "fp32", seen.at))
    if seen.wrong:
        total, before = (seen.wrong, seen.inputs), tuple(_seen[-REMEMBERED:])
        broken = Broken(LAW, "forward", "fp32", judged.asked, *total, before=before, inputs=seen.first)
        _keep_broken(judged, broken)


def _keep_worst(judged: Judged, pass_: str, point: Point) -> None:
    if pass_ not in judged.worst or point.error > judged.worst[pass_].error:
        judged.worst[pass_] = replace(point, error=float(f"{point.error:.6g}"))


def _keep_broken(judged: Judged, broken: Broken) -> None:
    """One for each law, pass and dtype: the blocks of a sample are added up."""
    for place, other in enumerate(judged.broken):
        if (other.law, other.pass_, other.dtype) == (broken.law, broken.pass_, broken.dtype):
            wrong, total = other.wrong + broken.wrong, other.total + broken.total
            judged.broken[place] = replace(
                other, wrong=wrong, total=total, inputs=other.inputs or broken.inputs
            )
            return
    judged.broken.append(broken)
