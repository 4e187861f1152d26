"""What is made of a broken law: does a fresh process show it, after which caps, at which simplest cap and input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from invariance.candidate import display_name
from invariance.checkers import load_laws
from invariance.fuzz.again import Seen, case_of, mismatch_of, wide_case
from invariance.fuzz.asked import NUMBER, Asked
from invariance.fuzz.finding import Finding
from invariance.fuzz.rounds import Broken, Subject
from invariance.process import Job, run_job
from invariance.verdict import FAIL, Cell, Verdict
from strategies.campaign import CapRange
from strategies.case import Case
from strategies.simplest import near_cap

HISTORIES_TRIED = 24  # fresh processes, some tenths of a second each
CAPS_AFTER_HISTORY = 12
CAPS_THAT_KILL = 16
PLAIN_HISTORY = tuple(map(Asked, (1.0, 20.0, 30.0, 50.0, 2.0, 7.3)))
FLAKY = "seen once, and not again in a fresh process, with or without the caps before it"


class Explainer:
    """Explains failures of one subject; everything runs in children, most of them fresh ones.

    patience: seconds a child may take; brief: for a cap that kills or hangs.
    """

    def __init__(self, subject: Subject, within: CapRange, patience: float, brief: float) -> None:
        self.subject, self.within, self.patience, self.brief = subject, within, patience, min(brief, patience)

    def explain(self, broken: Broken, known: Sequence[Finding] = ()) -> Finding:
        """The finding of a failure: a known one where both have one cause. One that does not come back is one too."""
        return replace(self._explained(broken, known), spec=self.subject.spec)

    def _explained(self, broken: Broken, known: Sequence[Finding]) -> Finding:
        broken = self._as_a_number(broken)
        if broken.kind in ("crashed", "timed out"):
            return self._deadly(broken)
        plain = replace(broken, before=())
        kwargs = {
            "subject": self.subject,
            "broken": plain,
            "within": self.within,
            "seconds": self.patience / 2,
        }
        shrunk: Seen | None = self._run("shrunk_cap", **kwargs) or self._again(
            broken, ()
        )  # where that was too slow
        if shrunk is not None:
            same = next((f for f in known if f.same(self._sketch(broken, shrunk))), None)
            return same or self._stateless(broken, shrunk)
        history, seen = self._needed(broken)
        if seen is None:
            return self._unrepeated(broken)
        return self._finding(broken, history, self._simpler(broken, history, seen))

    def _sketch(self, broken: Broken, seen: Seen) -> Finding:
        """What a finding will be known by."""
        verdict = self._verdict(broken, case_of(broken, seen))
        if broken.kind != "wrong":
            verdict = replace(verdict, mismatch=mismatch_of(broken.kind, seen.reason))
        return Finding(verdict, seen.asked, variations=seen.variations)

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
        if broken.kind in ("crashed", "timed out"):
            return plain if self._dies(plain)(plain.asked.cap) else broken
        alike = self._again(plain, ()) or (self._again(plain, broken.before) if broken.before else None)
        return broken if alike is None else plain

    # --- history ------------------------------------------------------------------------------------------------------

    def _again(self, broken: Broken, history: tuple[Asked, ...]) -> Seen | None:
        kwargs = {"subject": self.subject, "broken": replace(broken, before=()), "history": list(history)}
        seen: Seen | None = self._run("seen_again", **kwargs)
        return seen

    def _run(self, function: str, **kwargs: Any) -> Any:
        return run_job(Job(f"invariance.fuzz.again:{function}", kwargs, self.patience)).value

    def _needed(self, broken: Broken) -> tuple[tuple[Asked, ...], Seen | None]:
        """The fewest caps that must come before; no element where it does not come back."""
        tails = [broken.before[-(1 << k) :] for k in range(len(broken.before).bit_length())]
        for tail in dict.fromkeys([*tails, broken.before] if tails else []):
            seen = self._again(broken, tail)
            if seen is not None:
                return self._fewer(broken, tail, seen)
        return (), None

    def _fewer(
        self, broken: Broken, history: tuple[Asked, ...], seen: Seen
    ) -> tuple[tuple[Asked, ...], Seen]:
        """Plain caps in its place, then ever shorter runs taken out."""
        left = HISTORIES_TRIED

        def attempt(shorter: tuple[Asked, ...]) -> bool:
            nonlocal left, history, seen
            left -= 1
            found = self._again(broken, shorter) if left >= 0 else None
            if found is not None:
                history, seen = shorter, found
            return found is not None

        for length in range(1, min(len(history), len(PLAIN_HISTORY)) + 1):
            if attempt(tuple(a for a in PLAIN_HISTORY if a.cap != broken.asked.cap)[:length]):
                return history, seen
        run = len(history) // 2
        while run and left > 0:
            start = 0
            while start < len(history) and left > 0:
                if len(history) <= run or not attempt(history[:start] + history[start + run :]):
                    start += run
            run //= 2
        return history, seen

    # --- cap and input ------------------------------------------------------------------------------------------------

    def _simpler(self, broken: Broken, history: tuple[Asked, ...], seen: Seen) -> Seen:
        """At a simpler cap that fails after the same history."""
        best = [seen]

        def fails(cap: float | int) -> bool:
            found = self._again(replace(broken, asked=Asked(cap, broken.asked.form)), history)
            best[0] = found or best[0]
            return found is not None

        near_cap(broken.asked.cap, fails, self.within, budget=CAPS_AFTER_HISTORY)
        return best[0]

    def _finding(self, broken: Broken, history: tuple[Asked, ...], seen: Seen) -> Finding:
        """The one element alone, or where that is not enough all of them."""
        for case in (case_of(broken, seen), wide_case(broken, seen.asked)):
            judged = self._line(broken, case, history, seen.asked)
            if judged is not None and judged[0].failed:
                verdict, right, dtype = judged
                expected = None if right is None else tuple(right)
                return Finding(
                    verdict, seen.asked, history, expected, dtype, seen.variations, (str(broken.asked),)
                )
        verdict = self._verdict(broken, case_of(broken, seen))
        reason = seen.reason or "wrong in a call of a whole grid, and right in the same elements alone"
        return Finding(
            replace(verdict, reason=reason),
            seen.asked,
            history,
            None,
            None,
            seen.variations,
            (str(broken.asked),),
        )

    def _line(
        self, broken: Broken, case: Case, history: tuple[Asked, ...], asked: Asked
    ) -> tuple[Verdict, list[str] | None, str | None] | None:
        kwargs = {
            "spec": self.subject.spec,
            "law": broken.law,
            "pass_": broken.pass_,
            "case": case.dumps(),
            "device": self.subject.device,
            "history": [a.record() for a in history],
            "cap": asked.record(),
            "expected": None,
        }
        return self._run("judge_line", **kwargs)  # type: ignore[no-any-return]  # a job's value is plain data

    def _verdict(self, broken: Broken, case: Case) -> Verdict:
        name = display_name(self.subject.spec)
        cell = Cell(name, broken.law, broken.pass_, broken.dtype, case.cap)
        judgement = load_laws()[broken.law].verdict(broken.pass_)
        return Verdict(cell, judgement, FAIL, 1, 1, case=case.dumps(), device=self.subject.device)

    def unexplained(self, broken: Broken) -> Finding:
        """As it was met, nothing made small: the explanation was interrupted."""
        verdict = self._verdict(broken, wide_case(broken, broken.asked))
        note = broken.reason or f"{broken.wrong} of {broken.total} elements"
        reason = f"{note}; interrupted before it was looked at again"
        if broken.kind != "wrong":
            verdict = replace(verdict, mismatch=mismatch_of(broken.kind, reason))
        return Finding(
            replace(verdict, reason=reason),
            broken.asked,
            seen_at=(str(broken.asked),),
            spec=self.subject.spec,
        )

    def _unrepeated(self, broken: Broken) -> Finding:
        verdict = self._verdict(broken, wide_case(broken, broken.asked))
        note = f"{broken.wrong} of {broken.total} elements: {FLAKY}"
        kept = broken.before[-16:]
        return Finding(
            replace(verdict, reason=broken.reason or note), broken.asked, kept, seen_at=(str(broken.asked),)
        )

    # --- what kills ---------------------------------------------------------------------------------------------------

    def _deadly(self, broken: Broken) -> Finding:
        """A cap that kills or holds its process: each attempt in a child of its own."""
        asked, case = broken.asked, wide_case(broken, broken.asked)
        reason = broken.reason
        dies = self._dies(broken)
        if dies(asked.cap):
            cap = near_cap(asked.cap, dies, self.within, budget=CAPS_THAT_KILL)
            asked, small = replace(asked, cap=cap), Case((1,), broken.dtype, cap, values="constant")
            kills = self._kills(broken, small, asked)
            case = small if kills else wide_case(broken, asked)
        else:
            reason = f"{reason}; {FLAKY}"
        verdict = replace(
            self._verdict(broken, case), mismatch=mismatch_of(broken.kind, reason), reason=reason
        )
        return Finding(verdict, asked, (), seen_at=(str(broken.asked),))

    def _dies(self, broken: Broken) -> Callable[[float | int], bool]:
        def dies(cap: float | int) -> bool:
            kwargs = {"subject": self.subject, "asked": replace(broken.asked, cap=cap), "dtype": broken.dtype}
            outcome = run_job(Job("invariance.fuzz.again:one_cap", kwargs, self.brief))
            return outcome.kind != "done"

        return dies

    def _kills(self, broken: Broken, case: Case, asked: Asked) -> bool:
        kwargs = {
            "spec": self.subject.spec, "law": broken.law, "pass_": broken.pass_, "case": case.dumps(),
            "device": self.subject.device, "history": [], "cap": asked.record(), "expected": None,
        }  # fmt: skip
        outcome = run_job(Job("invariance.fuzz.again:judge_line", kwargs, self.brief))
        return outcome.kind != "done" or outcome.value[0].failed
