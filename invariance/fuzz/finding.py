"""A failure made small: what it says, what its corpus line is, and when two of them have one cause."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from typing import Any

from invariance.fuzz.again import BESIDE, LOCAL
from invariance.fuzz.asked import Asked
from invariance.fuzz.rounds import CRASHED, LATE, RAISED, REFUSED, WRONG, told
from invariance.verdict import PASS, Verdict

_ANSWERS = (("too at", True), ("not at", False))
UNSTEADY = "not the same twice"
NOT_SEEN = "not seen"  # of a failure of that kind, replayed: no pass, which no number of attempts proves
ATTEMPTS = 16  # at a failure that does not come each time
VERSION = 1  # of a line
LISTED = 5  # caps named with a finding


@dataclass(frozen=True)
class Finding:
    """A failure made small. history: the caps that a fresh process must meet first; expected: the bits that are right.

    kind: wrong, UNSTEADY, or how the candidate failed to give a result. variations: simple changes of the cap, and
    whether they fail too. seen_at: the caps at which it was met. spec: the candidate as it was asked for, where that is
    more than its name. timeout: seconds after which it was said to hang. attempts: how often a replay tries it.
    """

    verdict: Verdict
    asked: Asked
    history: tuple[Asked, ...] = ()
    expected: tuple[str, ...] | None = None
    out_dtype: str | None = None
    variations: tuple[tuple[str, bool], ...] = ()
    seen_at: tuple[str, ...] = ()
    times: int = 1
    spec: str = ""
    kind: str = WRONG
    timeout: float | None = None
    attempts: int = 1

    @property
    def cause(self) -> tuple[object, ...]:
        """What two findings with one cause have in common."""
        cell = self.verdict.cell
        if self.kind == UNSTEADY:
            return (self.kind,)
        if self.kind in (RAISED, REFUSED):
            broken = self.verdict.mismatch
            return self.kind, told(broken.got if broken is not None else self.verdict.reason)
        return cell.law, cell.pass_, self.kind, len(self.history), self.asked.form

    def same(self, other: Finding) -> bool:
        """Whether both have one cause: the same law, and the same simplest cap or the same answers around it.

        Of what raises the message decides, of what needs a history its length.
        """
        if self.cause != other.cause:
            return False
        if self.history or self.kind in (UNSTEADY, RAISED, REFUSED):
            return True
        mine, theirs = dict(self.variations), dict(other.variations)
        both = mine.keys() & theirs.keys()
        # Right one step away on both sides: the digits are the cause, and how large the cap is says nothing.
        digits = not any(answers.get(what) for answers in (mine, theirs) for what in BESIDE)
        told = [what for what in both if what in LOCAL or not digits]
        alike = bool(told) and all(mine[what] == theirs[what] for what in told)
        return alike or self.asked.record() == other.asked.record()

    def line(self) -> dict[str, Any]:
        """The line of a corpus; `softcap-verify replay` reads it."""
        cell = self.verdict.cell
        record: dict[str, Any] = {
            "version": VERSION,
            "law": cell.law,
            "candidate": _from_here(self.spec) or cell.candidate,
            "pass": cell.pass_,
        }
        if self.verdict.device != "cpu":
            record["device"] = self.verdict.device
        record |= {"cap": self.asked.record(), "history": [asked.record() for asked in self.history]}
        record["case"] = json.loads(self.verdict.case or "{}")
        if self.expected is not None:
            record |= {"expected": list(self.expected), "out_dtype": self.out_dtype}
        if self.attempts > 1:
            record["attempts"] = self.attempts
        if self.timeout is not None:
            record["timeout"] = self.timeout
        return record

    @property
    def replay(self) -> str:
        """The command that judges it again, history and all."""
        return f"softcap-verify replay {shlex.quote(json.dumps(self.line(), separators=(',', ':')))}"

    @property
    def status(self) -> str:
        """Of the verdict; NOT_SEEN where a failure that need not come each time did not come in any attempt."""
        missed = self.verdict.status == PASS and self.attempts > 1
        return NOT_SEEN if missed else self.verdict.status

    @property
    def head(self) -> str:
        """The first line: a law, or what happened where no result came that a law could be asked of."""
        cell = self.verdict.cell
        words = {
            REFUSED: "",
            RAISED: f" · {cell.pass_} · {cell.dtype}",
            CRASHED: f" · {cell.dtype}",
            LATE: f" · {cell.dtype}",
        }
        if self.kind not in words:
            status, _, law = str(self.verdict).partition("\n")[0].partition(" ")
            if self.status == NOT_SEEN:
                return f"{NOT_SEEN.upper()} in {self.verdict.cases} attempts · {law}"
            return f"{status} {UNSTEADY} · {law}" if self.kind == UNSTEADY else f"{status} {law}"
        return f"{self.verdict.status.upper()} {self.kind}{words[self.kind]} · cap {self.asked} · {cell.candidate}"

    def _seen(self) -> str:
        """The caps, and how often; some are left out where there would be too many."""
        more = " and more" if self.times > len(self.seen_at) >= LISTED else ""
        return f"{', '.join(self.seen_at)}{more}" + (f", {self.times} times" if self.times > 1 else "")

    def __str__(self) -> str:
        lines = [line for line in str(self.verdict).splitlines()[1:] if not line.startswith("  replay ")]
        answers = {word: [w for w, fails in self.variations if fails is said] for word, said in _ANSWERS}
        more = [
            ("cap", str(self.asked)),
            (
                "after",
                f"caps {', '.join(map(str, self.history))} in the same process" if self.history else "",
            ),
            *((word, ", ".join(there)) for word, there in answers.items()),
            ("seen at", self._seen()),
            ("replay", self.replay),
        ]
        return "\n".join([self.head, *lines, *(f"  {name:<8} {value}" for name, value in more if value)])


def _from_here(spec: str) -> str:
    """A spec that leads from this folder to the candidate's file, wherever that is."""
    source, colon, attribute = spec.partition(":")
    return os.path.relpath(source) + colon + attribute if os.path.isabs(source) else spec
