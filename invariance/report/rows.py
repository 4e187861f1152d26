"""What a report says, as sentences and tables of plain cells, from its JSON alone: every rendering tells the same."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from strategies.caps import cap_text

JUDGEMENTS = {
    "FA": "forward accuracy",
    "FI": "forward invariance",
    "GA": "gradient accuracy",
    "GI": "gradient invariance",
}
NOTE = (
    "For integrators: softcap turns a mask's -inf into -cap, so mask after the cap. Where rollout and trainer "
    "must agree, both must use the implementation that this report judged."
)
LAWS_UNIT = (
    "Worst errors: forward in ulp of the output; gradient in units of 2^-24 · |grad_y|, of FP32 alone, since the "
    "rounding of a 16-bit gradient is thousands of these. Beside six ulps the contract allows cap · 2^-149, which is "
    "more than six for the smallest outputs."
)
CERTIFICATES_UNIT = (
    "Worst: forward in ulp, gradient (grad_y = 1) in units of 2^-24; the rounding of a right 16-bit gradient is up "
    "to 4,096 (FP16) and 32,768 (BF16) of these."
)

CODE_NOTE = (
    "Rows that begin with “code of” are information and no verdict: an approximate division is within 2 ulp on NVIDIA "
    "and may be a choice; NVIDIA's approximate tanh is off by 185 ulps at cap 30, where six are allowed; a kernel that "
    "is compiled anew for every cap takes the cap as a compile-time constant, so each new cap costs a compilation; "
    "without vector access a thread loads or stores less than 8 bytes at once; spills are bytes (NVIDIA) or registers "
    "(AMD) kept in memory."
)


class Code(str):
    """A cell that is a name or bits, not prose."""

    __slots__ = ()


class Bad(str):
    """A cell that a reader must not miss."""

    __slots__ = ()


_MARK = {"pass": "pass", "fail": Bad("FAIL"), "not run": Bad("not run"), "not applicable": "n/a"}


@dataclass(frozen=True)
class Table:
    """A header and rows as long as it; cells are numbers, text, `Code` or `Bad`."""

    header: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]


@dataclass(frozen=True)
class Headline:
    """The verdict in capitals, who was judged, on which device, and how much was compared."""

    state: str
    candidates: tuple[str, ...]
    device: str
    size: str


def headline(report: dict[str, Any]) -> Headline:
    """The first line of a report."""
    state = report["verdict"].upper()
    if not report["complete"] and report["verdict"] != "incomplete":
        state += ", INCOMPLETE"
    ran = [row for row in report["laws"] if judged(row)]
    elements = sum(row["elements"] for row in ran)
    device = (report["environment"]["accelerator"] or {}).get("name") or report["environment"]["device"]
    size = f"{len(ran)} cells, {elements:,} elements compared"
    return Headline(state, tuple(report["candidates"]), device, size)


def matrix(report: dict[str, Any]) -> Table:
    """The four verdicts of each candidate by dtype and cap."""
    rows = [
        (Code(r["candidate"]), r["dtype"], cap_text(r["cap"]), *(_MARK[r[j]] for j in JUDGEMENTS))
        for r in report["matrix"]
    ]
    return Table(("candidate", "dtype", "cap", *JUDGEMENTS.values()), rows)


def laws(report: dict[str, Any]) -> Table:
    """Each law that ran in a pass; the candidate stands there only where there are several."""
    width = 7 if len(report["candidates"]) > 1 else 6
    header = ("law", "pass", "verdict", "cases", "elements", "worst error", "candidate")
    rows = [_law(key, cells) for key, cells in _grouped(report["laws"]).items() if any(map(judged, cells))]
    return Table(header[:width], [row[:width] for row in rows])


def _law(key: tuple[str, str, str], cells: list[dict[str, Any]]) -> tuple[object, ...]:
    candidate, law, pass_ = key
    ran = [cell for cell in cells if judged(cell)]
    counted = Counter(cell["status"] for cell in cells)
    bad = [f"{counted['fail']} of {len(ran)} fail"] if counted["fail"] else []
    bad += [f"{counted['not run']} not run"] if counted["not run"] else []
    worst = max((c["worst"]["error"] for c in ran if c["worst"] and _tells(c)), default=None)
    return (
        law,
        pass_,
        Bad(", ".join(bad)) if bad else "pass",
        sum(cell["cases"] for cell in ran),
        f"{sum(cell['elements'] for cell in ran):,}",
        "" if worst is None else f"{worst:.4g}",
        candidate,
    )


def judged(cell: dict[str, Any]) -> bool:
    """Whether a law ran in a cell and said something of it."""
    return cell["status"] in ("pass", "fail")


def _tells(cell: dict[str, Any]) -> bool:
    return cell["law"] != "specification" and bool(cell["pass"] != "backward" or cell["dtype"] == "fp32")


def _grouped(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["candidate"], row["law"], row["pass"]), []).append(row)
    return groups


def certificates(report: dict[str, Any]) -> Table:
    """The domains that were swept whole, and those that could not be."""
    columns = "candidate|dtype|cap|pass|inputs|broken|correctly rounded|worst|at x|fingerprint"
    return Table(tuple(columns.split("|")), [_certificate(c) for c in report["certificates"]])


def _certificate(row: dict[str, Any]) -> tuple[object, ...]:
    head = (Code(row["candidate"]), row["dtype"], row["softcap"]["given"], row["pass"])
    if "reason" in row:
        return (*head, "", Bad(f"not swept: {row['reason']}"), "", "", "", "")
    counts, worst = row["counts"], row["worst"]
    broken = counts["violations"]["count"]
    rounded = f"{100 * counts['correctly_rounded']['count'] / row['inputs']:.3f}%"
    at = (f"{float(worst['error']):.4g}", worst["input"]["decimal"]) if worst else ("", "")
    digest = hashlib.sha256("".join(row["fingerprint"].values()).encode()).hexdigest()[:12]
    return (*head, f"{row['inputs']:,}", Bad(f"{broken:,}") if broken else "0", rounded, *at, Code(digest))


def failures(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the plan, then those that exploration found."""
    return [*report["failures"], *(e["failure"] for e in report["explored"] if e["failure"])]


