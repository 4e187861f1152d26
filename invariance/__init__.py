"""The judgement: laws, the plan over them, and the report. `verify` is the command `check` from Python."""

from __future__ import annotations

from invariance.candidate import CandidateNotLoadable
from invariance.session import verify

__all__ = ["CandidateNotLoadable", "verify"]
