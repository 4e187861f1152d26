"""What of a plan applies to a candidate, from what was asked for and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from invariance.checkers import LAWS, NO_LAUNCHES
from invariance.plan import Settings

# Beside the laws of accuracy: laws that judge something else, and by the exact value.
_BY_THE_EXACT_VALUE = frozenset({"cap_used"})
NO_ACCURACY = "accuracy is not judged in the interpreter: its tanh is torch's, not the device's"


def without_accuracy(spec: str, how: str) -> str:
    """Why a candidate in the interpreter is not taken by what judges accuracy alone, which is `how`, and what is."""
    other = f"`check` judges its other laws, and {how} the kernel itself, on a GPU"
    return f"candidate {spec!r}: {NO_ACCURACY}; {other}"


@dataclass(frozen=True)
class Scope:
    """probes: what `invariance.run:probe` said of each candidate. check_grad: as asked for; None: where it has one."""

    settings: Settings
    probes: Mapping[str, dict[str, Any]]
    check_grad: bool | None = None

    def asked(self, spec: str) -> Settings:
        """The settings for one candidate: a configured instance has one cap, its own."""
        fixed = self.probes[spec]["fixed_cap"]
        return self.settings if fixed is None else replace(self.settings, caps=(fixed,))

    def interpreted(self, spec: str) -> bool:
        """Whether something stands in for a GPU's functions."""
        return bool(self.probes[spec].get("substitutions"))

    def outside(self, law: str, pass_: str, spec: str) -> str | None:
        """Why a law does not apply to a candidate in a pass."""
        missing = self.without_gradient(pass_, spec)
        if missing is not None:
            return missing
        if law == "specification" and self.settings.rounding == "chain":
            return "the specification's rows are about FP32 math, and --rounding chain asked for another contract"
        graded = LAWS[law].judgement == "accuracy" or law in _BY_THE_EXACT_VALUE
        if graded and self.interpreted(spec):
            return NO_ACCURACY
        # Of a candidate whose probe died nothing is known: its cells say what they find.
        if LAWS[law].launches and self.probes[spec].get("launches_seen") is False:
            return NO_LAUNCHES
        return LAWS[law].applies(self.probes[spec]["convention"])

    def without_gradient(self, pass_: str, spec: str) -> str | None:
        """Why a candidate is not judged backward."""
        if pass_ == "backward" and self.check_grad is False:
            return "gradients were not asked for (--no-check-grad)"
        if pass_ == "backward" and self.check_grad is None and not self.probes[spec]["differentiable"]:
            return "the candidate has no gradient (asked of four elements)"
        return None
