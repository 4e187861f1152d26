"""Sweeps in this process: a shard of any domain, or a whole 16-bit one."""

from __future__ import annotations

import importlib
import importlib.util

import torch

from invariance.candidate import Candidate, load
from invariance.sweep.certificate import Certificate
from invariance.sweep.subject import key_of, subject
from invariance.sweep.torch_engine import Announce, TorchEngine, silent
from oracles.tolerances import Contract, load_contract


def sweep(
    spec: str | Candidate,
    cap: float | int,
    dtype: str = "fp32",
    pass_: str = "forward",
    device: str = "cpu",
    shard: tuple[int, int] = (1, 1),
    contract: Contract | None = None,
) -> Certificate:
    """The certificate of shard K of N of a candidate's domain; with (1, 1) of all of it.

    dtype: "fp16", "bf16" or "fp32"; pass_: "forward", or "backward" with an upstream gradient of ones. Raises
    CandidateNotLoadable, CandidateRaised, and ValueError for a shard that is not there.
    """
    candidate = load(spec, device) if isinstance(spec, str) else spec
    target = subject(candidate, cap, dtype, pass_, device)
    return magnitudes(candidate, cap, dtype, pass_, device, *target.domain.shard(*shard), contract=contract)


def magnitudes(
    candidate: Candidate,
    cap: float | int,
    dtype: str,
    pass_: str,
    device: str,
    lo: int,
    hi: int,
    *,
    contract: Contract | None = None,
    announce: Announce = silent,
) -> Certificate:
    """The certificate of magnitudes lo to hi - 1, multiples of 2**16 (2**15 for 16-bit dtypes)."""
    contract = contract or load_contract()
    target = subject(candidate, cap, dtype, pass_, device)
    engine = engine_for(device, dtype)(target, contract)
    return engine.sweep(key_of(target, cap, contract), lo, hi, announce)


def certify_16bit(
    candidate: Candidate, cap: float | int, dtype: str, pass_: str, device: str = "cpu"
) -> Certificate:
    """The certificate of all 65,536 inputs of "fp16" or "bf16": a few tens of milliseconds.

    Raises ValueError for another dtype, CandidateRaised when the candidate does.
    """
    if dtype not in ("fp16", "bf16"):
        raise ValueError(f"certify_16bit takes fp16 and bf16, not {dtype!r}")
    return sweep(candidate, cap, dtype, pass_, device)


def engine_for(device: str, dtype: str) -> type[TorchEngine]:
    """The fused Triton engine for FP32 on a GPU, torch operations elsewhere. Triton is optional: imported on demand."""
    if dtype != "fp32" or torch.device(device).type != "cuda" or importlib.util.find_spec("triton") is None:
        return TorchEngine
    engine: type[TorchEngine] = importlib.import_module("invariance.sweep.triton_engine").TritonEngine
    return engine


__all__ = ["certify_16bit", "engine_for", "magnitudes", "sweep"]
