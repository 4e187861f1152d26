"""What is swept: a candidate's map at one cap, dtype and pass, called through its public call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from invariance.candidate import Candidate, CandidateRaised, Map
from invariance.sweep.certificate import Key
from invariance.sweep.domain import Domain
from oracles.formats import cap_as_fp32
from oracles.tolerances import Contract
from strategies.caps import cap_text
from strategies.dtypes import TORCH, name

PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Subject:
    """A map and its domain. `y_dtype`: of forward results; `out_dtype`: of what is judged, for gradients that of x."""

    map: Map
    domain: Domain
    y_dtype: torch.dtype
    device: str

    @property
    def out_dtype(self) -> torch.dtype:
        """The dtype of the results that are judged."""
        return self.y_dtype if self.domain.pass_ == "forward" else self.domain.dtype

    def call(self, x: Tensor) -> Tensor:
        """The result for a 1-d tensor of inputs, contiguous; gradients for an upstream gradient of ones.

        The candidate may write into `x`, and give back memory that it will write again.

        Raises CandidateRaised when the candidate does, or returns another shape, dtype or device.
        """
        upstream = () if self.domain.pass_ == "forward" else (torch.ones_like(x, dtype=self.y_dtype),)
        try:
            y = self.map(x, *upstream)
        finally:
            torch.set_flush_denormal(
                False
            )  # a candidate may leave it on, and the judge would read subnormals as 0
        expected = (x.shape, self.out_dtype, x.device)
        if (y.shape, y.dtype, y.device) != expected:
            raise CandidateRaised(
                f"returned {tuple(y.shape)} {y.dtype} on {y.device} for {tuple(x.shape)} {x.dtype} on {x.device}, "
                f"where it returned {self.out_dtype} before"
            )
        return y.resolve_neg().contiguous()


def subject(candidate: Candidate, cap: float | int, dtype: str, pass_: str, device: str) -> Subject:
    """The subject of a sweep. dtype: "fp16", "bf16" or "fp32"; pass_: "forward" or "backward".

    Raises CandidateRaised when the candidate does, or returns a dtype that is neither FP32 nor that of the input.
    """
    wanted = TORCH[dtype]
    map_ = candidate.map(cap, pass_)
    y_dtype = map_.out_dtype(wanted, device)
    if y_dtype not in (wanted, torch.float32):
        raise CandidateRaised(f"returned {y_dtype} for {wanted}: a result is FP32 or of the input's dtype")
    return Subject(map_, Domain(wanted, cap_as_fp32(cap), pass_), y_dtype, device)


def key_of(subject: Subject, cap: float | int, contract: Contract) -> Key:
    """What the certificates of a subject have in common."""
    return Key(
        candidate=subject.map.candidate.name,
        cap=subject.domain.cap,
        given=cap_text(cap),
        dtype=name(subject.domain.dtype),
        pass_=subject.domain.pass_,
        out_dtype=name(subject.out_dtype),
        contract=contract.fingerprint,
        judged=contract.judges_cap(cap_as_fp32(cap)),
    )
