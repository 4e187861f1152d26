"""A report for the terminal: the matrix, then each failure, then one line."""

from __future__ import annotations

import re
from typing import Any

from invariance.report.model import Report
from invariance.report.notes import notes, sampled
from invariance.report.rows import JUDGEMENTS
from invariance.verdict import Verdict
from strategies.caps import cap_text

SHOWN = 12  # failures printed whole; the rest are counted by law
_NUMBERS = re.compile(r"(?:b?float)?\d+")


def render(report: Report) -> str:
    """The matrix of verdicts by dtype and cap, the failures, and a last line that says it all."""
    data = report.as_json()
    parts = [_matrix(report), *notes(data)]
    failures = [*report.failures, *report.found]
    first = _one_a_cause(failures)
    parts += [_block(verdict, failures) for verdict in first[:SHOWN]]
    if len(failures) > len(first[:SHOWN]):
        more = len(failures) - len(first[:SHOWN])
        parts.append(f"... and {more} more failed cells; by law, in all: {_counts(failures)}")
    parts += _not_run(report)
    parts += _nothing_to_judge(report)
    parts += [
        f"NOT CERTIFIED: {c['pass']} {c['dtype']} cap {c['softcap']['given']} {c['candidate']}: {_why(c)}"
        for c in report.refused
    ]
    parts += [told] if (told := sampled(data)) else []
    parts.append(_last_line(report))
    return "\n\n".join(parts) + "\n"


def _matrix(report: Report) -> str:
    rows = [
        [r["candidate"], r["dtype"], f"cap {cap_text(r['cap'])}", *(_cell(r[j]) for j in JUDGEMENTS)]
        for r in report.matrix()
    ]
    header = ["candidate", "dtype", "cap", *JUDGEMENTS]
    widths = [max(len(str(row[i])) for row in [header, *rows]) for i in range(len(header))]
    return "\n".join(
        "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    )


def _cell(status: str) -> str:
    return {"pass": "pass", "fail": "FAIL", "not run": "NOT RUN"}.get(status, "n/a")


def _one_a_cause(failures: list[Verdict]) -> list[Verdict]:
    """The first failure of each law, accuracy first: the others mostly say the same at another pass, dtype or cap.

    What the candidate raised in the same words is one cause, whatever the laws and the sizes were.
    """
    seen: dict[tuple[str, str], Verdict] = {}
    for verdict in sorted(failures, key=lambda v: v.cell.law != "exact_value"):
        seen.setdefault((verdict.cell.candidate, _words(verdict) or verdict.cell.law), verdict)
    return list(seen.values())


def _words(verdict: Verdict) -> str | None:
    """What the candidate raised, without the numbers and dtypes, which are the case's."""
    return None if verdict.raised is None else _NUMBERS.sub("#", verdict.raised)


def _block(verdict: Verdict, failures: list[Verdict]) -> str:
    """A failure whole, and the laws in which the candidate raised the same."""
    if verdict.raised is None:
        return str(verdict)
    cause = (verdict.cell.candidate, _words(verdict))
    laws = {v.cell.law for v in failures if (v.cell.candidate, _words(v)) == cause}
    return f"{verdict}\n  in laws  {', '.join(sorted(laws))}"


def _counts(failures: list[Verdict]) -> str:
    counts: dict[str, int] = {}
    for verdict in failures:
        counts[verdict.cell.law] = counts.get(verdict.cell.law, 0) + 1
    return ", ".join(f"{law} {count}" for law, count in sorted(counts.items()))


def _why(certificate: dict[str, Any]) -> str:
    if "reason" in certificate:
        return str(certificate["reason"])
    return f"{certificate['counts']['violations']['count']:,} of {certificate['inputs']:,} inputs break the rules"


def _not_run(report: Report) -> list[str]:
    if not report.not_run:
        return []
    reasons = sorted({v.reason or "" for v in report.not_run})
    return [f"NOT RUN: {len(report.not_run)} cells: {'; '.join(reasons)}"]


def _nothing_to_judge(report: Report) -> list[str]:
    """Why, once a reason, where nothing else is told."""
    if not report.nothing_to_judge:
        return []
    reasons: dict[str, set[str]] = {}
    for verdict in report.verdicts:
        reasons.setdefault(verdict.reason or "", set()).add(verdict.cell.law)
    told = [f"  {', '.join(sorted(laws))}: {reason}" for reason, laws in reasons.items()]
    return ["\n".join(["NOTHING TO JUDGE: no law that was asked for applies here", *told])]


def _last_line(report: Report) -> str:
    ran = [v for v in report.verdicts if v.status in ("pass", "fail")]
    elements = sum(v.elements for v in ran)
    laws = len({v.cell.law for v in ran})
    explored = sum(e.examples for e in report.explored)
    state = report.verdict
    if not report.complete and state != "incomplete":
        state += ", incomplete"
    failed = len(report.failures) + len(report.found)
    told = f"{laws} law{'s' * (laws != 1)}, {len(ran)} cell{'s' * (len(ran) != 1)}"
    counts = f"{elements:,} elements compared, {explored:,} cases explored, {failed} failed"
    swept = sum(c.get("inputs", 0) for c in report.certificates)
    return f"{state}: {told}, {counts}, {swept:,} inputs swept"
