"""Cells whose process died or hung: their cases are shrunk from outside, each attempt in a child of its own.

A cell that ran out of time hung if its last case, alone, does not return either, or returns at once: then it was what
came before that hung. Between these it was slow, and did not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from invariance.process import Job, Outcome, run_job
from invariance.verdict import FAIL, NOT_RUN, Verdict
from strategies.case import Case
from strategies.shrink import shrink

ATTEMPTS = 300  # processes spent on shrinking, a tenth of a second each where they crash
A_SECOND = 5  # attempts: what waiting that long for one that hangs is worth
PATIENCE = {"cpu": 2.0}  # seconds an attempt; 10 elsewhere, where a first call compiles
SURE = 20.0  # seconds after which one case alone hangs
AT_ONCE = 1 / 40  # of a cell's time: a cell of a few dozen cases that take less is not slow


def explain_lost(verdicts: list[Verdict], specs: Mapping[str, str], timeout: float, attempts: int) -> int:
    """Give lost verdicts a smaller case, in place; specs: from a candidate's name to what loads it.

    One case for each law and pass, the plan's first: a kernel that always crashes has hundreds of lost cells, and
    every attempt costs a process. The others keep the case that they were lost on. Returns the attempts left.
    """
    post_mortem = _PostMortem(specs, timeout, attempts)
    small: dict[tuple[str, str], Case] = {}
    seen: set[tuple[str, str, str]] = set()
    for cell, i in sorted((v.cell, i) for i, v in enumerate(verdicts) if _is_lost(v)):
        if (cell.candidate, cell.law, cell.pass_) not in seen and post_mortem.attempts > 0:
            seen.add((cell.candidate, cell.law, cell.pass_))
            case = post_mortem.smallest(verdicts[i], small.get((cell.candidate, cell.pass_)))
            if case is None:
                verdicts[i] = _slow(verdicts[i])
                continue
            small[cell.candidate, cell.pass_] = case
            verdicts[i] = replace(verdicts[i], case=case.dumps())
    return post_mortem.attempts


@dataclass
class _PostMortem:
    specs: Mapping[str, str]
    timeout: float
    attempts: int

    def smallest(self, verdict: Verdict, known: Case | None) -> Case | None:
        """The case of a lost verdict, shrunk; None where it is slow. A small case of another law is tried first."""
        assert verdict.case is not None
        case = Case.loads(verdict.case)
        hung = _hung(verdict)
        if known is not None and self._dies(verdict, smaller := _adapted(known, case)):
            return smaller
        if hung:
            alone = self._alone(verdict, case, SURE)
            if alone.kind == "done":
                return case if alone.seconds < AT_ONCE * self.timeout else None
        slow = hung or verdict.device != "cpu"  # there a process starts a device first
        smaller = shrink(
            case,
            lambda attempt: self.attempts > 0 and self._dies(verdict, attempt),
            budget=10 if slow else 24,
        )
        if hung and smaller != case and not self._dies(verdict, smaller, SURE):
            return case
        return smaller

    def _dies(self, verdict: Verdict, case: Case, patience: float | None = None) -> bool:
        return self._alone(verdict, case, patience or PATIENCE.get(verdict.device, 10.0)).kind != "done"

    def _alone(self, verdict: Verdict, case: Case, patience: float) -> Outcome:
        kwargs = {
            "spec": self.specs[verdict.cell.candidate],
            "law": verdict.cell.law,
            "pass_": verdict.cell.pass_,
            "case": case.dumps(),
            "device": verdict.device,
        }
        outcome = run_job(Job("invariance.run:judge_text", kwargs, min(self.timeout, patience)))
        self.attempts -= 1 + int(A_SECOND * outcome.seconds)
        return outcome


def _is_lost(verdict: Verdict) -> bool:
    """Whether the process died or hung before the cell had a verdict of its own."""
    return (
        verdict.status == FAIL and verdict.mismatch is None and verdict.case is not None and not verdict.cases
    )


def _hung(verdict: Verdict) -> bool:
    return "no result" in (verdict.reason or "")


def _slow(verdict: Verdict) -> Verdict:
    """A verdict on a cell whose cases return, each by itself, and together took too long."""
    reason = (
        f"{verdict.reason}: slow, not hung, for its last case returns alone; a longer --timeout judges it"
    )
    return replace(verdict, status=NOT_RUN, elements=0, reason=reason, case=None)


def _adapted(small: Case, case: Case) -> Case:
    """The small case at another case's dtype and cap; literal bits do not carry over."""
    values = "transition" if isinstance(small.values, tuple) and small.dtype != case.dtype else small.values
    return replace(small, dtype=case.dtype, cap=case.cap, values=values)
