"""One cell, one verdict; its text is the failure message."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from typing import Any

from invariance.judge import Mismatch, Worst
from strategies.caps import cap_text

# What the mismatch of a candidate says that raised, or returned what is no result, where it had to return one.
RAISED, NO_RESULT = "the candidate", "gave no result"
PASS, FAIL, NOT_RUN, NOT_APPLICABLE = "pass", "fail", "not run", "not applicable"


@dataclass(frozen=True, order=True)
class Cell:
    """What is judged at once: one candidate under one law in one pass, at one dtype and cap."""

    candidate: str
    law: str
    pass_: str
    dtype: str
    cap: float | int

    @property
    def id(self) -> str:
        """The cell in ASCII, without the candidate: what pytest calls a test."""
        return f"{self.law}-{self.pass_}-{self.dtype}-{cap_text(self.cap)}"

    def __str__(self) -> str:
        return f"{self.law} · {self.pass_} · {self.dtype} · cap {cap_text(self.cap)}"


@dataclass(frozen=True)
class Verdict:
    """How a cell was decided.

    status: pass, fail, not run (asked for and could not be judged: counts as a failure) or not applicable
    (the law does not speak of this candidate; `reason` says why). elements: compared elements. worst: the largest
    error seen by an accuracy law. case: the failing case, shrunk, as JSON; it replays alone.
    """

    cell: Cell
    judgement: str
    status: str
    cases: int = 0
    elements: int = 0
    flushed: int = 0
    escalated: int = 0
    worst: Worst | None = None
    mismatch: Mismatch | None = None
    reason: str | None = None
    case: str | None = None
    device: str = "cpu"
    rounding: str = "once"

    @property
    def failed(self) -> bool:
        """Whether the cell counts against the candidate."""
        return self.status in (FAIL, NOT_RUN)

    @property
    def raised(self) -> str | None:
        """What the candidate raised where it had to return, if that is the failure."""
        return self.mismatch.got if self.mismatch is not None and self.mismatch.label == RAISED else None

    @property
    def replay(self) -> str | None:
        """The command that judges the failing case again."""
        if self.case is None:
            return None
        cell = self.cell
        recipe = {
            "candidate": cell.candidate,
            "law": cell.law,
            "pass": cell.pass_,
            "device": self.device,
            "rounding": self.rounding,
            "case": json.loads(self.case),
        }
        return f"softcap-verify replay {shlex.quote(json.dumps(recipe, separators=(',', ':')))}"

    def __str__(self) -> str:
        head = f"{self.status.upper()} {self.judgement} {self.cell} · {self.cell.candidate}"
        told = failure_lines(self.mismatch, self.reason, self.case, self.replay)
        lines = [f"  {name:<8} {value}" for name, value in told]
        return "\n".join([head, *lines])

    def record(self) -> dict[str, Any]:
        """Plain data, for a process that collects verdicts of others."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> Verdict:
        """The verdict whose `record` this is."""
        worst, broken = record["worst"], record["mismatch"]
        if broken is not None and broken["index"] is not None:
            broken = {**broken, "index": tuple(broken["index"])}
        nested = {
            "cell": Cell(**record["cell"]),
            "worst": None if worst is None else Worst(**worst),
            "mismatch": None if broken is None else Mismatch(**broken),
        }
        return cls(**{**record, **nested})

    def _head(self) -> dict[str, Any]:
        """What the rows of `laws` and of `failures` begin with."""
        cell = self.cell
        return {
            "candidate": cell.candidate,
            "law": cell.law,
            "judgement": self.judgement,
            "pass": cell.pass_,
            "dtype": cell.dtype,
            "cap": cell.cap,
            "status": self.status,
        }

    def as_json(self) -> dict[str, Any]:
        """The row of `laws` in the report."""
        return {
            **self._head(),
            "cases": self.cases,
            "elements": self.elements,
            "flushed": self.flushed,
            "escalated": self.escalated,
            "worst": None if self.worst is None else asdict(self.worst),
            "reason": self.reason,
        }

    def failure_as_json(self) -> dict[str, Any]:
        """The row of `failures` in the report."""
        return {
            **self._head(),
            "reason": self.reason,
            "mismatch": None if self.mismatch is None else asdict(self.mismatch),
            "case": None if self.case is None else json.loads(self.case),
            "replay": self.replay,
            "message": str(self),
        }


def failure_lines(
    mismatch: Mismatch | None, reason: str | None, case: str | None, replay: str | None
) -> list[tuple[str, Any]]:
    """What there is to tell of a failure, by name, always in this order."""
    broken = mismatch or Mismatch("", "")
    lines = [
        ("what", f"{broken.label}{_joint(broken)}{_counted(broken)}" if mismatch else None),
        ("why", reason),
        ("index", None if broken.index is None else tuple(broken.index)),
        ("input", broken.input),
        ("grad_y", broken.grad_y),
        ("got", broken.got),
        ("want", broken.want),
        ("exact", broken.exact),
        ("ulps", broken.ulps),
        ("case", case),
        ("replay", replay),
    ]
    return [(name, value) for name, value in lines if value is not None]


def _joint(broken: Mismatch) -> str:
    """A label that is the beginning of a sentence is read on; any other says where the rest was seen."""
    return " " if broken.label.startswith(("the candidate", "the constructor")) else ": "


def _counted(broken: Mismatch) -> str:
    if broken.index is None:
        return broken.what
    return f"{broken.wrong} of {broken.total} elements {broken.what}"
