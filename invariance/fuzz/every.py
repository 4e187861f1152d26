"""All 2^32 FP32 inputs of the forward pass at a cap, on an accelerator, for what a campaign asks.

The sweep's engine does the work. A certificate would settle the worst result of each binade and every rounding exactly,
which takes the host longer than the device takes for the inputs; here the errors are FP64's, to a part in 2^20.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from invariance.candidate import Candidate
from invariance.sweep.api import engine_for
from invariance.sweep.certificate import Certificate, Found
from invariance.sweep.subject import key_of, subject
from oracles.tolerances import load_contract


@dataclass(frozen=True)
class Every:
    """What a sweep saw. error, at: the worst result that is right, in FP32 ulp, and its input; wrong: how many are not,
    and the magnitudes of the first few.
    """

    inputs: int
    flushed: int
    escalated: int
    error: float
    at: int
    wrong: int
    first: tuple[int, ...]


def every_fp32(candidate: Candidate, cap: float | int, device: str) -> Every:
    """Every FP32 input of the forward pass; raises CandidateRaised when the candidate does."""
    contract = load_contract()
    target = subject(candidate, cap, "fp32", "forward", device)
    engine: Any = engine_for(device, "fp32")(target, contract)
    key, size = key_of(target, cap, contract), target.domain.size
    if not hasattr(engine, "scan") or target.out_dtype != torch.float32:
        return _of(engine.sweep(key, 0, size), 0, -1.0, 0)
    tally = engine.tally()
    try:
        with torch.cuda.device(device):
            tiles, lists = engine.scan(tally, 0, size)
    except engine.unsuited:
        return _of(engine.sweep(key, 0, size), 0, -1.0, 0)
    normal = (lists.dirty == 0) & (torch.from_numpy(tiles.bin).to(device) > 0)
    top = int(torch.where(normal, lists.key, -1.0).argmax())
    flushed = 2 * int(lists.flushed[lists.dirty == 0].sum())
    return _of(
        tally.certificate(key, target.domain, 0, size), flushed, float(lists.key[top]), int(lists.at[top])
    )


def _of(certificate: Certificate, flushed: int, error: float, at: int) -> Every:
    """What the certificate holds, of all inputs or of those that are unusual, and what is known of the others."""
    worst, wrong = certificate.worst, certificate.counts.get("violations", Found())
    if not wrong.count and worst is not None and worst.error > error:
        error, at = worst.error, worst.pattern
    first = tuple(sorted({pattern & (certificate.sign - 1) for pattern in wrong.first}))
    counts = certificate.count("flushed") + flushed, certificate.count("escalated")
    return Every(certificate.inputs, *counts, max(error, 0.0), at, wrong.count, first)
