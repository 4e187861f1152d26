"""Copies of operators, made as those who hold a model make them: a reference policy, a pickle for a worker."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

from invariance.candidate import Operator


def _there_and_back(op: Operator) -> Operator:
    back: Operator = pickle.loads(pickle.dumps(op))
    return back


# Each raises whatever an operator that is not to be copied raises.
COPIES: dict[str, Callable[[Operator], Operator]] = {
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "a deep copy of a deep copy": lambda op: copy.deepcopy(copy.deepcopy(op)),
    "pickled and unpickled": _there_and_back,
}


def sent(op: Operator) -> bytes | None:
    """An operator as another process gets it; None where it cannot be pickled."""
    try:
        return pickle.dumps(op)
    except Exception:  # noqa: BLE001 - whatever an operator raises here is a refusal
        return None


def received(data: bytes | None) -> Operator | None:
    """The operator that was sent, or None: it may refuse to be unpickled too."""
    if data is None:
        return None
    try:
        op: Operator = pickle.loads(data)
    except Exception:  # noqa: BLE001 - as above
        return None
    return op
