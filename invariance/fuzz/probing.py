"""What a campaign must know of a candidate before it begins."""

from __future__ import annotations

from typing import Any

from invariance.fuzz.asked import accepts_tensors
from invariance.fuzz.rounds import Subject, candidate_of
from invariance.run import probe


def probed(subject: Subject) -> dict[str, Any]:
    """What `invariance.run.probe` says, and whether the candidate takes its cap as a 0-d tensor ("tensors")."""
    found = probe(subject.spec, subject.device, (30.0,), subject.dtypes)
    if "unloadable" in found:
        return found
    return {**found, "tensors": accepts_tensors(candidate_of(subject), subject.device)}
