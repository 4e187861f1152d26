"""A cap as a candidate is given it: a Python number, or where the candidate takes one a 0-d FP32 tensor."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, cast

import torch

from invariance.candidate import Candidate, CandidateRaised, Map
from strategies.caps import Cap, as_fp32
from strategies.simplest import spell

NUMBER, TENSOR = "number", "tensor"


@dataclass(frozen=True)
class Asked:
    """A cap and its form, "number" (an int stays an int) or "tensor"."""

    cap: Cap
    form: str = NUMBER

    def __str__(self) -> str:
        return spell(self.cap) if self.form == NUMBER else f"tensor({spell(self.cap)})"

    def map(self, candidate: Candidate, pass_: str, device: str) -> Map:
        """The candidate at this cap; raises CandidateRaised when its constructor does."""
        if self.form == NUMBER:
            return candidate.map(self.cap, pass_)
        given = cast(float, torch.tensor(as_fp32(self.cap), dtype=torch.float32, device=device))
        try:
            op = candidate.factory(given)
        except Exception as error:
            raise CandidateRaised(f"{type(error).__name__} for a cap given as a tensor: {error}") from error
        return Map(candidate, op, self.cap, pass_)

    def record(self) -> Any:
        """As JSON: an int, a float in hexadecimal, or {"tensor": that}."""
        text = self.cap if isinstance(self.cap, int) else self.cap.hex()
        return text if self.form == NUMBER else {TENSOR: text}

    @classmethod
    def of_record(cls, record: Any) -> Asked:
        """The cap whose `record` this is; ValueError for any other."""
        form = TENSOR if isinstance(record, dict) and set(record) == {TENSOR} else NUMBER
        given = record[TENSOR] if form == TENSOR else record
        try:
            cap = float.fromhex(given) if isinstance(given, str) else given
            as_fp32(cap)
        except (ValueError, OverflowError):
            raise ValueError(f"a cap is an integer or a float in hexadecimal, not {record!r}") from None
        return cls(cap, form)


def accepts_tensors(candidate: Candidate, device: str) -> bool:
    """Whether the candidate takes a 0-d tensor for a cap: asked once, of four elements."""
    x = torch.tensor([-1.0, 0.0, 1.0, 2.0], device=device)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = Asked(30.0, TENSOR).map(candidate, "inference", device)(x)
    except Exception:  # noqa: BLE001 - whatever it raises, it refuses
        return False
    return y.shape == x.shape and math.isfinite(float(y.sum()))
