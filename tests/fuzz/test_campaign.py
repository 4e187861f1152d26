"""Planted faults are found in a few dozen caps, each with a cap and an input that a person recognises."""

from __future__ import annotations

import json
import math
from itertools import islice
from pathlib import Path

import pytest

from invariance.candidate import CandidateNotLoadable
from invariance.fuzz import findings as explaining
from invariance.fuzz import report, rounds
from invariance.fuzz.again import shrunk_cap
from invariance.fuzz.asked import CALL, TENSOR, Asked
from invariance.fuzz.bounds import forward_bound, gradient_bound
from invariance.fuzz.campaign import Campaign, Limits
from invariance.fuzz.rounds import Broken, Subject
from invariance.fuzz.schedule import Schedule
from invariance.process import Job, Outcome
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
        (
            "rounds_odd_caps",
            lambda cap: cap > 1000 and fp32_bits(cap) & 1 and len(f"{cap:.7g}") <= 6,
            FORWARD,
        ),
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
    assert found.probe["forms"] == (TENSOR,)
    assert {finding.asked.form for finding in found.findings} == {TENSOR}


def test_a_cap_told_at_the_call_is_tried_where_an_operator_takes_one():
    found = campaign("ReadAsBf16AtTheCall", 32)
    assert CALL in found.probe["forms"]
    assert {finding.asked.form for finding in found.findings} == {CALL}
    assert "cap      1.1 at the call" in str(found.findings[0])


def test_a_cause_that_does_not_care_how_the_cap_is_given_is_one_finding():
    (finding,) = campaign("stale_from_the_third", 32).findings
    assert finding.times > 1
    assert finding.asked.form == "number"


def test_a_slow_candidate_is_no_hang_and_no_cap_is_left_out():
    found = campaign("slow", 10, timeout=0.5)
    assert found.findings == []
    assert found.caps == 10
    (finding,) = campaign("slow_and_wrong", 2, timeout=2.0).findings
    assert explaining.FLAKY not in str(finding)
    assert json.loads(finding.verdict.case)["shape"] == [1]


@pytest.mark.parametrize(("low", "high"), [(30.0, 30.0), (1.0, 1.0000006)])
def test_a_range_of_few_caps_has_an_end(low, high):
    found = campaign("right", 400, within=CapRange(as_fp32(low), as_fp32(high)))
    judged = {fp32_bits(cap) for _, cap in found.schedule._seen}
    assert judged == set(range(fp32_bits(low), fp32_bits(high) + 1))
    assert len(judged) <= found.caps < 200
    assert found.complete


def test_one_wrong_input_of_one_range_of_caps():
    (finding,) = campaign("one_input", 80, within=CapRange(1.0, 16.0)).findings
    assert finding.asked.cap == 2
    assert json.loads(finding.verdict.case)["values"] == ["0x3fa0"]


@pytest.mark.parametrize(
    ("kernel", "says", "exponents"),
    [
        ("dies", "SIGABRT", (20, 33)),
        ("hangs", "no result within", (20, 33)),
        ("raises", "reciprocal", (-33, -20)),
    ],
)
def test_a_candidate_that_gives_no_result_is_a_finding_with_its_cap(kernel, says, exponents):
    found = campaign(kernel, 8, timeout=1.0, within=CapRange(*(2.0**k for k in exponents)))
    (finding,) = found.findings
    assert finding.asked.cap == 2.0**31 or finding.asked.cap == 2.0**-31
    assert says in str(finding)
    assert found.caps == 8


def test_a_candidate_that_exits_is_one_finding_and_the_other_caps_go_on():
    found = campaign("exits", 12)
    (finding,) = found.findings
    assert finding.asked.cap == 128
    assert "SystemExit: 3" in str(finding)
    assert found.caps == 12


@pytest.mark.parametrize("low", [1e-45, 3e38])
def test_caps_at_the_ends_of_fp32_are_judged_apart_whatever_lies_beside_them(low):
    found = campaign(
        "one_off", 8, ("forward", "inference"), within=CapRange(as_fp32(low), as_fp32(1.13 * low))
    )
    assert found.caps == 0
    assert found.outside >= 1
    subject = Subject(f"{PLANTED}:one_off", dtypes=("bf16",), passes=("forward",))
    broken = Broken("exact_value", "forward", "bf16", Asked(as_fp32(low)))
    seen = shrunk_cap(subject, broken, found.schedule.within)
    assert seen is not None
    assert seen.asked.cap in found.schedule.within


