"""A cap as a candidate is given it: a Python number, and where it takes them a 0-d FP32 tensor or one at each call."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, cast

import torch

from invariance.candidate import Candidate, Map, Operator
from strategies.caps import Cap, as_fp32
from strategies.simplest import spell

NUMBER, TENSOR, CALL = "number", "tensor", "call"
_SPELLED = {NUMBER: "", TENSOR: " as a tensor", CALL: " at the call"}
_PARAMETERS = ("softcap", "soft_cap", "logit_softcap", "cap", "c")  # what authors call it
_BUILT_AT = 30.0  # the cap of an operator that is told another one at each call


@dataclass(frozen=True)
class Asked:
    """A cap and its form: "number" (an int stays an int), "tensor", or "call": told to an operator of another cap."""

    cap: Cap
    form: str = NUMBER

    def __str__(self) -> str:
        return spell(self.cap) + _SPELLED[self.form]

    def given(self, candidate: Candidate, device: str) -> Candidate:
        """The candidate, its caps given to it in this form."""
        if self.form == NUMBER:
            return candidate
        if self.form == TENSOR:
            return replace(candidate, factory=lambda cap: candidate.factory(_tensor(cap, device)))
        op, parameter = _told_at_calls(candidate.factory)
        return replace(candidate, factory=lambda cap: partial(op, **{parameter: cap}))

    def map(self, candidate: Candidate, pass_: str, device: str) -> Map:
        """The candidate at this cap; raises CandidateRaised when its constructor does."""
        return self.given(candidate, device).map(self.cap, pass_)

    def record(self) -> Any:
        """As JSON: an int, a float in hexadecimal, or {"tensor": that} or {"call": that}."""
        text = self.cap if isinstance(self.cap, int) else self.cap.hex()
        return text if self.form == NUMBER else {self.form: text}

    @classmethod
    def of_record(cls, record: Any) -> Asked:
        """The cap whose `record` this is; ValueError for any other."""
        form, given = NUMBER, record
        if isinstance(record, dict) and len(record) == 1 and set(record) <= {TENSOR, CALL}:
            ((form, given),) = record.items()
        try:
            cap = float.fromhex(given) if isinstance(given, str) else given
            as_fp32(cap)
        except (ValueError, OverflowError):
            raise ValueError(f"a cap is an integer or a float in hexadecimal, not {record!r}") from None
        return cls(cap, form)


def _tensor(cap: Cap, device: str) -> float:
    return cast(float, torch.tensor(as_fp32(cap), dtype=torch.float32, device=device))


@lru_cache(maxsize=8)
def _told_at_calls(factory: Callable[[Cap], Operator]) -> tuple[Operator, str]:
    """One operator for all calls of a process, and the parameter that takes a call's cap; TypeError without one."""
    op = factory(_BUILT_AT)
    target = op.forward if isinstance(op, torch.nn.Module) else op
    takes = list(inspect.signature(target).parameters)[1:]
    parameter = next((name for name in takes if name in _PARAMETERS), None)
    if parameter is None:
        raise TypeError("a call takes no cap")
    return op, parameter


def forms_of(candidate: Candidate, device: str, cap: Cap = 7.0) -> tuple[str, ...]:
    """The forms besides a number in which the candidate takes its cap: each asked once, of four elements."""
    forms = (TENSOR, CALL) if candidate.convention == "operator" else (TENSOR,)
    return tuple(form for form in forms if _takes(candidate, Asked(cap, form), device))


def _takes(candidate: Candidate, asked: Asked, device: str) -> bool:
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0], device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = asked.map(candidate, "inference", device)(x)
    except Exception:  # noqa: BLE001 - whatever it raises, it refuses
        return False
    return y.shape == x.shape and math.isfinite(float(y.sum()))
