"""What a campaign found, as JSON (the source), Markdown, and text for a terminal."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from invariance.candidate import display_name
from invariance.fuzz.asked import NUMBER
from invariance.fuzz.bounds import GRADIENT_REST, TANH_ULPS, bound, implied_tanh, significand
from invariance.fuzz.campaign import Campaign
from invariance.fuzz.finding import Finding
from invariance.fuzz.rounds import WRONG, Judged
from invariance.report.markdown import table
from strategies.caps import as_fp32
from strategies.dtypes import FORMATS
from strategies.simplest import spell

SCHEMA_VERSION = 1
EXPLAINED = (
    "No cap listed here broke a law; first comes the one that uses most of its bound. A correct kernel whose tanh is "
    "within T ulp stays within 0.5 + m · (0.5 + T) FP32 ulp, m the significand of the cap, and half an ulp more beside "
    f"a power of two; its gradient g · (1 - t²) within {GRADIENT_REST:g} + 2 · T units at any cap. `bound` is that for "
    f"T = {TANH_ULPS:g}; `T` is the tanh that the error would take. Where it is alike, the caps are merely unlucky; "
    "where a few have a larger one, look at the kernel there."
)
OUTSIDE = (
    "Outside the judged domain, caps 2^-60 to 2^60, the contract promises nothing; --softcap-range asked for these "
    "caps, and they are held to the same rules."
)
TITLES = {
    "forward": "Forward: FP32 ulp before the last rounding",
    "backward": "Gradient: units of 2^-24 of abs(grad_y)",
}


def as_json(campaign: Campaign) -> dict[str, Any]:
    """The report as plain data; outside `timing` and `environment` it is the same for the same caps."""
    schedule, limits = campaign.schedule, campaign.limits
    return {
        "schema_version": SCHEMA_VERSION,
        "campaign": schedule.campaign,
        "candidate": display_name(campaign.subject.spec),
        "verdict": verdict(campaign),
        "complete": campaign.complete,
        "stopped": campaign.stopped,
        "settings": {
            "softcap_range": [schedule.within.low.hex(), schedule.within.high.hex()],
            "seed": schedule.seed,
            "shard": list(schedule.shard),
            "dtypes": list(campaign.subject.dtypes),
            "passes": list(campaign.subject.passes),
            "cap_forms": [NUMBER, *schedule.forms],
            "device": campaign.subject.device,
            "seconds": limits.seconds,
            "examples": limits.caps,
        },
        "totals": {
            "caps": campaign.caps,
            "outside": campaign.outside,
            "of": len(schedule.every) if schedule.exhaustive else None,
            "inputs": campaign.inputs,
            "flushed": campaign.flushed,
            "escalated": campaign.escalated,
            "sources": dict(sorted(campaign.drawn.items())),
            "rounds": [list(round_) for round_ in schedule.rounds],
        },
        "worst": {p: [_worst(p, judged) for _, judged in rows] for p, rows in sorted(campaign.worst.items())},
        "failures": [_failure(finding) for finding in campaign.findings],
        "outside": [_failure(finding) for finding in campaign.apart],
        "timing": _timing(campaign),
        "environment": campaign.environment(),
    }  # fmt: skip


def _timing(campaign: Campaign) -> dict[str, Any]:
    return {
        "seconds": round(campaign.seconds, 3),
        "first_failure": None if campaign.first_found is None else round(campaign.first_found, 3),
        "caps_per_second": round((campaign.caps + campaign.outside) / max(campaign.seconds, 1e-9), 2),
        "inputs_per_second": round(campaign.rate()),
    }


def verdict(campaign: Campaign) -> str:
    """found, nothing found, nothing judged, or incomplete; where an interrupt ended it, with what it had found."""
    if campaign.found:
        found = "found" if campaign.findings else "found outside the judged domain"
        return f"incomplete, {found}" if campaign.interrupted else found
    if campaign.schedule.exhaustive and not campaign.schedule.every:
        return "nothing judged: the shard holds no caps"
    if campaign.interrupted or not campaign.begun:
        return "incomplete"
    if campaign.caps + campaign.outside == 0:
        return "nothing judged: the time was over before the first cap"
    if not campaign.caps:
        return "nothing judged: every cap is outside the judged domain, and none broke a rule there"
    if campaign.schedule.exhaustive and not campaign.complete:
        return "nothing found so far: not complete"
    return "nothing found"


def status(report: dict[str, Any]) -> int:
    """The exit status: 0 nothing found, 1 found or nothing done, 2 where no cap was one that the contract speaks of."""
    verdict: str = report["verdict"]
    return 0 if verdict.startswith("nothing found") else 2 if verdict.startswith("nothing judged") else 1


def _worst(pass_: str, judged: Judged) -> dict[str, Any]:
    point, cap = judged.worst[pass_], judged.asked.cap
    return {
        "cap": judged.asked.record(),
        "spelled": str(judged.asked),
        "significand": significand(cap),
        "error": point.error,
        "dtype": point.dtype,
        "x": f"0x{point.x:0{FORMATS[point.dtype].width // 4}x}",
        "bound": bound(pass_, cap),
        "implied_tanh": round(implied_tanh(pass_, cap, point.error), 4),
    }


def _failure(finding: Finding) -> dict[str, Any]:
    cell = finding.verdict.cell
    return {
        "law": cell.law,
        "pass": cell.pass_,
        "dtype": cell.dtype,
        "kind": finding.kind,
        "cap": finding.asked.record(),
        "spelled": str(finding.asked),
        "fp32": as_fp32(finding.asked.cap).hex(),
        "history": [asked.record() for asked in finding.history],
        "variations": dict(finding.variations),
        "seen_at": list(finding.seen_at),
        "times": finding.times,
        "line": finding.line(),
        "replay": finding.replay,
        "message": str(finding),
    }


def dumps(report: dict[str, Any]) -> str:
    """The JSON text."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def write(report: dict[str, Any], folder: Path) -> None:
    """fuzz.json and fuzz.md in `folder`, which is made where it is missing; OSError where it cannot be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "fuzz.json").write_text(dumps(report), encoding="utf-8")
    (folder / "fuzz.md").write_text(markdown(report), encoding="utf-8")


def markdown(report: dict[str, Any]) -> str:
    """The report for a pull request."""
    totals, settings = report["totals"], report["settings"]
    parts = [
        f"# Fuzzing {report['candidate']}: {report['verdict']}",
        f"{_what(report)}: {summary(report)}\n\n{_asked(settings)}",
        "## Failures\n\n" + ("\n\n".join(f"```\n{f['message']}\n```" for f in report["failures"]) or "None."),
        _worst_tables(report),
        "## Caps judged\n\n" + table(("source", "caps"), list(totals["sources"].items())),
    ]
    if report["outside"]:
        fenced = "\n\n".join(f"```\n{f['message']}\n```" for f in report["outside"])
        parts.insert(3, f"## Failures outside the judged domain\n\n{OUTSIDE}\n\n{fenced}")
    parts.append(f"Contract {report['environment']['contract']}.")
    return "\n\n".join(parts) + "\n"


def _asked(settings: dict[str, Any]) -> str:
    low, high = (spell(float.fromhex(end)) for end in settings["softcap_range"])
    number, of = settings["shard"]
    passes = ", ".join(settings["passes"])
    forms = ", ".join(settings["cap_forms"])
    return (
        f"Seed {settings['seed']}, shard {number}/{of}, caps {low} to {high} as {forms}, {settings['device']}, "
        f"passes {passes}."
    )


def _what(report: dict[str, Any]) -> str:
    """Which candidate, where, and what it takes to have the same caps again."""
    settings = report["settings"]
    number, of = settings["shard"]
    shard = "" if of == 1 else f", shard {number}/{of}"
    kind = "" if report["campaign"] == "mixed" else f", {report['campaign']}"
    forward = "" if "backward" in settings["passes"] else ", forward only: it has no gradient"
    return f"{report['candidate']} on {settings['device']}, seed {settings['seed']}{shard}{kind}{forward}"


def _worst_tables(report: dict[str, Any]) -> str:
    worst = {pass_: rows for pass_, rows in report["worst"].items() if rows}
    parts = ["## Worst caps", EXPLAINED if worst else "None: every cap that was judged broke a law."]
    for pass_, rows in worst.items():
        header = ["cap", "m", "worst", "bound", "T", "dtype", "x"]
        numbers = ("significand", "error", "bound", "implied_tanh")
        body = [[r["spelled"], *(f"{r[n]:.4f}" for n in numbers), r["dtype"], r["x"]] for r in rows]
        parts.append(f"### {TITLES.get(pass_, pass_)}\n\n{table(header, body)}")
    return "\n\n".join(parts)


def summary(report: dict[str, Any]) -> str:
    """One line: how much, how fast, how bad."""
    totals, timing = report["totals"], report["timing"]
    worst = [
        f"worst {pass_} {rows[0]['error']:.4g} at {rows[0]['spelled']} (bound {rows[0]['bound']:.4g})"
        for pass_, rows in report["worst"].items()
        if rows
    ]
    of = "" if totals["of"] is None else f" of {totals['of']:,}"
    apart = f" and {totals['outside']:,} outside the judged domain" if totals["outside"] else ""
    return (
        f"{counted(totals['caps'], 'cap')}{of}{apart}, {totals['inputs']:,} inputs in {timing['seconds']:.1f} s "
        f"({timing['caps_per_second']:.1f} caps and {timing['inputs_per_second']:.3g} inputs a second); "
        f"{'; '.join([*worst, *_failures(report)])}"
    )


def _failures(report: dict[str, Any]) -> list[str]:
    """How many of each kind."""
    failures, apart = report["failures"], len(report["outside"])
    kinds = Counter(failure["kind"] for failure in failures)
    told = (
        ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        if set(kinds) - {WRONG}
        else ""
    )
    inside = counted(len(failures), "failure") + (f" ({told})" if told else "")
    return [inside, *([counted(apart, "failure") + " outside the judged domain"] if apart else [])]


def progress(campaign: Campaign) -> str:
    """One line while it goes on: caps done, inputs judged, inputs per second, worst so far, failures."""
    first = {pass_: rows[0] for pass_, rows in sorted(campaign.worst.items()) if rows}
    worst = [f"worst {pass_} {error:.4g} at {judged.asked}" for pass_, (error, judged) in first.items()]
    parts = [
        counted(campaign.caps + campaign.outside, "cap"),
        counted(campaign.inputs, "input"),
        f"{campaign.rate():.3g}/s",
        *worst,
        counted(len(campaign.findings) + len(campaign.apart), "failure"),
    ]
    return ", ".join(parts)


def counted(number: int, word: str) -> str:
    """A number of things: 1 cap, 2 caps."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def text(report: dict[str, Any]) -> str:
    """The failures and the last line."""
    parts = [failure["message"] for failure in report["failures"]]
    parts += [report["stopped"]] if report["stopped"] else []
    if report["outside"]:
        parts += [OUTSIDE, *(failure["message"] for failure in report["outside"])]
    return "\n\n".join([*parts, f"{report['verdict']}: {_what(report)}: {summary(report)}"]) + "\n"
