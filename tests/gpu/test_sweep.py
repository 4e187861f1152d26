"""The sweep on a device: both engines on ranges at every seam, planted errors, and the command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from invariance.candidate import Candidate, load
from invariance.cli import main
from invariance.sweep import document
from invariance.sweep.certificate import Certificate
from invariance.sweep.domain import encode
from invariance.sweep.subject import key_of, subject
from invariance.sweep.torch_engine import TorchEngine
from oracles.rounding import from_bits, neighbour, to_bits
from oracles.tolerances import load_contract

pytestmark = pytest.mark.gpu
DEVICE = "cuda:0"
WIDTH = 1 << 20


def part(kind: type[TorchEngine], candidate: Candidate, pass_: str, lo: int) -> Certificate:
    target = subject(candidate, 30.0, "fp32", pass_, DEVICE)
    return kind(target, load_contract()).sweep(key_of(target, 30.0, load_contract()), lo, lo + WIDTH)


def without_escalations(certificate: Certificate) -> str:
    """Two FP64 libraries leave different inputs undecided."""
    return re.sub(r'"escalated": \{\s*"count": \d+', "", document.dumps(certificate))


@pytest.mark.parametrize("spec", ["triton", "native-fp32"])
@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_both_engines_give_one_certificate_at_the_seams(spec: str, pass_: str) -> None:
    triton_engine = pytest.importorskip("invariance.sweep.triton_engine", reason="Triton is optional")
    candidate = load(spec, DEVICE)
    domain = subject(candidate, 30.0, "fp32", pass_, DEVICE).domain
    zones = {
        start // WIDTH * WIDTH
        for i, (start, zone, _) in enumerate(domain.starts)
        if zone != domain.starts[i - 1][1]
    }
    for lo in sorted(zones):
        fused, plain = (
            part(kind, candidate, pass_, lo) for kind in (triton_engine.TritonEngine, TorchEngine)
        )
        assert without_escalations(fused) == without_escalations(plain), hex(lo)


@pytest.mark.parametrize("x", [1e-38, 1e-20, 0.01, 3.0, -27.0, 250.0, 600.0, 1e20])
def test_the_fused_verifier_names_one_result_off_by_one(x: float) -> None:
    triton_engine = pytest.importorskip("invariance.sweep.triton_engine", reason="Triton is optional")
    pattern = encode(float(torch.tensor(x)), torch.float32)
    place, native = from_bits(torch.tensor(pattern), torch.float32).to(DEVICE), load("native-fp32", DEVICE)

    def planted(cap: float) -> object:
        op = native.factory(cap)
        return lambda t: torch.where(to_bits(t) == to_bits(place), neighbour(op(t), 1), op(t))

    lo = (pattern & 0x7FFFFFFF) // WIDTH * WIDTH
    candidate = Candidate("planted", planted, "operator")  # type: ignore[arg-type]  # a callable on tensors
    found = part(triton_engine.TritonEngine, candidate, "forward", lo)
    assert found.counts["oddness_breaks"].first == (pattern & 0x7FFFFFFF,)


def test_a_whole_fp32_domain_by_the_command(tmp_path: Path) -> None:
    arguments = ["--softcap", "30", "--dtype", "fp32", "--device", DEVICE, "--report", str(tmp_path)]
    assert main(["sweep", "--candidate", "registry", *arguments]) == 0
    for pass_ in ("forward", "backward"):
        found = document.read(tmp_path / f"{pass_}-fp32-30.cert.json")
        assert found.complete
        assert found.inputs == 1 << 32
        assert found.ok