def fitting(blocks: Iterable[str], room: int) -> list[str]:
    """The first blocks that fit in so many characters, two a block for what stands between them."""
    kept: list[str] = []
    for block in blocks:
        room -= len(block) + 2
        if room < 0:
            break
        kept.append(block)
    return kept


def explored(report: dict[str, Any]) -> str:
    """What was tried on top of the plan."""
    examples = sum(e["examples"] for e in report["explored"])
    found = sum(e["failure"] is not None for e in report["explored"])
    if not examples:
        return "Not run."
    return f"Hypothesis tried {examples:,} cases on top of the plan and found {found} failures."


def not_run(report: dict[str, Any]) -> Table:
    """What did not run or does not apply, by reason."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in report["not_run"]:
        reasons.setdefault((row["status"], row["reason"] or ""), []).append(row["law"])
    for row in report["laws"]:
        if row["status"] == "pass" and row["reason"]:
            reasons.setdefault(("pass in part", row["reason"]), []).append(row["law"])
    rows = [
        (status, reason, len(laws), ", ".join(sorted(set(laws))))
        for (status, reason), laws in sorted(reasons.items())
    ]
    return Table(("status", "reason", "cells", "laws"), rows)


def ran(report: dict[str, Any]) -> Table:
    """The backend asked for, the one that ran, and the kernels that the device launched."""
    header = ("candidate", "asked", "ran", "kernels launched", "substituted")
    rows = [
        (
            Code(name),
            Code(b["asked"]),
            Code(b["ran"]),
            _launched(b),
            "; ".join(b["substitutions"]) or "nothing",
        )
        for name, b in report["environment"]["candidates"].items()
    ]
    return Table(header, rows)


def _launched(backend: dict[str, Any]) -> str:
    if backend["launched"] is None:
        return "not observed: no accelerator"
    return "; ".join(f"{pass_}: {', '.join(k) or 'none'}" for pass_, k in backend["launched"].items())


def provenance(report: dict[str, Any]) -> Table:
    """Versions, device, commit, seed, contract, backends and settings."""
    settings = ", ".join(f"{k} {_told(v)}" for k, v in _settings(report).items() if v is not None)
    return surroundings(report["environment"], settings=settings)


def surroundings(environment: dict[str, Any], **further: str) -> Table:
    """The rows of an `environment`, and further ones."""
    flat = {
        **{k: v for k, v in environment.items() if not isinstance(v, dict)},
        **_named(environment, "packages"),
        **_named(environment, "accelerator"),
    }
    for name, backend in environment["candidates"].items():
        flat |= _backend(name, backend)
    return Table(("what", "value"), [(k, _told(v)) for k, v in (flat | further).items() if v is not None])


def _told(value: object) -> str:
    """Plain data in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _backend(name: str, backend: dict[str, Any]) -> dict[str, str]:
    flat = {f"backend of {name}": f"asked {backend['asked']}, ran {backend['ran']}"}
    for number, text in enumerate(backend["substitutions"], 1):
        flat[f"substituted in {name}, {number}"] = text
    for facts in backend.get("code", []):
        told = ", ".join(_fact(k, v) for k, v in facts.items() if k not in ("kernel", "target"))
        flat[f"code of {name}, {facts['kernel']} for {facts['target']}, no verdict"] = told
    for pass_, kernels in (backend["launched"] or {}).items():
        flat[f"kernels launched by {name}, {pass_}"] = ", ".join(kernels) or "none"
    return flat


def _fact(name: str, value: object) -> str:
    return f"{name.replace('_', ' ')} {_told(value)}"


def code_note(report: dict[str, Any]) -> str | None:
    """How the rows about compiled code are read, where there are any."""
    candidates = report["environment"]["candidates"].values()
    return CODE_NOTE if any(backend.get("code") for backend in candidates) else None


def _settings(report: dict[str, Any]) -> dict[str, Any]:
    settings = report["settings"]
    return {**settings, "caps": " ".join(map(cap_text, settings["caps"]))}


def _named(environment: dict[str, Any], key: str) -> dict[str, Any]:
    return {f"{key.removesuffix('s')} {name}": value for name, value in (environment[key] or {}).items()}
