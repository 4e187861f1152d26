"""What must be known of a candidate before it is judged, asked in a child process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from invariance.candidate import INTERPRETED, CandidateNotLoadable
from invariance.offered import ONE_A_VENDOR
from invariance.plan import Settings
from invariance.process import Child, Job
from strategies.caps import cap_text

PATIENCE = 60.0  # seconds for four elements, unless a time limit is given
LEAST_FOR_IMPORT, MOST_FOR_IMPORT = 30.0, 120.0  # seconds; between these twice what a cell may take
SILENT, TOLD_EVERY = 5.0, 10.0  # seconds until an import that goes on is told, and between two such lines
UNKNOWN: dict[str, Any] = {"differentiable": True, "fixed_cap": None, "convention": "unknown", "ran": None}


@lru_cache(maxsize=16)
def with_own_cap(spec: str, settings: Settings, timeout: float = PATIENCE) -> Settings:
    """The settings with a configured instance's own cap in place of those asked for; raises CandidateNotLoadable."""
    found = probed(spec, settings.device, settings.caps, settings.dtypes, timeout)
    return settings if found["fixed_cap"] is None else replace(settings, caps=(found["fixed_cap"],))


def probed(
    spec: str, device: str, caps: tuple[float | int, ...], dtypes: tuple[str, ...], timeout: float
) -> dict[str, Any]:
    """What `invariance.run:probe` says of a candidate; raises CandidateNotLoadable, also where it refuses every cap,
    and where it needs a GPU and was to be judged without one.

    A candidate that dies or hangs on four elements is judged, not refused: it then counts as UNKNOWN.
    """
    child = Child()
    common = {"spec": spec, "device": device}
    try:
        load(child, spec, device, timeout)
        outcome = child.run(Job("invariance.run:probe", {**common, "caps": caps, "dtypes": dtypes}, timeout))
        code = [facts for target in _targets(spec) for facts in _code(child, common, target, timeout)]
    finally:
        child.close()
    if outcome.kind != "done":
        return dict(UNKNOWN)
    if refusals := outcome.value["refusals"]:
        tried = ", ".join(dict.fromkeys(cap_text(cap) for cap, _ in refusals))
        reasons = " and ".join(dict.fromkeys(reason for _, reason in refusals))
        raise CandidateNotLoadable(
            f"candidate {spec!r} cannot be constructed at cap {tried}: it raised {reasons}; a class or a factory gets "
            "softcap=c where it names it or takes any keyword, else c alone: for what takes anything else, give a "
            "function of c that makes it, or an object that has its cap as .softcap"
        )
    if outcome.value.get("without_a_gpu"):
        raise CandidateNotLoadable(
            f"candidate {spec!r} launches on a GPU, and the device is cpu: give --device cuda where there is one, or "
            f"{INTERPRETED}{spec}, which judges the launches of a Triton kernel without one"
        )
    return {**outcome.value, "code": code}


def load(child: Child, spec: str, device: str, timeout: float) -> float:
    """Import a candidate in a child; the seconds that it took. Raises CandidateNotLoadable.

    timeout: seconds that a cell may take. An import has twice that, from 30 to 120 s, and is told while it goes on.
    """
    patience = min(max(2 * timeout, LEAST_FOR_IMPORT), MOST_FOR_IMPORT)
    job = Job("invariance.run:load_only", {"spec": spec, "device": device}, patience)
    outcome = child.run(job, _telling(spec, patience))
    if outcome.kind != "done":
        late = " (twice --timeout, from 30 to 120 s)" if outcome.kind == "timed out" else ""
        raise CandidateNotLoadable(f"candidate {spec!r}: importing it failed: {outcome.reason}{late}")
    if outcome.value is not None:
        raise CandidateNotLoadable(outcome.value)
    return outcome.seconds


def _telling(spec: str, patience: float) -> Callable[[float], None]:
    """Tells on standard error now and then that an import goes on."""
    due = SILENT

    def waiting(seconds: float) -> None:
        nonlocal due
        if seconds >= due:
            due += TOLD_EVERY
            line = f"importing {spec}: {seconds:.0f} s so far, {patience:g} s at most"
            print(f"softcap-verify: {line}", file=sys.stderr, flush=True)

    return waiting


def _targets(spec: str) -> tuple[str, ...]:
    """What the kernels of a candidate in the interpreter are compiled for, as information."""
    return ONE_A_VENDOR if spec.startswith(INTERPRETED) else ()


def _code(child: Child, common: dict[str, Any], target: str, timeout: float) -> list[dict[str, Any]]:
    """The facts of one target. A compiler may end the process: Triton 3.6's does at assembly that it does not know."""
    outcome = child.run(Job("invariance.run:code", {**common, "target": target}, timeout))
    if outcome.kind == "done":
        return list(outcome.value)
    return [{"kernel": "every kernel", "target": target, "does_not_compile": str(outcome.reason)}]
