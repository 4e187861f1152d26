"""What of a report's request was not judged as it was asked for, though nothing failed of it, in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from invariance.report.rows import JUDGEMENTS, judged
from strategies.caps import cap_text

SAMPLED = (
    "FP32 was judged on samples. All of its 2^32 inputs are judged by: "
    "`softcap-verify sweep --candidate {name} --softcap {caps} --dtype fp32`"
)


def notes(report: dict[str, Any]) -> list[str]:
    """What was asked for and not judged as asked, though nothing failed of it."""
    return [*_own_caps(report), *_said_nothing(report), *_not_applicable(report)]


def _own_caps(report: dict[str, Any]) -> Iterator[str]:
    asked = report["settings"]["caps"]
    for name in report["candidates"]:
        here = {row["cap"] for row in report["matrix"] if row["candidate"] == name}
        if own := sorted(here - set(asked)):
            told, instead = (", ".join(map(cap_text, caps)) for caps in (own, asked))
            yield f"{name} carries its own cap: judged at {told}, not at {instead}."


def _said_nothing(report: dict[str, Any]) -> Iterator[str]:
    """Of laws asked for by name; where none of them spoke, the report says so anyway."""
    named, spoke = report["settings"]["laws"], {row["law"] for row in report["laws"] if judged(row)}
    for law in () if named == "all" or not spoke else sorted(set(named) - spoke):
        reasons = {row["reason"] for row in report["not_run"] if row["law"] == law}
        yield f"{law} was not judged: {'; '.join(sorted(filter(None, reasons)))}."


def _not_applicable(report: dict[str, Any]) -> Iterator[str]:
    """Why a verdict is n/a, where others are none: by candidate and reason, the dtypes only where they differ."""
    if not any(judged(row) for row in report["laws"]):
        return
    found: dict[tuple[str, str], dict[str, set[str]]] = {}
    for row in report["matrix"]:
        for judgement in JUDGEMENTS:
            if row[judgement] == "not applicable":
                why = found.setdefault((row["candidate"], _commonest_reason(report, row, judgement)), {})
                why.setdefault(judgement, set()).add(row["dtype"])
    for (name, reason), judgements in found.items():
        every = {row["dtype"] for row in report["matrix"] if row["candidate"] == name}
        told = [j if d == every else f"{j} ({', '.join(sorted(d))})" for j, d in judgements.items()]
        yield f"{name}: {', '.join(told)} n/a: {reason}."


def _commonest_reason(report: dict[str, Any], row: dict[str, Any], judgement: str) -> str:
    keys = ("candidate", "dtype", "cap")
    cells = [r for r in report["not_run"] if r["judgement"] == judgement and all(r[k] == row[k] for k in keys)]
    reasons = Counter(r["reason"] for r in cells if r["reason"])
    return reasons.most_common(1)[0][0] if reasons else "no law about it was asked for"


def sampled(report: dict[str, Any]) -> str | None:
    """What else judges FP32; None where all of it was swept, where a sweep would judge by another contract, or fail."""
    fp32 = [r for r in report["matrix"] if r["dtype"] == "fp32"]
    rows = [r for r in fp32 if "pass" in (r["FA"], r["GA"]) and "fail" not in (r["FA"], r["GA"])]
    swept = any(c["dtype"] == "fp32" for c in report["certificates"])
    if not rows or swept or report["settings"]["rounding"] != "once":
        return None
    names = sorted({r["candidate"] for r in rows})
    caps = " ".join(map(cap_text, sorted({r["cap"] for r in rows})))
    return SAMPLED.format(name=names[0] if len(names) == 1 else "SPEC", caps=caps)
