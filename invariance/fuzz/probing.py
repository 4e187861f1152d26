"""What a campaign must know of a candidate before it begins."""

from __future__ import annotations

from typing import Any

from invariance.fuzz.asked import forms_of
from invariance.fuzz.rounds import Subject, candidate_of
from invariance.run import load_only, probe


def probed(subject: Subject) -> dict[str, Any]:
    """What `invariance.run.probe` says, and in which forms the candidate takes its cap besides a number ("forms")."""
    unloadable = load_only(subject.spec, subject.device)
    if unloadable is not None:
        return {"unloadable": unloadable}
    found = probe(subject.spec, subject.device, (30.0,), subject.dtypes)
    return {**found, "forms": forms_of(candidate_of(subject), subject.device)}
