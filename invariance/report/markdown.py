"""Markdown of a report, from its JSON alone; fits a GitHub comment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from strategies.caps import cap_text

LIMIT, LAWS_ROOM = 65_536, 24_000  # characters: of a GitHub comment, and of it for the table of laws
_MARK = {"pass": "pass", "fail": "**FAIL**", "not run": "**not run**", "not applicable": "n/a"}
_NOTE = (
    "> For integrators: softcap turns a mask's -inf into -cap, so mask after the cap. Where rollout and trainer "
    "must agree, both must use the implementation that this report judged."
)


def render(report: dict[str, Any]) -> str:
    """The whole report; what would pass the limit is cut, and says so."""
    head = "\n\n".join([_headline(report), _matrix(report), _NOTE])
    tail = "\n\n".join([_certificates(report), _explored(report), _not_run(report), _provenance(report)])
    laws = _laws(report, LAWS_ROOM)
    room = LIMIT - len(head) - len(laws) - len(tail) - 200
    return f"{head}\n\n{laws}\n\n{_failures(report, room)}\n\n{tail}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _headline(report: dict[str, Any]) -> str:
    state = report["verdict"].upper()
    if not report["complete"] and report["verdict"] != "incomplete":
        state += ", INCOMPLETE"
    ran = [row for row in report["laws"] if row["status"] in ("pass", "fail")]
    judged = sum(row["elements"] for row in ran)
    device = (report["environment"]["accelerator"] or {}).get("name") or report["environment"]["device"]
    names = ", ".join(f"`{name}`" for name in report["candidates"])
    size = f"{len(ran)} cells, {judged:,} elements compared"
    return f"# Softcap invariance report: {state}\n\n{names} on {device}: {size}."


def _matrix(report: dict[str, Any]) -> str:
    rows = [
        (
            f"`{r['candidate']}`",
            r["dtype"],
            cap_text(r["cap"]),
            *(_MARK[r[j]] for j in ("FA", "FI", "GA", "GI")),
        )
        for r in report["matrix"]
    ]
    header = (
        "candidate",
        "dtype",
        "cap",
        "forward accuracy",
        "forward invariance",
        "gradient accuracy",
        "gradient invariance",
    )
    return table(header, rows)


def _laws(report: dict[str, Any], room: int) -> str:
    rows: list[tuple[object, ...]] = []
    for (candidate, law, pass_), cells in _grouped(report["laws"]).items():
        ran = [c for c in cells if c["status"] in ("pass", "fail")]
        if not ran:
            continue
        failed = sum(c["status"] == "fail" for c in cells)
        worst = max((c["worst"]["error"] for c in ran if c["worst"] and _tells(c)), default=None)
        state = f"**{failed} of {len(cells)} fail**" if failed else "pass"
        elements = sum(c["elements"] for c in ran)
        rows.append(
            (
                law,
                pass_,
                state,
                sum(c["cases"] for c in ran),
                f"{elements:,}",
                "" if worst is None else f"{worst:.4g}",
                candidate,
            )
        )
    several = len(report["candidates"]) > 1
    header = ("law", "pass", "verdict", "cases", "elements", "worst error", "candidate")[
        : 7 if several else 6
    ]
    unit = (
        "Worst errors: forward in ulp of the output; gradient in units of 2^-24 · |grad_y|, of FP32 alone, since the "
        "rounding of a 16-bit gradient is thousands of these."
    )
    return f"## Laws\n\n{_cut([row[: len(header)] for row in rows], header, room)}\n\n{unit}"


def _cut(rows: list[tuple[object, ...]], header: Sequence[str], room: int) -> str:
    """The table, or as much of it as there is room for, what failed first."""
    whole = table(header, rows)
    if len(whole) <= room:
        return whole
    first = sorted(rows, key=lambda row: row[2] == "pass")
    kept = max(1, len(rows) * room // len(whole))
    return f"{table(header, first[:kept])}\n\n{len(rows) - kept} more rows are in report.json."


def _tells(cell: dict[str, Any]) -> bool:
    return cell["law"] != "specification" and bool(cell["pass"] != "backward" or cell["dtype"] == "fp32")


def _certificates(report: dict[str, Any]) -> str:
    rows = [_certificate(c) for c in report["certificates"]]
    header = (
        "candidate",
        "dtype",
        "cap",
        "pass",
        "inputs",
        "broken",
        "correctly rounded",
        "worst",
        "at x",
        "fingerprint",
    )
    if not rows:
        return "## Every input\n\nNo domain was swept whole."
    units = (
        "Worst: forward in ulp, gradient (grad_y = 1) in units of 2^-24; the rounding of a right 16-bit gradient is up "
        "to 4,096 (FP16) and 32,768 (BF16) of these."
    )
    return f"## Every input\n\n{table(header, rows)}\n\n{units}"


def _certificate(row: dict[str, Any]) -> tuple[object, ...]:
    head = (f"`{row['candidate']}`", row["dtype"], row["softcap"]["given"], row["pass"])
    if "reason" in row:
        return (*head, "", f"**not swept**: {row['reason']}", "", "", "", "")
    counts, worst = row["counts"], row["worst"]
    broken = counts["violations"]["count"]
    rounded = f"{100 * counts['correctly_rounded']['count'] / row['inputs']:.3f}%"
    at = (f"{float(worst['error']):.4g}", worst["input"]["decimal"]) if worst else ("", "")
    digest = hashlib.sha256("".join(row["fingerprint"].values()).encode()).hexdigest()[:12]
    return (*head, f"{row['inputs']:,}", f"**{broken:,}**" if broken else "0", rounded, *at, f"`{digest}`")


def _grouped(rows: Iterable[dict[str, Any]]) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["candidate"], row["law"], row["pass"]), []).append(row)
    return groups


def _failures(report: dict[str, Any], room: int) -> str:
    failures = [*report["failures"], *(e["failure"] for e in report["explored"] if e["failure"])]
    if not failures:
        return "## Failures\n\nNone."
    parts, used = ["## Failures"], 0
    for number, failure in enumerate(failures):
        block = f"```\n{failure['message']}\n```"
        used += len(block) + 2
        if used > room:
            parts.append(f"{len(failures) - number} more failures are in report.json.")
            break
        parts.append(block)
    return "\n\n".join(parts)


def _explored(report: dict[str, Any]) -> str:
    examples = sum(e["examples"] for e in report["explored"])
    found = sum(e["failure"] is not None for e in report["explored"])
    return (
        f"## Exploration\n\nHypothesis tried {examples:,} cases on top of the plan and found {found} failures."
        if examples
        else "## Exploration\n\nNot run."
    )


def _not_run(report: dict[str, Any]) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in report["not_run"]:
        reasons.setdefault((row["status"], row["reason"] or ""), []).append(row["law"])
    if not reasons:
        return "## Not run\n\nEverything asked for ran."
    rows = [
        (status, reason, len(laws), ", ".join(sorted(set(laws))))
        for (status, reason), laws in sorted(reasons.items())
    ]
    return f"## Not run\n\n{table(('status', 'reason', 'cells', 'laws'), rows)}"


def _provenance(report: dict[str, Any]) -> str:
    environment = report["environment"]
    flat = {
        **{k: v for k, v in environment.items() if not isinstance(v, dict)},
        **_named(environment, "packages"),
        **_named(environment, "accelerator"),
    }
    for name, backend in environment["candidates"].items():
        flat[f"backend of {name}"] = f"asked {backend['asked']}, ran {backend['ran']}"
        for number, text in enumerate(backend["substitutions"], 1):
            flat[f"substituted in {name}, {number}"] = text
        for facts in backend.get("code", []):
            told = ", ".join(f"{k} {v}" for k, v in facts.items() if k not in ("kernel", "target"))
            flat[f"code of {name}, {facts['kernel']} for {facts['target']}, no verdict"] = told
        for pass_, kernels in (backend["launched"] or {}).items():
            flat[f"kernels launched by {name}, {pass_}"] = ", ".join(kernels) or "none"
    flat["settings"] = ", ".join(f"{k} {v}" for k, v in _settings(report).items() if v is not None)
    return f"## Provenance\n\n{table(('what', 'value'), [(k, v) for k, v in flat.items() if v is not None])}"


def _settings(report: dict[str, Any]) -> dict[str, Any]:
    settings = report["settings"]
    return {**settings, "caps": " ".join(map(cap_text, settings["caps"]))}


def _named(environment: dict[str, Any], key: str) -> dict[str, Any]:
    return {f"{key.removesuffix('s')} {name}": value for name, value in (environment[key] or {}).items()}
