"""The Report: what was asked, what was found, where it ran. JSON is its source form; rows are sorted."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from invariance.plan import Settings
from invariance.report import html, markdown
from invariance.report.rows import JUDGEMENTS
from invariance.verdict import FAIL, NOT_APPLICABLE, NOT_RUN, PASS, Verdict

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Explored:
    """What Hypothesis tried on top of the plan for one law and pass, and the failing verdict, if one was found."""

    candidate: str
    law: str
    pass_: str
    examples: int
    elements: int
    verdict: Verdict | None = None
    reason: str | None = None

    def as_json(self) -> dict[str, Any]:
        """As plain data, for the JSON report."""
        return {
            "candidate": self.candidate,
            "law": self.law,
            "pass": self.pass_,
            "examples": self.examples,
            "elements": self.elements,
            "failure": None if self.verdict is None else self.verdict.failure_as_json(),
            "reason": self.reason,
        }


@dataclass(frozen=True)
class Report:
    """Deterministic for a deterministic candidate, outside `environment` and `explored`."""

    settings: Settings
    candidates: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
    explored: tuple[Explored, ...]
    environment: dict[str, Any]
    certificates: tuple[dict[str, Any], ...] = ()
    complete: bool = True

    @property
    def failures(self) -> list[Verdict]:
        """Failed cells of the plan."""
        return [v for v in self.verdicts if v.status == FAIL]

    @property
    def not_run(self) -> list[Verdict]:
        """Cells that were asked for and could not be judged."""
        return [v for v in self.verdicts if v.status == NOT_RUN]

    @property
    def found(self) -> list[Verdict]:
        """Failures that exploration found beyond the plan."""
        return [e.verdict for e in self.explored if e.verdict is not None]

    @property
    def refused(self) -> list[dict[str, Any]]:
        """Certificates that could not be made, or that list an input that breaks the rules."""
        return [
            c
            for c in self.certificates
            if not c["complete"] or (c["judged"] and c["counts"]["violations"]["count"])
        ]

    @property
    def verdict(self) -> str:
        """pass, fail or incomplete."""
        if self.failures or self.found or self.refused:
            return FAIL
        if not self.complete or not any(v.status == PASS for v in self.verdicts):
            return "incomplete"
        return FAIL if self.not_run else PASS

    @property
    def nothing_to_judge(self) -> bool:
        """Whether no law that was asked for says anything of the candidates."""
        silent = bool(self.verdicts) and all(v.status == NOT_APPLICABLE for v in self.verdicts)
        return silent and self.complete and not self.certificates

    @property
    def exit_status(self) -> int:
        """0 where everything asked for passes, 2 where there was nothing to judge, else 1."""
        if self.nothing_to_judge:
            return 2
        return 0 if self.verdict == PASS else 1

    def matrix(self) -> list[dict[str, Any]]:
        """FA, FI, GA, GI of each candidate by dtype and cap."""
        keys = sorted({(v.cell.candidate, v.cell.dtype, v.cell.cap) for v in self.verdicts})
        return [
            {"candidate": name, "dtype": dtype, "cap": cap}
            | {
                j: self._status(
                    v
                    for v in self.verdicts
                    if (v.cell.candidate, v.cell.dtype, v.cell.cap, v.judgement) == (name, dtype, cap, j)
                )
                for j in JUDGEMENTS
            }
            for name, dtype, cap in keys
        ]

    def _status(self, verdicts: Iterable[Verdict]) -> str:
        seen = {v.status for v in verdicts}
        for status in (FAIL, NOT_RUN, PASS, NOT_APPLICABLE):
            if status in seen:
                return status
        return NOT_RUN if not self.complete else NOT_APPLICABLE

    def as_json(self) -> dict[str, Any]:
        """As plain data, for the JSON report."""
        return {
            "schema_version": SCHEMA_VERSION,
            "verdict": self.verdict,
            "complete": self.complete,
            "candidates": list(self.candidates),
            "settings": self.settings.as_json(),
            "matrix": self.matrix(),
            "laws": [v.as_json() for v in self.verdicts],
            "failures": [v.failure_as_json() for v in self.failures],
            "certificates": list(self.certificates),
            "not_run": [v.as_json() for v in self.verdicts if v.status in (NOT_RUN, NOT_APPLICABLE)],
            "explored": [e.as_json() for e in self.explored],
            "environment": self.environment,
        }

    def dumps(self) -> str:
        """The JSON text."""
        return json.dumps(self.as_json(), indent=1, sort_keys=False, allow_nan=False) + "\n"

    def write(self, folder: Path) -> None:
        """report.json, report.md and report.html in `folder`, which is made where it is missing."""
        folder.mkdir(parents=True, exist_ok=True)
        data = self.as_json()
        (folder / "report.json").write_text(self.dumps(), encoding="utf-8")
        (folder / "report.md").write_text(markdown.render(data), encoding="utf-8")
        (folder / "report.html").write_text(html.render(data), encoding="utf-8")
