"""A line of a corpus, judged: one law on one case after a history of caps, in a process that has met no other."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from invariance import process
from invariance.candidate import Candidate, CandidateRaised, Map
from invariance.checkers import NotApplicable, Pick, load_laws
from invariance.checkers.accuracy import outside_judged_domain, unfit
from invariance.fuzz.again import exercise
from invariance.fuzz.asked import Asked
from invariance.fuzz.rounds import Subject, candidate_of
from invariance.fuzz.scan import LAW, LEAVES
from invariance.judge import Claim, Judgement, Mismatch
from invariance.run import Trial, arguments, is_failure
from invariance.verdict import FAIL, NO_RESULT, NOT_APPLICABLE, PASS, RAISED, Cell, Verdict
from oracles.acceptance import accept
from oracles.truth import Truth
from strategies.case import Case
from strategies.dtypes import FORMATS, TORCH, name, to_bits

LISTED = 64  # elements up to which a corpus line writes out the expected bits


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
    attempts: int = 1,
    seconds: float = math.inf,
) -> tuple[Verdict, list[str] | None, str | None]:
    """One law on one case after a history of caps: what a corpus line says, in a process of its own.

    attempts: how often it may pass, of a failure that does not come each time; none begins after the seconds. Gives the
    verdict, and the bits that are right with their dtype (None for more than 64 elements). Where `expected` are other
    bits than the oracle's the line itself is wrong, which fails too.
    """
    candidate, recipe, known = candidate_of(Subject(spec, device)), Case.loads(case), load_laws()[law]
    asked, end = Asked.of_record(cap), time.monotonic() + seconds
    outside = outside_judged_domain(recipe.cap) if law == LAW else None
    if outside is not None:
        known = replace(known, check=_everywhere)
    process.announce(case)
    passes = ("forward", "inference", "backward") if pass_ == "backward" else ("forward", "inference")
    exercise(candidate, [Asked.of_record(c) for c in history], recipe.x(device), passes, device)
    shown = asked.given(candidate, device)
    trial = Trial(shown, known, pass_, device)
    empty = trial.verdict(Cell(candidate.name, law, pass_, recipe.dtype, recipe.cap), PASS)
    try:
        found, reason, made = _until_it_fails(trial, recipe, attempts, end)
    except NotApplicable as error:
        return replace(empty, status=NOT_APPLICABLE, reason=str(error), case=case), None, None
    right, dtype = _right(shown, recipe, pass_, device, out_dtype)
    if None not in (expected, right) and expected != right:
        reason = f"the line expects {expected}, the oracle says {right}"
    verdict = _verdict(empty, found, reason, made, outside)
    return replace(verdict, case=case), right, dtype


def _until_it_fails(trial: Trial, case: Case, attempts: int, end: float) -> tuple[Judgement, str | None, int]:
    """The last judgement, what it says in words, and which attempt it was."""
    for made in itertools.count(1):
        found, reason = _judged(trial, case)
        if is_failure(found, reason) or made >= attempts or time.monotonic() >= end:
            break
    return found, reason, made


def _judged(trial: Trial, case: Case) -> tuple[Judgement, str | None]:
    """As the trial judges; a candidate that leaves the interpreter raised."""
    try:
        return trial.judge(case)
    except LEAVES as error:
        raised = Mismatch(RAISED, NO_RESULT, got=process.in_one_line(error), want="a result")
        return Judgement(elements=1, mismatch=raised), None


def _verdict(empty: Verdict, found: Judgement, reason: str | None, made: int, outside: str | None) -> Verdict:
    failed = is_failure(found, reason)
    if made > 1:
        reason = reason or (
            f"not the first time, but time {made}" if failed else f"{made} times; it need not come each time"
        )
    return replace(
        empty,
        status=FAIL if failed else PASS,
        cases=made,
        elements=found.elements,
        flushed=found.flushed,
        escalated=found.escalated,
        worst=found.worst,
        mismatch=found.mismatch,
        reason="; ".join(filter(None, (reason, outside))) or None,
    )


def _everywhere(f: Map, args: tuple[torch.Tensor, ...], pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - a checker's
    """The rule of `exact_value`, also at a cap outside the judged domain: right where the rule accepts the bits."""
    truth = Truth.of(args[0], f.cap, *args[1:])
    got = f(*args)
    if (claim := unfit(got, args[0])) is not None:
        yield claim
        return
    found = accept("ulp", got, truth, everywhere=True)
    want = torch.where(found.ok, got, truth.rounded(got.dtype))
    yield Claim("the exact value", got=got, want=want, of=args)


def _right(
    candidate: Candidate, case: Case, pass_: str, device: str, out_dtype: str | None
) -> tuple[list[str] | None, str | None]:
    """The exact results rounded once, in bits, and their dtype: the one given or the candidate's."""
    if case.numel > LISTED:
        return None, None
    try:
        args = arguments(candidate.map(case.cap, pass_), case, device)
        y_dtype = candidate.map(case.cap, pass_).out_dtype(TORCH[case.dtype], device)
    except (CandidateRaised, *LEAVES):
        return None, None
    dtype = TORCH[out_dtype or (case.dtype if pass_ == "backward" else name(y_dtype))]
    bits = to_bits(Truth.of(args[0], case.cap, *args[1:]).rounded(dtype))
    digits = FORMATS[name(dtype)].width // 4
    return [f"0x{b:0{digits}x}" for b in bits.flatten().tolist()], name(dtype)
