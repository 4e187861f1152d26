"""What a campaign must know of a candidate before it begins; what dies meanwhile is found, not refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from invariance.candidate import CandidateNotLoadable
from invariance.fuzz.asked import Asked, forms_of
from invariance.fuzz.rounds import CRASHED, LATE, Broken, Subject, candidate_of
from invariance.fuzz.scan import LAW
from invariance.probing import UNKNOWN, load
from invariance.process import Child, Job, Outcome
from invariance.run import ORDINARY_CAP
from invariance.scope import without_accuracy
from strategies.caps import cap_text

ASKED_AT = (7.0, ORDINARY_CAP)  # caps at which the forms of a cap are tried, the second where the first kills


@dataclass
class Known:
    """facts: of `invariance.run.probe`, and "forms": how the candidate takes its cap besides a number.

    loading: seconds that importing it took. broken: calls that killed their process, or did not return.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    loading: float = 0.0
    broken: list[Broken] = field(default_factory=list)


def known_of(subject: Subject, timeout: float) -> Known:
    """Ask in a child; raises CandidateNotLoadable for what cannot be loaded, has one cap only, or runs in the
    interpreter.

    timeout: seconds for a call of four elements.
    """
    common, child, known = {"spec": subject.spec, "device": subject.device}, Child(), Known()
    try:
        known.loading = load(child, subject.spec, subject.device, timeout)
        patience = timeout + 2 * known.loading
        kwargs = {**common, "caps": (ORDINARY_CAP,), "dtypes": subject.dtypes}
        probed = child.run(Job("invariance.run:probe", kwargs, patience))
        known.facts = _facts(probed, subject, known)
        for cap in ASKED_AT:
            asked = child.run(
                Job("invariance.fuzz.probing:forms", {"subject": subject, "cap": cap}, patience)
            )
            if asked.kind == "done":
                known.facts["forms"] = asked.value
                break
            _keep(asked, subject, known, Asked(cap))
    finally:
        child.close()
    return known


def _facts(probed: Outcome, subject: Subject, known: Known) -> dict[str, Any]:
    facts: dict[str, Any] = {**UNKNOWN, "forms": ()}
    if probed.kind == "raised":
        raise CandidateNotLoadable(f"candidate {subject.spec!r}: {probed.reason}")
    if probed.kind != "done":
        _keep(probed, subject, known, Asked(ORDINARY_CAP))
        return facts
    facts |= probed.value
    if facts.get("substitutions"):
        raise CandidateNotLoadable(without_accuracy(subject.spec, "a campaign"))
    if facts["fixed_cap"] is not None:
        raise CandidateNotLoadable(
            f"candidate {subject.spec!r} is configured with its own cap, {cap_text(facts['fixed_cap'])}: "
            "give its class, a factory or a function of (x, cap)"
        )
    return facts


def _keep(lost: Outcome, subject: Subject, known: Known, asked: Asked) -> None:
    if lost.kind != "raised":
        kind = LATE if lost.kind == "timed out" else CRASHED
        known.broken.append(
            Broken(LAW, subject.passes[0], subject.dtypes[-1], asked, kind=kind, reason=lost.reason)
        )


def forms(subject: Subject, cap: float) -> tuple[str, ...]:
    """In a child: the forms besides a number in which the candidate takes its cap."""
    return forms_of(candidate_of(subject), subject.device, cap)
