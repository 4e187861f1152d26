"""Plan and sweep on the device, device laws included, with their reports in artifacts/gpu."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from invariance.checkers import load_laws
from invariance.cli import main
from invariance.session import verify
from invariance.verdict import FAIL, NOT_APPLICABLE, PASS

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]

# What a machine may not have. Anything else that does not apply to the operator is a mistake of the plan.
NEEDS_A_SECOND_DEVICE = {"another_device", "other_current_device"}


def test_the_operator_passes_every_law_on_the_device() -> None:
    report = verify("triton", device="cuda", timeout=120, jobs=min(8, os.cpu_count() or 1))
    report.write(ROOT / "artifacts" / "gpu")
    broken = [str(verdict) for verdict in [*report.failures, *report.not_run, *report.found]]
    assert not broken, "\n\n".join(broken)
    assert report.verdict == PASS
    outside = {v.cell.law for v in report.verdicts if v.status == NOT_APPLICABLE}
    assert outside <= NEEDS_A_SECOND_DEVICE


def test_every_input_is_right_at_caps_20_and_30() -> None:
    folder = ROOT / "artifacts" / "gpu" / "sweep"
    asked = ["--candidate", "triton", "--device", "cuda", "--softcap", "20", "30", "--report", str(folder)]
    assert main(["sweep", *asked]) == 0
    assert list(folder.glob("*.json"))


def test_the_device_laws_can_fail() -> None:
    """A candidate that synchronises, and therefore can be neither queued nor captured, breaks exactly those laws."""
    spec = f"{ROOT / 'tests' / 'gpu' / 'impolite.py'}:synchronising"
    laws = sorted(name for name, law in load_laws().items() if law.device)
    report = verify(spec, device="cuda", dtype=("fp32",), softcap=(30.0,), law=laws, explore=False)
    failed = {v.cell.law for v in report.verdicts if v.status == FAIL}
    assert failed == {"no_host_synchronisation", "graph_replay"}


@pytest.mark.parametrize(
    ("attribute", "law"),
    [
        ("on_the_default_stream", "another_stream"),
        ("leaving_memory_unwritten", "poisoned_memory"),
        ("reading_before_its_input", "guarded_inputs"),
        ("remembering_its_first_input", "graph_replay"),
        ("compiling_differently", "compiled"),
        ("wrapping_past_2_31", "beyond_int32"),
    ],
)
def test_a_device_law_catches_what_it_is_for(attribute: str, law: str) -> None:
    spec = f"{ROOT / 'tests' / 'gpu' / 'impolite.py'}:{attribute}"
    report = verify(spec, device="cuda", dtype=("bf16",), softcap=(30.0,), law=(law,), explore=False)
    assert [v for v in report.failures if v.cell.law == law and v.mismatch is not None]
