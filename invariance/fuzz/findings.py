"""What is made of a broken law: does a fresh process show it, after which caps, at which simplest cap and input."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from invariance.candidate import display_name
from invariance.checkers import load_laws
from invariance.fuzz.again import Seen, case_of, wide_case
from invariance.fuzz.alive import TOGETHER, built_beside
from invariance.fuzz.asked import NUMBER, Asked
from invariance.fuzz.finding import ATTEMPTS, UNSTEADY, Finding
from invariance.fuzz.history import fewer, needed
from invariance.fuzz.rounds import CRASHED, LATE, REFUSED, WRONG, Broken, Subject
from invariance.fuzz.scan import LAW
from invariance.judge import Mismatch
from invariance.process import Job, run_job
from invariance.verdict import FAIL, Cell, Verdict
from strategies.campaign import CapRange
from strategies.caps import Cap
from strategies.case import Case
from strategies.simplest import near_cap

CAPS_AFTER_HISTORY = 12
CAPS_THAT_KILL = 16
SEARCHED = 15.0  # seconds in which a history is made short, and as many to find one at all
SELDOM = 5.0  # seconds of calls of one operator
REPEAT = "repeat"
GOOD_CAP = "at a cap that is finite and positive as FP32"
FLAKY = "seen once, and not again in a fresh process, with or without the caps before it"
SOMETIMES = "one operator, called several times with the same input, gives other bits"


class Explainer:
    """Explains failures of one subject; everything runs in children, most of them fresh ones.

    patience: seconds a child may take; brief: for a cap that kills or hangs; timeout: seconds that a user gives a cap.
    """

    def __init__(
        self, subject: Subject, within: CapRange, patience: float, brief: float, timeout: float | None = None
    ) -> None:
        self.subject, self.within, self.patience, self.brief = subject, within, patience, min(brief, patience)
        self.timeout = timeout

    def explain(self, broken: Broken, known: Sequence[Finding] = ()) -> Finding:
        """The finding of a failure: a known one where both have one cause. One that does not come back is one too."""
        found = self._explained(broken, known)
        return replace(found, spec=self.subject.spec, timeout=self.timeout if found.kind == LATE else None)

    def _explained(self, broken: Broken, known: Sequence[Finding]) -> Finding:
        broken = self._as_a_number(broken)
        if broken.kind in (CRASHED, LATE):
            return self._deadly(broken, known)
        if broken.kind == WRONG and (moved := self._run("unsteady", broken=replace(broken, before=()))):
            same = next((f for f in known if f.kind == UNSTEADY), None)
            return same or self._unsteady(broken, *moved)
        plain, half = replace(broken, before=()), self.patience / 2
        shrunk: Seen | None = self._run("shrunk_cap", broken=plain, within=self.within, seconds=half)
        shrunk = shrunk or self._again(broken, ())  # where that was too slow
        if shrunk is not None:
            same = next((f for f in known if f.same(self._sketch(broken, shrunk))), None)
            return same or self._stateless(broken, shrunk)
        same = next((f for f in known if self._comes_after_the_history_of(f, broken)), None)
        if same is not None:
            return same
        if (seldom := self._seldom(broken)) is not None:
            return seldom
        history = needed(self._fails_after(broken), broken.before)
        return self._unrepeated(broken) if history is None else self._stateful(broken, history)

    def _fails_after(self, broken: Broken) -> Callable[[tuple[Asked, ...]], bool]:
        """Whether it comes after a history; no more attempts after a while."""
        end = time.monotonic() + SEARCHED
        return lambda history: time.monotonic() < end and self._again(broken, history) is not None

    def _comes_after_the_history_of(self, known: Finding, broken: Broken) -> bool:
        cell = known.verdict.cell
        if not known.history or (cell.law, cell.pass_, known.kind) != (broken.law, broken.pass_, broken.kind):
            return False
        history = tuple(broken.asked if other == known.asked else other for other in known.history)
        return self._again(broken, history) is not None

    def _sketch(self, broken: Broken, seen: Seen) -> Finding:
        """What a finding will be known by."""
        verdict = self._verdict(broken, case_of(broken, seen), seen.reason)
        return Finding(verdict, seen.asked, variations=seen.variations, kind=broken.kind)

    def _stateless(self, broken: Broken, shrunk: Seen) -> Finding:
        """At the simplest cap, if a fresh process shows it there; else where it was met."""
        again = self._again(replace(broken, asked=shrunk.asked), ())
        first = None if again is not None else self._again(broken, ())
        return self._finding(broken, (), shrunk if again is not None else first or shrunk)

    def _as_a_number(self, broken: Broken) -> Broken:
        """The same cap as a plain number, where that fails too: being a tensor is then not the cause."""
        plain = replace(broken, asked=Asked(broken.asked.cap))
        if broken.asked.form == NUMBER:
            return broken
        if broken.kind in (CRASHED, LATE):
            return plain if self._dies(plain)(plain.asked.cap) else broken
        alike = self._again(plain, ()) or (self._again(plain, broken.before) if broken.before else None)
        return broken if alike is None else plain

    def _again(self, broken: Broken, history: tuple[Asked, ...]) -> Seen | None:
        seen: Seen | None = self._run("seen_again", broken=replace(broken, before=()), history=list(history))
        return seen

    def _run(self, function: str, **kwargs: Any) -> Any:
        job = Job(f"invariance.fuzz.again:{function}", {"subject": self.subject, **kwargs}, self.patience)
        return run_job(job).value

    # --- cap and input ------------------------------------------------------------------------------------------------

    def _stateful(self, broken: Broken, history: tuple[Asked, ...]) -> Finding:
        """A short history, and a simpler cap that fails after it: in the history too where it stands there."""
        broken = replace(broken, before=())
        history = fewer(self._fails_after(broken), history, broken.asked)
        form, best = broken.asked.form, [(broken.asked, history)]

        def fails(cap: Cap) -> bool:
            asked = Asked(cap, form)
            before = tuple(asked if other == broken.asked else other for other in history)
            found = self._again(replace(broken, asked=asked), before) is not None
            if found:
                best[0] = asked, before
            return found

        near_cap(broken.asked.cap, fails, self.within, budget=CAPS_AFTER_HISTORY)
        asked, history = best[0]
        seen = self._again(replace(broken, asked=asked), history) or Seen(asked, None)
        return self._finding(broken, history, seen)

    def _unsteady(self, broken: Broken, pass_: str, seen: Seen) -> Finding:
        """One operator gives other bits from call to call: at an everyday cap too, as a rule."""
        broken, best = replace(broken, before=()), [(pass_, seen)]

        def fails(cap: Cap) -> bool:
            found = self._run("unsteady", broken=replace(broken, asked=replace(broken.asked, cap=cap)))
            best[0] = found or best[0]
            return found is not None

        near_cap(broken.asked.cap, fails, self.within, budget=2)
        return self._not_the_same_twice(broken, *best[0])

    def _seldom(self, broken: Broken) -> Finding | None:
        """One operator gives other bits once in very many calls: where it was met. None where none does."""
        broken = replace(broken, before=())
        seconds = min(SELDOM, self.patience / 2)
        moved = broken.kind == WRONG and self._run("unsteady_at_last", broken=broken, seconds=seconds)
        return self._not_the_same_twice(broken, *moved) if moved else None

    def _not_the_same_twice(self, broken: Broken, pass_: str, seen: Seen) -> Finding:
        found = self._finding(replace(broken, law=REPEAT, pass_=pass_, kind=UNSTEADY), (), seen)
        return replace(found, verdict=replace(found.verdict, reason=SOMETIMES), seen_at=(str(broken.asked),))

    def _finding(self, broken: Broken, history: tuple[Asked, ...], seen: Seen) -> Finding:
        """The one element alone, or where that is not enough all of them."""
        reason = seen.reason or "wrong in a call of a whole grid, and right in the same elements alone"
        found = Finding(
            self._verdict(broken, wide_case(broken, seen.asked), reason),
            seen.asked,
            history,
            variations=seen.variations,
            seen_at=(str(broken.asked),),
            kind=broken.kind,
            attempts=ATTEMPTS if broken.kind == UNSTEADY else 1,
        )
        for case in (case_of(broken, seen), wide_case(broken, seen.asked)):
            judged = self._line(broken, case, history, seen.asked)
            if judged is not None and judged[0].failed:
                verdict, right, dtype = judged
                if broken.kind == REFUSED and verdict.mismatch is not None:
                    refused = replace(verdict.mismatch, label="the constructor raised", what=GOOD_CAP)
                    verdict = replace(verdict, mismatch=refused)
                expected = None if right is None else tuple(right)
                return replace(found, verdict=verdict, expected=expected, out_dtype=dtype)
        if broken.kind != UNSTEADY and self._again(replace(broken, asked=seen.asked), history) is None:
            return self._seldom(broken) or self._unrepeated(broken)
        if seen.element is not None and seen.element.told is not None:
            return replace(found, verdict=replace(found.verdict, mismatch=seen.element.told))
        return found

    def _line(
        self, broken: Broken, case: Case, history: tuple[Asked, ...], asked: Asked
    ) -> tuple[Verdict, list[str] | None, str | None] | None:
        job = self._line_job(broken, case, history, asked, self.patience)
        return run_job(job).value  # type: ignore[no-any-return]  # a job's value is plain data

    def _line_job(
        self, broken: Broken, case: Case, history: tuple[Asked, ...], asked: Asked, seconds: float
    ) -> Job:
        kwargs = {
            "spec": self.subject.spec, "law": broken.law, "pass_": broken.pass_, "case": case.dumps(),
            "device": self.subject.device, "history": [a.record() for a in history], "cap": asked.record(),
            "expected": None, "attempts": ATTEMPTS if broken.kind == UNSTEADY else 1, "seconds": seconds / 2,
        }  # fmt: skip
        return Job("invariance.fuzz.line:judge_line", kwargs, seconds)

    def _verdict(self, broken: Broken, case: Case, reason: str | None) -> Verdict:
        name = display_name(self.subject.spec)
        cell = Cell(name, broken.law, broken.pass_, broken.dtype, case.cap)
        judgement = load_laws()[broken.law].verdict(broken.pass_)
        none = (
            None
            if broken.kind in (WRONG, UNSTEADY)
            else Mismatch("the candidate", broken.kind, got=reason, want="a result")
        )
        device = self.subject.device
        return Verdict(
            cell, judgement, FAIL, 1, 1, mismatch=none, reason=reason, case=case.dumps(), device=device
        )

    def unexplained(self, broken: Broken) -> Finding:
        """As it was met, nothing made small: the explanation was interrupted."""
        return self._as_met(broken, "interrupted before it was looked at again")

    def _unrepeated(self, broken: Broken) -> Finding:
        found = self._as_met(broken, FLAKY)
        return replace(found, kind=UNSTEADY if broken.kind == WRONG else broken.kind, attempts=ATTEMPTS)

    def _as_met(self, broken: Broken, note: str) -> Finding:
        verdict = self._verdict(broken, wide_case(broken, broken.asked), broken.reason)
        what = broken.reason or f"{broken.wrong} of {broken.total} elements"
        return Finding(
            replace(verdict, reason=f"{what}: {note}"),
            broken.asked,
            seen_at=(str(broken.asked),),
            spec=self.subject.spec,
            kind=broken.kind,
        )

    # --- what kills ---------------------------------------------------------------------------------------------------

    def _deadly(self, broken: Broken, known: Sequence[Finding]) -> Finding:
        """A cap that kills or holds its process: each attempt in a child of its own."""
        met, law, broken = str(broken.asked), broken.law, self._by_itself(broken)
        same = next((f for f in known if (f.kind, f.verdict.cell.law) == (broken.kind, broken.law)), None)
        if same is not None and broken.law != law:  # one more cap that kills alone
            return same
        asked, case = broken.asked, wide_case(broken, broken.asked)
        reason = broken.reason or broken.kind
        dies = self._dies(broken)
        if dies(asked.cap):
            asked = replace(asked, cap=near_cap(asked.cap, dies, self.within, budget=CAPS_THAT_KILL))
            small = Case((1,), broken.dtype, asked.cap, values="constant")
            ways = product(self.subject.passes, (small, wide_case(broken, asked)))
            seen = (way for way in ways if self._kills(replace(broken, pass_=way[0]), way[1], asked))
            pass_, case = next(seen, (broken.pass_, wide_case(broken, asked)))
            broken = replace(broken, pass_=pass_)
        else:
            reason = f"{reason}; {FLAKY}"
        return Finding(self._verdict(broken, case, reason), asked, seen_at=(met,), kind=broken.kind)

    def _by_itself(self, broken: Broken) -> Broken:
        """Where operators of several caps were alive: the cap of them that kills alone, if one does."""
        if broken.law != TOGETHER:
            return broken
        alone = replace(broken, law=LAW)
        caps = dict.fromkeys(built_beside(broken.asked))
        found = next((asked for asked in caps if self._dies(alone)(asked.cap)), None)
        return broken if found is None else replace(alone, asked=found)

    def _dies(self, broken: Broken) -> Callable[[Cap], bool]:
        def dies(cap: Cap) -> bool:
            asked = replace(broken.asked, cap=cap)
            kwargs = {"subject": self.subject, "asked": asked, "dtype": broken.dtype, "law": broken.law}
            outcome = run_job(Job("invariance.fuzz.again:one_cap", kwargs, self.brief))
            return outcome.kind not in ("done", "raised")

        return dies

    def _kills(self, broken: Broken, case: Case, asked: Asked) -> bool:
        outcome = run_job(self._line_job(broken, case, (), asked, self.brief))
        return outcome.kind not in ("done", "raised")
