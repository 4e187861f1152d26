"""Every kind of failure is told as what it is, once, and its line shows it again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from invariance.cli import main
from invariance.fuzz import corpus
from invariance.fuzz.asked import Asked
from invariance.fuzz.campaign import Campaign, Limits
from invariance.fuzz.finding import UNSTEADY
from invariance.fuzz.history import PLAIN, fewer, needed
from invariance.fuzz.rounds import Subject, told
from invariance.fuzz.schedule import Schedule
from invariance.process import run_job

PLANTED = Path(__file__).with_name("planted.py")
BOTH, ALL = ("forward", "backward"), ("forward", "inference", "backward")


def campaign(
    kernel: str, caps: int, passes: tuple[str, ...] = BOTH, dtypes: tuple[str, ...] = ("bf16",)
) -> Campaign:
    run = Campaign(
        Subject(f"{PLANTED}:{kernel}", dtypes=dtypes, passes=passes), Schedule(), Limits(caps=caps)
    )
    run.run()
    return run


def fails_again(line: dict) -> bool:
    outcome = run_job(corpus.job(line, line["candidate"], "cpu", 30.0))
    assert outcome.kind == "done", outcome.failure
    return outcome.value[0].failed


def test_a_cap_in_a_global_is_found_with_the_law_that_two_operators_break():
    found = campaign("KeptInAGlobal", 2, ALL)
    assert [(f.verdict.cell.law, f.verdict.cell.pass_) for f in found.findings] == [
        ("interleaved_caps", "forward"),
        ("interleaved_caps", "backward"),
    ]
    assert {(finding.asked.cap, finding.history) for finding in found.findings} == {(1.0, ())}
    assert all(fails_again(finding.line()) for finding in found.findings)
    assert not fails_again({**found.findings[0].line(), "candidate": "native"})


@pytest.mark.parametrize(
    ("kernel", "says"),
    [
        ("WrongBesideItsDouble", "cap 1, after operators of cap 2:"),
        ("FourPlaces", "cap 1, after operators of caps 2, 0.5:"),
    ],
)
def test_what_other_operators_do_to_one_is_found_and_they_are_named(kernel, says):
    (finding,) = campaign(kernel, 2, ("forward",)).findings
    assert (finding.verdict.cell.law, finding.asked.cap) == ("interleaved_caps", 1.0)
    assert says in str(finding)
    assert fails_again(finding.line())


def test_a_gradient_that_reads_the_cap_of_the_last_call_is_found():
    (finding,) = campaign("GradientKeptInAGlobal", 2, ALL).findings
    assert (finding.verdict.cell.law, finding.verdict.cell.pass_) == ("interleaved_caps", "backward")


def test_the_same_cap_built_twice_is_made_small_merged_and_replays():
    found = campaign("WrongWhenBuiltTwice", 6, ("forward",), ("fp16", "bf16"))
    (finding,) = found.findings
    assert finding.times == 6
    assert (finding.asked, finding.history) == (Asked(1.0), (Asked(1.0),))
    assert fails_again(finding.line())
    assert not fails_again({**finding.line(), "history": []})


def test_a_history_of_one_cap_is_found_among_many():
    (finding,) = campaign("WrongAfterAHugeCap", 32, ("forward",)).findings
    assert len(finding.history) == 1
    assert finding.history[0].cap > 2.0**40
    assert fails_again(finding.line())


HISTORY = tuple(Asked(float(cap)) for cap in range(100, 164))


@pytest.mark.parametrize("at", [(0,), (63,), (5, 40), (0, 31, 63)])
def test_a_history_keeps_only_what_it_needs(at):
    wanted = {HISTORY[place] for place in at}
    tried = []

    def fails(history):
        tried.append(history)
        return wanted <= set(history)

    tail = needed(fails, HISTORY)
    assert tail is not None
    assert set(fewer(fails, tail, Asked(3.0))) == wanted
    assert len(tried) < 90


def test_a_history_of_plain_caps_is_made_short_too():
    assert fewer(lambda history: PLAIN[2] in history, HISTORY[:4], Asked(3.0)) == (PLAIN[2],)
    assert needed(lambda _: False, HISTORY) is None
    assert needed(lambda _: True, ()) is None
    assert len(fewer(lambda history: len(history) > 20, HISTORY, Asked(3.0), tried=3)) <= len(HISTORY)


@pytest.mark.parametrize(
    ("kernel", "head", "line_pass"),
    [
        ("RefusesLargeCaps", "FAIL refused · cap 128 · ", "forward"),
        ("LeavesInItsConstructor", "FAIL refused · cap 128 · ", "forward"),
        ("interrupts", "FAIL raised · forward · fp16 · cap 128 · ", "forward"),
        ("RefusesOddCaps", "FAIL refused · cap 1.1 · ", "forward"),
        ("RaisesInItsGradient", "FAIL raised · backward · fp16 · cap 1 · ", "backward"),
        ("no_16_bits", "FAIL raised · forward · fp16 · cap 1 · ", "forward"),
    ],
)
def test_what_gives_no_result_is_no_wrong_value_and_one_failure(kernel, head, line_pass):
    (finding,) = campaign(kernel, 40, BOTH, ("fp16", "bf16", "fp32")).findings
    assert str(finding).startswith(head)
    assert "elements" not in str(finding).splitlines()[1]
    assert finding.times > 10
    assert finding.line()["pass"] == line_pass
    assert fails_again(finding.line())


def test_messages_that_differ_in_numbers_and_dtypes_are_one():
    assert told("ValueError: cap 1.5e-3 of torch.float16, Half") == told(
        "ValueError: cap 0x1.8p3 of torch.bfloat16, Half"
    )
    assert told("ValueError: a") != told("TypeError: a")


def test_a_kernel_that_is_not_the_same_twice_is_one_finding_and_its_line_shows_it(tmp_path, capsys):
    found = campaign("noisy", 12, ALL, ("fp16", "bf16"))
    (finding,) = found.findings
    assert (finding.kind, finding.verdict.cell.law, finding.asked.cap) == (UNSTEADY, "repeat", 1.0)
    assert finding.times > 12
    assert finding.line()["attempts"] > 1
    (tmp_path / "c.jsonl").write_text("")
    corpus.append(tmp_path / "c.jsonl", finding)
    assert [main(["replay", str(tmp_path / "c.jsonl")]) for _ in range(3)] == [1, 1, 1]
    assert main(["replay", str(tmp_path / "c.jsonl"), "--candidate", "native"]) == 0
    assert "16 times; it need not come each time" in capsys.readouterr().out


def test_noise_hides_no_result_that_is_always_wrong():
    kinds = {(f.kind, f.verdict.cell.law) for f in campaign("noisy_and_wrong", 6, ("forward",)).findings}
    assert ("wrong", "exact_value") in kinds


def test_what_comes_a_single_time_is_told_and_tried_again_by_its_line(tmp_path, monkeypatch, capsys):
    shutil.copy(PLANTED, tmp_path)
    monkeypatch.chdir(tmp_path)
    subject = Subject("planted.py:wrong_once", dtypes=("bf16",), passes=("forward",))
    run = Campaign(subject, Schedule(), Limits(caps=8))
    run.run()
    (finding,) = run.findings
    assert (finding.kind, finding.history, finding.times) == (UNSTEADY, (), 1)
    assert str(finding).startswith("FAIL not the same twice · FA exact_value · forward · bf16 · cap ")
    assert main(["replay", json.dumps(finding.line())]) == 0
    assert capsys.readouterr().out.startswith(
        "NOT SEEN in 16 attempts · FA exact_value · forward · bf16 · cap "
    )
    Path("c.jsonl").write_text(json.dumps(finding.line()))
    assert main(["replay", "c.jsonl"]) == 0
    assert "c.jsonl: 1 case: 1 not seen" in capsys.readouterr().out
    (tmp_path / "planted.once").unlink()
    assert main(["replay", json.dumps(finding.line())]) == 1


def test_what_is_seldom_wrong_is_shown_by_many_calls_and_by_its_line():
    found = campaign("wrong_now_and_then", 120, ("forward",))
    (finding,) = found.findings
    assert (finding.kind, finding.verdict.cell.law) == (UNSTEADY, "repeat")
    assert fails_again(finding.line())


def test_what_is_kept_for_a_shape_is_made_one_element():
    found = campaign("keeps_the_first_cap_of_a_shape", 3, ALL)
    for finding in found.findings:
        assert len(finding.history) == 1
        assert finding.line()["case"]["shape"] == [1]
        assert fails_again(finding.line())
    assert {f.verdict.cell.pass_ for f in found.findings} >= {"forward"}


def test_what_needs_a_whole_grid_shows_an_element_of_it():
    (finding,) = campaign("wrong_in_large_calls", 1, ("forward",), ("fp32",)).findings
    assert "in the call of a whole grid: " in str(finding)
    for row in ("index", "input", "got", "exact"):
        assert f"\n  {row} " in str(finding)


def test_what_was_seen_once_is_one_finding_whatever_the_law():
    one = campaign("noisy", 1, ("forward",)).findings[0]
    other = replace(
        one, asked=Asked(3.0), verdict=replace(one.verdict, cell=replace(one.verdict.cell, law="grad_mode"))
    )
    assert one.same(other)


def test_a_cap_that_kills_the_first_questions_is_found_and_the_campaign_goes_on():
    for kernel, cap, how, passes in (
        ("DiesNearSeven", 7.0, "SIGABRT", BOTH),
        ("DiesAtThirty", 30.0, "exited with status 0", ("forward",)),
    ):
        found = campaign(kernel, 4, passes)
        (finding,) = found.findings
        assert (finding.kind, finding.asked) == ("crashed", Asked(cap))
        assert how in str(finding)
        assert found.caps >= 5
        outcome = run_job(corpus.job(finding.line(), finding.line()["candidate"], "cpu", 30.0))
        assert outcome.kind == "crashed"


def test_what_dies_beside_another_operator_has_a_line_that_dies_too():
    (finding,) = campaign("DiesBesideItsDouble", 2, ("forward",)).findings
    assert (finding.kind, finding.verdict.cell.law) == ("crashed", "interleaved_caps")
    outcome = run_job(corpus.job(finding.line(), finding.line()["candidate"], "cpu", 30.0))
    assert outcome.kind == "crashed"
