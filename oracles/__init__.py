"""The truth about c * tanh(x / c) and its gradient, and the rules by which a result is accepted."""

from __future__ import annotations

from oracles.acceptance import Acceptance, accept
from oracles.exact import Enclosure
from oracles.tolerances import Contract, load_contract, resolve_tolerance
from oracles.truth import Truth

__all__ = ["Acceptance", "Contract", "Enclosure", "Truth", "accept", "load_contract", "resolve_tolerance"]
