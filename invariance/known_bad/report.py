"""The kill matrix as JSON, Markdown and text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from invariance.known_bad.matrix import DEAR, Row, Score
from invariance.offered import TIERS
from invariance.report.markdown import table
from invariance.report.rows import surroundings

SCHEMA_VERSION = 1
INTERRUPTED = "interrupted before it"
NOT_RUN = "not run: "  # how such an outcome begins
_DEAR = f"In the plan's tier wrong kernels meet {', '.join(sorted(DEAR))} only where they name them."


def as_json(rows: Sequence[Row], environment: dict[str, Any], seed: int) -> dict[str, Any]:
    """Plain data: the score, what was not run, each kernel, and the matrix of law by kernel by tier."""
    score = Score.of(rows)
    return {
        "schema_version": SCHEMA_VERSION,
        "complete": not any(row.not_run == INTERRUPTED for row in rows),
        "summary": str(score),
        "score": asdict(score),
        "seed": seed,
        "distinct_sets": len({row.failed for row in rows if row.killed}),
        "tiers": [_tier(tier, [row for row in rows if row.entry.tier == tier]) for tier in TIERS],
        "kernels": [_kernel(row) for row in rows],
        "matrix": matrix(rows),
        "environment": environment,
    }


def matrix(rows: Iterable[Row]) -> dict[str, dict[str, list[str]]]:
    """law -> tier -> the wrong kernels that it killed there."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for law in sorted(row.failed):
            found.setdefault(law, {}).setdefault(row.entry.tier, []).append(row.entry.name)
    return dict(sorted(found.items()))


def _tier(tier: str, rows: list[Row]) -> dict[str, Any]:
    score, reasons = Score.of(rows), {row.not_run for row in rows if row.not_run is not None}
    return {"tier": tier, **asdict(score), "not_run": "; ".join(sorted(reasons)) or None}


def _kernel(row: Row) -> dict[str, Any]:
    entry = row.entry
    return {
        "name": entry.name,
        "candidate": entry.spec,
        "wrong": entry.wrong,
        "states": entry.states,
        "tier": entry.tier,
        "bugs": list(entry.bugs),
        "must": sorted(entry.must),
        "may": sorted(entry.may),
        "outcome": outcome(row),
        "failed": sorted(row.failed),
        "failures": [asdict(failure) for failure in row.failures],
        "complaints": row.complaints,
        "compared": row.compared,
    }


def outcome(row: Row) -> str:
    """In a word or two."""
    if row.not_run is not None:
        return f"{NOT_RUN}{row.not_run}"
    if row.entry.wrong:
        return "killed" if row.killed else "survived"
    return "false alarm" if row.false_alarm else "passed"


def text(rows: Sequence[Row]) -> str:
    """For standard output: what is not as its entry says, what was not run, and the score as the last line."""
    lines = [f"{outcome(row)}: {row.entry.name}: {complaint}" for row in rows for complaint in row.complaints]
    for tier in TIERS:
        here = [row for row in rows if row.entry.tier == tier]
        reasons = Counter(row.not_run for row in here if row.not_run is not None)
        lines += [f"{tier}: {count} kernels not run: {reason}" for reason, count in sorted(reasons.items())]
        if reasons.total() < len(here):
            lines.append(f"{tier}: {Score.of(here)}")
    return "\n".join([*lines, str(Score.of(rows))]) + "\n"


def markdown(data: dict[str, Any]) -> str:
    """The report for a reader: score, tiers, complaints, law by kernel by tier, every kernel, and what ran where."""
    tiers = [
        (t["tier"], t["killed"], t["wrong"], t["false_alarms"], t["right"], t["not_run"] or "")
        for t in data["tiers"]
    ]
    laws = [
        (law, tier, ", ".join(names))
        for law, found in data["matrix"].items()
        for tier, names in found.items()
    ]
    kernels = [
        (k["name"], k["tier"], _cited(k["bugs"]), k["outcome"], ", ".join(k["failed"]), k["states"])
        for k in data["kernels"]
        if not k["outcome"].startswith(NOT_RUN)
    ]
    complaints = [(k["name"], said) for k in data["kernels"] for said in k["complaints"]]
    provenance = surroundings(data["environment"])
    return "\n\n".join([
        "# Kill matrix", data["summary"] if data["complete"] else f"Interrupted: {data['summary']}",
        table(("tier", "killed", "wrong", "false alarms", "right", "not run"), tiers),
        "## Not as expected",
        table(("kernel", "what is not as its entry says"), complaints) if complaints else "Nothing.",
        "## Laws", f"Which kernels each law killed, by tier. {_DEAR}",
        table(("law", "tier", "kernels"), laws),
        "## Kernels",
        table(("kernel", "tier", "BUGS.md", "outcome", "laws that failed", "what it does"), kernels),
        *_not_run(data["kernels"]),
        "## Provenance", table(provenance.header, provenance.rows),
    ]) + "\n"  # fmt: skip


def _not_run(kernels: list[dict[str, Any]]) -> list[str]:
    """The kernels that were not judged, a row for each tier and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for kernel in kernels:
        if kernel["outcome"].startswith(NOT_RUN):
            reason = kernel["outcome"].removeprefix(NOT_RUN)
            groups.setdefault((kernel["tier"], reason), []).append(kernel["name"])
    rows = [(tier, reason, len(names), ", ".join(names)) for (tier, reason), names in groups.items()]
    return ["## Not run", table(("tier", "why", "how many", "kernels"), rows)] if rows else []


def _cited(bugs: list[int]) -> str:
    return ", ".join(map(str, bugs))


def write(folder: Path, data: dict[str, Any]) -> None:
    """mutants.json and mutants.md in the folder, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "mutants.json").write_text(dumps(data), encoding="utf-8")
    (folder / "mutants.md").write_text(markdown(data), encoding="utf-8")


def dumps(data: dict[str, Any]) -> str:
    """The JSON text."""
    return json.dumps(data, indent=1, allow_nan=False) + "\n"
