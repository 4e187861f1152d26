"""Plan and sweeps on the device, device laws included, in one report in artifacts/gpu."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from invariance.checkers import load_laws
from invariance.report.model import Report
from invariance.session import verify
from invariance.verdict import FAIL, NOT_APPLICABLE, PASS

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]

# What a machine may not have, and what the operator is not. Anything else that does not apply is a mistake of the plan.
NEEDS_A_SECOND_DEVICE = {"another_device", "other_current_device"}
NEEDS_A_MODULE = {"model_dtype"}
NEEDS_THE_INTERPRETER = {"cap_resolution", "every_configuration", "far_offsets", "program_order"}


@pytest.fixture(scope="module")
def report() -> Report:
    made = verify("triton", device="cuda", timeout=120, jobs=min(8, os.cpu_count() or 1))
    made.write(ROOT / "artifacts" / "gpu")
    return made


def test_the_operator_passes_every_law_on_the_device(report: Report) -> None:
    broken = [str(verdict) for verdict in [*report.failures, *report.not_run, *report.found]]
    assert not broken, "\n\n".join(broken)
    assert report.verdict == PASS
    outside = {v.cell.law for v in report.verdicts if v.status == NOT_APPLICABLE}
    assert outside <= NEEDS_A_SECOND_DEVICE | NEEDS_A_MODULE | NEEDS_THE_INTERPRETER


def test_every_input_is_right_at_caps_20_and_30(report: Report) -> None:
    found = {(c["dtype"], c["pass"], c["softcap"]["given"]): c for c in report.certificates}
    asked = [(*key, cap) for key in product(("fp16", "bf16", "fp32"), ("forward", "backward")) for cap in ("20", "30")]
    assert sorted(found) == sorted(asked)
    for (dtype, _, _), certificate in found.items():
        assert certificate["complete"]
        assert certificate["counts"]["violations"]["count"] == 0
        assert certificate["inputs"] == (1 << 32 if dtype == "fp32" else 1 << 16)


def test_the_device_laws_can_fail() -> None:
    """A candidate that synchronises, and therefore can be neither queued nor captured, breaks exactly those laws."""
    spec = f"{ROOT / 'tests' / 'gpu' / 'impolite.py'}:synchronising"
    laws = sorted(name for name, law in load_laws().items() if law.device and "fp32" in law.dtypes)
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