def test_a_child_whose_device_is_lost_says_so_and_ends(monkeypatch):
    ended, told = [], []

    def lost(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")

    monkeypatch.setattr(rounds.torch, "zeros", lost)
    monkeypatch.setattr(rounds.process, "announce", told.append)
    monkeypatch.setattr(rounds.os, "_exit", ended.append)
    rounds._end_if_poisoned(Subject("native", "cuda"), Asked(30))
    assert ended == [rounds.POISONED]
    job = Job("m:f", {"caps": [Asked(20), Asked(30), Asked(50)]}, 1.0)
    run = Campaign(Subject("native"), Schedule(), Limits())
    taken = []
    monkeypatch.setattr(run, "_take", taken.append)
    run.receive(Outcome(job, None, "gone", "crashed", told[0], 1.0, "the process exited with status 70"))
    (broken,) = taken[0].broken
    assert (broken.asked, broken.kind) == (Asked(30), "crashed")
    assert broken.reason == (
        "the device's context was lost: RuntimeError: CUDA error: an illegal memory access was encountered"
    )
    assert run._left == [[Asked(50)], [Asked(20)]]


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
    assert [finding.asked.cap for finding in found.apart] == [2.0**-70]
    assert report.as_json(found)["verdict"] == "found outside the judged domain"


def test_every_bf16_cap_of_a_shard():
    found = campaign("right", 10**6, campaign="bf16xbf16", within=CapRange(1.0, 2.0), shard=(2, 3))
    assert found.caps == 43
    assert found.complete
    assert not campaign("right", 5, campaign="bf16xbf16", within=CapRange(1.0, 2.0)).complete
    assert found.inputs == 43 * 65536
    assert all(fp32_bits(asked.asked.cap) & 0xFFFF == 0 for _, asked in found.worst["forward"])


def test_what_cannot_be_fuzzed_is_refused():
    with pytest.raises(CandidateNotLoadable, match="its own cap, 30:"):
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


def test_an_interrupt_of_an_explanation_keeps_the_failure(monkeypatch):
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(explaining.Explainer, "explain", stop)
    run = campaign("truncates_to_integers", 400)
    assert run.interrupted
    assert report.as_json(run)["verdict"] == "incomplete, found"
    assert "interrupted before it was looked at again" in str(run.findings[0])
    assert run.findings[0].line()["case"]["cap"] == run.findings[0].asked.cap


def test_what_is_worst_is_the_largest_share_of_the_bound_and_a_cap_has_one_row():
    found = campaign("right_in_fp32", 64, dtypes=("fp16",))
    rows = [judged for _, judged in found.worst["forward"]]
    shares = [judged.share("forward") for judged in rows]
    assert shares == sorted(shares, reverse=True)
    assert len({as_fp32(judged.asked.cap) for judged in rows}) == len(rows) == 16
    assert {as_fp32(cap) for _, cap in found.schedule.worst} <= {as_fp32(j.asked.cap) for j in rows}


def test_the_gradient_bound_holds_for_the_sum_that_it_bounds():
    for tanh_ulps in (1.0, 1.5, 2.0, 5.0):
        for step in range(1, 2000):
            z = step / 200
            t = math.tanh(z)
            square, rest = t * t, 1 - t * t
            parts = 2 * t * tanh_ulps * _ulp(t) + 2 * z * t * rest + _ulp(square) / 2 + rest
            assert parts + (_ulp(rest) / 2 if square < 0.5 else 0) < gradient_bound(tanh_ulps)


def _ulp(value: float) -> float:
    """In units of 2^-24, of FP32."""
    return 2.0 ** (math.frexp(value)[1])


def test_the_bound_grows_with_the_significand():
    assert forward_bound(1.5) == 0.5 + 1.5 * 2.5
    assert forward_bound(2.0) == 0.5 + 2.5 + 0.5
    assert math.isclose(forward_bound(as_fp32(1.9999)), 5.5, rel_tol=1e-4)
    assert str(Asked(2.0**-41)) == "2^-41"


def test_the_first_minute_has_an_interval_of_everyday_caps() -> None:
    caps = [a.cap for round_ in islice(Schedule(), 60) for a in round_]
    assert len(caps) < 1500
    for value in (11.0, 48.0, 97.0):
        assert any(0.998 * value <= cap <= 1.002 * value for cap in caps)


def test_an_interval_of_everyday_caps_is_found():
    (finding,) = campaign("wrong_near_48", 240, within=CapRange(32.0, 64.0)).findings
    assert finding.asked.cap == 48.0


def test_the_sources_count_the_caps_that_were_judged():
    found = campaign("right", 30)
    assert found.drawn.total() == found.caps == 30
    stopped = campaign("right", 3)
    assert stopped.drawn.total() == 3


def test_a_campaign_of_all_bf16_caps_begins_everywhere():
    caps = Schedule("bf16xbf16").every[:16]
    assert sum(cap < 1 for cap in caps) == 8
    assert max(caps) > 2.0**40
