"""Cells whose process died or hung: their cases are shrunk from outside, each attempt in a child of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from invariance.process import Job, run_job
from invariance.verdict import FAIL, Verdict
from strategies.case import Case
from strategies.shrink import shrink

ATTEMPTS = 300  # processes spent on shrinking, a tenth of a second each where they crash
HANG_COSTS = 10  # attempts: what waiting for one that hangs is worth
PATIENCE = {"cpu": 2.0}  # seconds an attempt; 10 elsewhere, where a first call compiles


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
            small[cell.candidate, cell.pass_] = case
            verdicts[i] = replace(verdicts[i], case=case.dumps())
    return post_mortem.attempts


@dataclass
class _PostMortem:
    specs: Mapping[str, str]
    timeout: float
    attempts: int

    def smallest(self, verdict: Verdict, known: Case | None) -> Case:
        """The case of a lost verdict, shrunk; the small case known from another law is tried first."""
        assert verdict.case is not None
        case = Case.loads(verdict.case)
        hung = "no result" in (verdict.reason or "")
        if known is not None and self._dies(verdict, smaller := _adapted(known, case)):
            return smaller
        slow = hung or verdict.device != "cpu"  # there a process starts a device first
        return shrink(case, lambda attempt: self._dies(verdict, attempt), budget=10 if slow else 24)

    def _dies(self, verdict: Verdict, case: Case) -> bool:
        kwargs = {
            "spec": self.specs[verdict.cell.candidate],
            "law": verdict.cell.law,
            "pass_": verdict.cell.pass_,
            "case": case.dumps(),
            "device": verdict.device,
        }
        patience = min(self.timeout, PATIENCE.get(verdict.device, 10.0))
        outcome = run_job(Job("invariance.run:judge_text", kwargs, patience))
        self.attempts -= HANG_COSTS if outcome.kind == "timed out" else 1
        return outcome.kind != "done"


def _is_lost(verdict: Verdict) -> bool:
    """Whether the process died or hung before the cell had a verdict of its own."""
    return (
        verdict.status == FAIL and verdict.mismatch is None and verdict.case is not None and not verdict.cases
    )


def _adapted(small: Case, case: Case) -> Case:
    """The small case at another case's dtype and cap; literal bits do not carry over."""
    values = "transition" if isinstance(small.values, tuple) and small.dtype != case.dtype else small.values
    return replace(small, dtype=case.dtype, cap=case.cap, values=values)
