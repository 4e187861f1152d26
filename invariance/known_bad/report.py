"""The kill matrix as JSON, Markdown and text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from invariance.known_bad.entry import Entry
from invariance.known_bad.matrix import DEAR, INTERPRETER_LAWS, Row, Score
from invariance.known_bad.reasons import REASONS
from invariance.offered import TIERS
from invariance.report.markdown import table
from invariance.report.rows import Code, surroundings
from strategies.caps import cap_text

SCHEMA_VERSION = 1
INTERRUPTED = "interrupted before it"
NOT_RUN = "not run: "  # how such an outcome begins
# What the words of the report mean, for those who did not write the catalogue.
LEGEND = """\
Each wrong kernel names the laws that must fail on it and those that may. It is *killed* where every one that must fail
did; it *survived* where one did not. A *false alarm* is a law that failed on a right kernel. A kernel that was not run
is not killed. Four tiers judge: *plan*, PyTorch kernels under the laws of `check`, on a CPU; *interpreter*, Triton
kernels run on a CPU with every address checked, where no law of accuracy is asked, as another tanh stands in;
*codegen*, facts of Triton kernels compiled for NVIDIA and AMD GPUs that need not be there; *device*, what only a GPU
can show."""
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
        "tiers": [_tier(tier, [row for row in rows if row.entry.tier == tier]) for tier in TIERS],
        "kernels": [_kernel(row) for row in rows],
        "matrix": matrix(rows),
        "environment": environment,
    }


def matrix(rows: Iterable[Row]) -> dict[str, dict[str, list[str]]]:
    """law -> tier -> the wrong kernels that failed it there."""
    found: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for law in sorted(row.failed) if row.entry.wrong else ():
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
        "check": command(entry),
    }


def command(entry: Entry) -> str | None:
    """What judges a kernel by itself, with its whole report; None where only this command compiles it."""
    if entry.tier == "codegen":
        return None
    laws = _laws_of(entry)
    return " ".join([
        f"softcap-verify check --candidate {entry.spec} --no-explore --profile {entry.profile or 'quick'}",
        f"--softcap {' '.join(map(cap_text, entry.caps))} --dtype {' '.join(entry.dtypes)}",
        f"--device {'cuda' if entry.tier == 'device' else 'cpu'}",
        *([f"--law {' '.join(laws)}"] if laws else []),
    ])  # fmt: skip


def _laws_of(entry: Entry) -> tuple[str, ...]:
    return entry.laws or (INTERPRETER_LAWS if entry.tier == "interpreter" else ())


def outcome(row: Row) -> str:
    """In a word or two."""
    if row.not_run is not None:
        return f"{NOT_RUN}{row.not_run}"
    if row.entry.wrong:
        return "killed" if row.killed else "survived"
    return "false alarm" if row.false_alarm else "passed"


def text(rows: Sequence[Row]) -> str:
    """For standard output: what is not as its entry says, what was not run, and the score as the last line."""
    lines: list[str] = []
    for row in rows:
        lines += [f"{outcome(row)}: {row.entry.name}: {complaint}" for complaint in row.complaints]
        if row.complaints and (alone := command(row.entry)):
            lines.append(f"  judge it alone: {alone}")
    for tier in TIERS:
        here = [row for row in rows if row.entry.tier == tier]
        reasons = Counter(row.not_run for row in here if row.not_run is not None)
        for reason, count in sorted(reasons.items()):
            lines.append(f"{tier}: {count} kernel{'s' * (count != 1)} not run: {reason}")
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
    complaints = [
        (k["name"], said, Code(k["check"]) if k["check"] else "")
        for k in data["kernels"]
        for said in k["complaints"]
    ]
    provenance = surroundings(data["environment"])
    return "\n\n".join([
        "# Kill matrix", data["summary"] if data["complete"] else f"Interrupted: {data['summary']}", LEGEND,
        table(("tier", "killed", "wrong", "false alarms", "right", "not run"), tiers),
        "## Not as expected",
        table(("kernel", "what is not as its entry says", "judge it alone"), complaints) if complaints else "Nothing.",
        "## Laws", f"Which wrong kernels failed each law, by tier. {_DEAR}",
        table(("law", "tier", "kernels"), laws),
        "Laws that kill no kernel which no other law kills, and why they stay:",
        table(("law", "why"), list(REASONS.items())),
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
