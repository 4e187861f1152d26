"""Planted faults are found in a few dozen caps, each with a cap and an input that a person recognises."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from invariance.candidate import CandidateNotLoadable
from invariance.fuzz import report
from invariance.fuzz.asked import TENSOR, Asked
from invariance.fuzz.bounds import forward_bound
from invariance.fuzz.campaign import Campaign, Limits
from invariance.fuzz.rounds import Subject
from invariance.fuzz.schedule import Schedule
from strategies.campaign import CapRange
from strategies.caps import as_fp32, fp32_bits

PLANTED = Path(__file__).with_name("planted.py")
FORWARD, GRADIENT = ("forward",), ("forward", "backward")


def campaign(kernel: str, caps: int, passes: tuple[str, ...] = FORWARD, **options: object) -> Campaign:
    """A campaign over 16-bit inputs, run to its end in one child."""
    subject = Subject(f"{PLANTED}:{kernel}", dtypes=options.pop("dtypes", ("bf16",)), passes=passes)
    limits = Limits(caps=caps, timeout=options.pop("timeout", 30.0))
    run = Campaign(subject, Schedule(**options), limits)
    run.run()
    return run


@pytest.mark.parametrize(
    ("kernel", "recognised", "passes"),
    [
        ("rounds_odd_caps", lambda cap: cap > 1000 and fp32_bits(cap) & 1 and len(f"{cap:.7g}") <= 6, FORWARD),
        ("wrong_when_tiny", lambda cap: cap == 2.0**-41, FORWARD),
        ("wrong_at_powers_of_two", lambda cap: cap == 1, FORWARD),
        ("wrong_gradient_of_24_bits", lambda cap: cap == as_fp32(1.1), GRADIENT),
        ("truncates_integers", lambda cap: type(cap) is int and cap == 2049, FORWARD),
        ("truncates_to_integers", lambda cap: cap in (0.1, 0.3, 0.5, 1.5, 1.1), FORWARD),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_fault_is_found_and_made_small(kernel, recognised, passes):
    found = campaign(kernel, 48, passes, dtypes=("fp16", "bf16"))
    (finding,) = found.findings
    assert recognised(finding.asked.cap) or recognised(round(finding.asked.cap, 6))
    assert finding.verdict.cell.pass_ == passes[-1]
    assert finding.history == ()
    case = json.loads(finding.verdict.case)
    assert case["shape"] == [1]
    assert isinstance(case["values"], list)
    assert finding.expected is not None
    assert finding.verdict.mismatch.exact is not None
    assert f"cap      {finding.asked}" in str(finding)
    assert all(judged.broken == [] for rows in found.worst.values() for _, judged in rows)


def test_a_stale_cache_is_found_with_the_caps_that_it_needs():
    found = campaign("stale_from_the_third", 8)
    (finding,) = found.findings
    assert len(finding.history) == 2
    assert finding.asked.cap in (1, 2, 30)
    assert "after    caps 1, " in str(finding)
    assert finding.line()["history"] == [asked.record() for asked in finding.history]


def test_a_cap_given_as_a_tensor_is_tried_where_the_candidate_takes_one():
    found = campaign("wrong_as_a_tensor", 32)
    assert found.probe["tensors"]
    assert {finding.asked.form for finding in found.findings} == {TENSOR}


def test_one_wrong_input_of_one_range_of_caps():
    (finding,) = campaign("one_input", 80, within=CapRange(1.0, 16.0)).findings
    assert finding.asked.cap == 2
    assert json.loads(finding.verdict.case)["values"] == ["0x3fa0"]


@pytest.mark.parametrize(
    ("kernel", "says", "exponents"),
    [("dies", "SIGABRT", (20, 33)), ("hangs", "no result within", (20, 33)), ("raises", "reciprocal", (-33, -20))],
)
def test_a_candidate_that_gives_no_result_is_a_finding_with_its_cap(kernel, says, exponents):
    found = campaign(kernel, 8, timeout=1.0, within=CapRange(*(2.0**k for k in exponents)))
    (finding,) = found.findings
    assert finding.asked.cap == 2.0**31 or finding.asked.cap == 2.0**-31
    assert says in str(finding)
    assert found.caps == 8


@pytest.mark.parametrize("kernel", ["right", "right_in_fp32"])
def test_a_right_kernel_survives_and_its_worst_caps_keep_the_bound(kernel):
    found = campaign(kernel, 33, ("forward", "inference", "backward"), dtypes=("fp16", "bf16", "fp32"))
    assert found.findings == []
    assert found.complete
    assert found.caps == 33
    assert found.inputs >= 33 * 3 * (2 * 65536 + 2**18)
    for error, judged in found.worst["forward"]:
        assert 0.5 < error <= forward_bound(judged.asked.cap)
    assert {kind for kind, _ in found.schedule.rounds} == {"families", "neighbourhoods", "hypothesis"} - (
        {"hypothesis"} if len(found.schedule.rounds) < 4 else set()
    )


def test_outside_the_judged_domain_is_reported_apart():
    found = campaign("wrong_when_tiny", 8, within=CapRange(2.0**-80, 2.0**-70))
    assert found.findings == []
    assert (found.caps, found.outside) == (0, 8)
    assert found.apart
    assert report.as_json(found)["verdict"].startswith("nothing judged")


def test_every_bf16_cap_of_a_shard():
    found = campaign("right", 10**6, campaign="bf16xbf16", within=CapRange(1.0, 2.0), shard=(2, 3))
    assert found.caps == 43
    assert found.inputs == 43 * 65536
    assert all(fp32_bits(asked.asked.cap) & 0xFFFF == 0 for _, asked in found.worst["forward"])


def test_what_cannot_be_fuzzed_is_refused():
    with pytest.raises(CandidateNotLoadable, match=r"its own cap, 30\.0"):
        campaign("fixed", 1)
    with pytest.raises(CandidateNotLoadable, match="has no 'absent'"):
        campaign("absent", 1)


def test_two_campaigns_of_one_seed_judge_the_same_caps():
    first, second, other = (campaign("right", 40, seed=seed) for seed in (3, 3, 4))
    assert report.as_json(first)["totals"] == report.as_json(second)["totals"]
    assert report.as_json(first)["worst"] == report.as_json(second)["worst"]
    assert report.as_json(first)["totals"]["rounds"] != report.as_json(other)["totals"]["rounds"]


def test_an_interrupt_still_reports():
    def stop(_: Campaign) -> None:
        raise KeyboardInterrupt

    run = Campaign(Subject(f"{PLANTED}:right", dtypes=("bf16",)), Schedule(), Limits(caps=400), stop)
    run.run()
    made = report.as_json(run)
    assert run.interrupted
    assert (made["verdict"], made["complete"]) == ("incomplete", False)
    assert made["totals"]["caps"] > 0


def test_the_bound_grows_with_the_significand():
    assert forward_bound(1.5) == 0.5 + 1.5 * 2.5
    assert forward_bound(2.0) == 0.5 + 2.5 + 0.5
    assert math.isclose(forward_bound(as_fp32(1.9999)), 5.5, rel_tol=1e-4)
    assert str(Asked(2.0**-41)) == "2^-41"
