"""What is made of a broken law: does a fresh process show it, after which caps, at which simplest cap and input."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from invariance.candidate import display_name
from invariance.checkers import load_laws
from invariance.fuzz.again import Seen, case_of, mismatch_of, wide_case
from invariance.fuzz.asked import Asked
from invariance.fuzz.rounds import Broken, Subject
from invariance.process import Job, run_job
from invariance.verdict import FAIL, Cell, Verdict
from strategies.campaign import CapRange
from strategies.case import Case
from strategies.simplest import simplest_cap

HISTORIES_TRIED = 24  # fresh processes, some tenths of a second each
CAPS_AFTER_HISTORY = 12
CAPS_THAT_KILL = 16
PLAIN_HISTORY = tuple(map(Asked, (1.0, 20.0, 30.0, 50.0, 2.0, 7.3)))
_ANSWERS = (("too at", True), ("not at", False))
FLAKY = "seen once, and not again in a fresh process, with or without the caps before it"


@dataclass(frozen=True)
class Finding:
    """A failure made small. history: the caps that a fresh process must meet first; expected: the bits that are right.

    variations: simple changes of the cap, and whether they fail too. seen_at: the caps at which it was met.
    """

    verdict: Verdict
    asked: Asked
    history: tuple[Asked, ...] = ()
    expected: tuple[str, ...] | None = None
    out_dtype: str | None = None
    variations: tuple[tuple[str, bool], ...] = ()
    seen_at: tuple[str, ...] = ()
    times: int = 1

    @property
    def cause(self) -> tuple[object, ...]:
        """What two findings with one cause have in common."""
        cell = self.verdict.cell
        return cell.law, cell.pass_, self.kind, bool(self.history), self.asked.form

    @property
    def kind(self) -> str:
        """wrong, or how the candidate failed to give a result."""
        broken = self.verdict.mismatch
        return broken.what if broken is not None and broken.index is None else "wrong"

    def same(self, other: Finding) -> bool:
        """Whether both have one cause: the same law, and the same simplest cap or the same answers around it."""
        if self.cause != other.cause:
            return False
        mine, theirs = dict(self.variations), dict(other.variations)
        both = mine.keys() & theirs.keys()
        return self.asked.record() == other.asked.record() or (bool(both) and all(mine[what] == theirs[what] for what in both))

    def line(self) -> dict[str, Any]:
        """The line of a corpus; `softcap-verify replay` reads it."""
        cell = self.verdict.cell
        record: dict[str, Any] = {"law": cell.law, "candidate": cell.candidate, "pass": cell.pass_}
        if self.verdict.device != "cpu":
            record["device"] = self.verdict.device
        record |= {"cap": self.asked.record(), "history": [asked.record() for asked in self.history]}
        record["case"] = json.loads(self.verdict.case or "{}")
        if self.expected is not None:
            record |= {"expected": list(self.expected), "out_dtype": self.out_dtype}
        return record

    @property
    def replay(self) -> str:
        """The command that judges it again, history and all."""
        return f"softcap-verify replay {shlex.quote(json.dumps(self.line(), separators=(',', ':')))}"

    def __str__(self) -> str:
        lines = [line for line in str(self.verdict).splitlines() if not line.startswith("  replay ")]
        answers = {word: [w for w, fails in self.variations if fails is said] for word, said in _ANSWERS}
        more = [
            ("cap", str(self.asked)),
            ("after", f"caps {', '.join(map(str, self.history))} in the same process" if self.history else ""),
            *((word, ", ".join(there)) for word, there in answers.items()),
            ("seen at", ", ".join(self.seen_at) + (f" and more, {self.times} times" if self.times > 1 else "")),
            ("replay", self.replay),
        ]
        return "\n".join([*lines, *(f"  {name:<8} {value}" for name, value in more if value)])


class Explainer:
    """Explains failures of one subject; everything runs in children, most of them fresh ones.

    patience: seconds a child may take; brief: for a cap that kills or hangs.
    """

    def __init__(self, subject: Subject, within: CapRange, patience: float, brief: float = 3.0) -> None:
        self.subject, self.within, self.patience, self.brief = subject, within, patience, min(brief, patience)

    def explain(self, broken: Broken) -> Finding:
        """The finding of a failure; one that does not come back is a finding too."""
        if broken.kind in ("crashed", "timed out"):
            return self._deadly(broken)
        history, seen = self._needed(broken)
        if seen is None:
            return self._unrepeated(broken)
        seen = self._simpler(broken, history, seen)
        return self._finding(broken, history, seen)

    # --- history ------------------------------------------------------------------------------------------------------

    def _again(self, broken: Broken, history: tuple[Asked, ...]) -> Seen | None:
        kwargs = {"subject": self.subject, "broken": replace(broken, before=()), "history": list(history)}
        seen: Seen | None = self._run("seen_again", **kwargs)
        return seen

    def _run(self, function: str, **kwargs: Any) -> Any:
        return run_job(Job(f"invariance.fuzz.again:{function}", kwargs, self.patience)).value

    def _needed(self, broken: Broken) -> tuple[tuple[Asked, ...], Seen | None]:
        """The fewest caps that must come before, none where a fresh process fails at once."""
        seen = self._again(broken, ())
        if seen is not None or not broken.before:
            return (), seen
        length = 1
        while True:
            tail = broken.before[-length:]
            seen = self._again(broken, tail)
            if seen is not None:
                break
            if length >= len(broken.before):
                return (), None
            length = min(2 * length, len(broken.before))
        return self._fewer(broken, tail, seen)

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
        """At the simplest cap that fails in a fresh process too."""
        if not history:
            kwargs = {"subject": self.subject, "broken": replace(broken, before=()), "within": self.within}
            shrunk: Seen | None = self._run("shrunk_cap", **kwargs)
            again = shrunk and self._again(replace(broken, asked=shrunk.asked), ())
            return shrunk if shrunk is not None and again is not None else seen
        best = [seen]

        def fails(cap: float | int) -> bool:
            found = self._again(replace(broken, asked=Asked(cap, broken.asked.form)), history)
            best[0] = found or best[0]
            return found is not None

        simplest_cap(broken.asked.cap, fails, self.within, budget=CAPS_AFTER_HISTORY)
        return best[0]

    def _finding(self, broken: Broken, history: tuple[Asked, ...], seen: Seen) -> Finding:
        """The one element alone, or where that is not enough all of them."""
        for case in (case_of(broken, seen), wide_case(broken, seen.asked)):
            judged = self._line(broken, case, history, seen.asked)
            if judged is not None and judged[0].failed:
                verdict, right, dtype = judged
                expected = None if right is None else tuple(right)
                return Finding(verdict, seen.asked, history, expected, dtype, seen.variations, (str(broken.asked),))
        verdict = self._verdict(broken, case_of(broken, seen))
        reason = seen.reason or "wrong in a call of a whole grid, and right in the same elements alone"
        return Finding(
            replace(verdict, reason=reason), seen.asked, history, None, None, seen.variations, (str(broken.asked),)
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

    def _unrepeated(self, broken: Broken) -> Finding:
        verdict = self._verdict(broken, wide_case(broken, broken.asked))
        note = f"{broken.wrong} of {broken.total} elements: {FLAKY}"
        kept = broken.before[-16:]
        return Finding(replace(verdict, reason=broken.reason or note), broken.asked, kept, seen_at=(str(broken.asked),))

    # --- what kills ---------------------------------------------------------------------------------------------------

    def _deadly(self, broken: Broken) -> Finding:
        """A cap that kills or holds its process: each attempt in a child of its own."""
        asked, case = broken.asked, wide_case(broken, broken.asked)
        reason = broken.reason
        dies = self._dies(broken)
        if dies(asked.cap):
            cap = simplest_cap(asked.cap, dies, self.within, budget=CAPS_THAT_KILL)
            asked, small = replace(asked, cap=cap), Case((1,), broken.dtype, cap, values="constant")
            kills = self._kills(broken, small, asked)
            case = small if kills else wide_case(broken, asked)
        else:
            reason = f"{reason}; {FLAKY}"
        verdict = replace(self._verdict(broken, case), mismatch=mismatch_of(broken.kind, reason), reason=reason)
        return Finding(verdict, asked, (), seen_at=(str(broken.asked),))

    def _dies(self, broken: Broken) -> Callable[[float | int], bool]:
        def dies(cap: float | int) -> bool:
            kwargs = {"subject": self.subject, "asked": replace(broken.asked, cap=cap), "dtype": broken.dtype}
            outcome = run_job(Job("invariance.fuzz.again:one_cap", kwargs, self.brief))
            return outcome.kind in ("crashed", "timed out")

        return dies

    def _kills(self, broken: Broken, case: Case, asked: Asked) -> bool:
        kwargs = {
            "spec": self.subject.spec, "law": broken.law, "pass_": broken.pass_, "case": case.dumps(),
            "device": self.subject.device, "history": [], "cap": asked.record(), "expected": None,
        }  # fmt: skip
        outcome = run_job(Job("invariance.fuzz.again:judge_line", kwargs, self.brief))
        return outcome.kind in ("crashed", "timed out")
