"""Markdown of a report, from its JSON alone; fits a GitHub comment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from invariance.report import rows
from invariance.report.notes import notes, sampled
from invariance.report.rows import Bad, Code, Table

LIMIT, LAWS_ROOM = 65_536, 24_000  # characters: of a GitHub comment, and of it for the table of laws


def render(report: dict[str, Any]) -> str:
    """The whole report; what would pass the limit is cut, and says so."""
    head = "\n\n".join([_headline(report), _table(rows.matrix(report)), *notes(report), f"> {rows.NOTE}"])
    tail = "\n\n".join([_certificates(report), _explored(report), _not_run(report), _provenance(report)])
    laws = f"## Laws\n\n{_cut(rows.laws(report), LAWS_ROOM)}\n\n{rows.LAWS_UNIT}"
    room = LIMIT - len(head) - len(laws) - len(tail) - 200
    return f"{head}\n\n{laws}\n\n{_failures(report, room)}\n\n{tail}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(_cell(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _cell(cell: object) -> str:
    if isinstance(cell, Code):
        return f"`{cell}`"
    return f"**{cell}**" if isinstance(cell, Bad) else str(cell)


def _table(whole: Table) -> str:
    return table(whole.header, whole.rows)


def _headline(report: dict[str, Any]) -> str:
    told = rows.headline(report)
    names = ", ".join(f"`{name}`" for name in told.candidates)
    return f"# Softcap invariance report: {told.state}\n\n{names} on {told.device}: {told.size}."


def _cut(whole: Table, room: int) -> str:
    """The table, or as much of it as there is room for, what failed first."""
    text, count = _table(whole), len(whole.rows)
    if len(text) <= room:
        return text
    first = sorted(whole.rows, key=lambda row: row[2] == "pass")
    kept = max(1, count * room // len(text))
    return f"{table(whole.header, first[:kept])}\n\n{count - kept} more rows are in report.json."


def _certificates(report: dict[str, Any]) -> str:
    whole, left = rows.certificates(report), sampled(report)
    told = [_table(whole), rows.CERTIFICATES_UNIT] if whole.rows else ["No domain was swept whole."]
    return "\n\n".join(["## Every input", *told, *([left] if left else [])])


def _failures(report: dict[str, Any], room: int) -> str:
    failures = rows.failures(report)
    if not failures:
        return "## Failures\n\nNone."
    kept = rows.fitting((f"```\n{failure['message']}\n```" for failure in failures), room)
    left = len(failures) - len(kept)
    more = [f"{left} more failures are in report.json."] if left else []
    return "\n\n".join(["## Failures", *kept, *more])


def _explored(report: dict[str, Any]) -> str:
    return f"## Exploration\n\n{rows.explored(report)}"


def _not_run(report: dict[str, Any]) -> str:
    whole = rows.not_run(report)
    return f"## Not run\n\n{_table(whole) if whole.rows else 'Everything asked for ran.'}"


def _provenance(report: dict[str, Any]) -> str:
    note = rows.code_note(report)
    return "\n\n".join(["## Provenance", _table(rows.provenance(report)), *([note] if note else [])])
