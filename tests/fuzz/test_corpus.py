"""Counterexamples as lines: written once, read again, replayed; and the lines that are kept in tests/corpus."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from invariance.cli import main
from invariance.fuzz import corpus
from invariance.fuzz.asked import TENSOR, Asked
from invariance.fuzz.findings import Finding
from invariance.process import run_job
from invariance.verdict import FAIL, Cell, Verdict

HERE = Path(__file__).parent
KEPT = sorted((HERE.parent / "corpus").glob("*.jsonl"))
LINES = [line for path in KEPT for line in path.read_text().splitlines() if line and not line.startswith("#")]
LINE = {
    "law": "exact_value",
    "candidate": "planted.py:wrong_when_tiny",
    "pass": "forward",
    "cap": "0x1p-41",
    "history": [],
    "case": {"shape": [1], "dtype": "bf16", "cap": 2.0**-41, "values": ["0x3f80"]},
    "expected": ["0x2b00"],
    "out_dtype": "bf16",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(HERE / "planted.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def judged(line: dict, spec: str):
    outcome = run_job(corpus.job(line, spec, "cpu", 30.0))
    assert outcome.kind == "done", outcome.failure
    return outcome.value[0]


@pytest.mark.parametrize("text", LINES, ids=lambda text: json.loads(text)["candidate"].partition(":")[2])
def test_kept_counterexamples_fail_where_they_were_found_and_nowhere_else(text):
    line = json.loads(text)
    corpus.check(line)
    assert line["expected"]
    found = judged(line, str(HERE.parents[1] / line["candidate"]))
    assert found.failed
    assert found.mismatch is not None
    assert found.reason is None
    right = judged(line, "native")
    assert not right.failed, str(right)


def test_there_are_kept_counterexamples_of_each_kind():
    kept = [json.loads(text) for text in LINES]
    assert any(line["history"] for line in kept)
    assert any(type(line["cap"]) is int for line in kept)
    assert {line["pass"] for line in kept} == {"forward", "backward"}
    assert len({line["candidate"] for line in kept}) >= 6


@pytest.mark.parametrize("asked", [Asked(30), Asked(30.0), Asked(0.1), Asked(2.0**-41, TENSOR), Asked(2**60)])
def test_caps_survive_as_they_were_given(asked):
    again = Asked.of_record(json.loads(json.dumps(asked.record())))
    assert again == asked
    assert type(again.cap) is type(asked.cap)


@pytest.mark.parametrize("record", [None, "x", "-0x1p3", True, [1], {"tensor": "0x1p0", "more": 1}, "inf", {}])
def test_what_is_no_cap_is_refused(record):
    with pytest.raises(ValueError, match="a cap is"):
        Asked.of_record(record)


def test_a_line_is_written_once_and_corpora_merge_by_concatenation(tmp_path):
    case = '{"shape":[1],"dtype":"fp16","cap":30,"values":["0x3c00"]}'
    verdict = Verdict(Cell("k.py:f", "exact_value", "forward", "fp16", 30), "FA", FAIL, case=case)
    finding = Finding(verdict, Asked(30), (Asked(1.0), Asked(20)), ("0x3c00",), "fp16")
    path = tmp_path / "corpus.jsonl"
    for _ in range(2):
        corpus.append(path, finding)
    (text,) = path.read_text().splitlines()
    line = json.loads(text)
    corpus.check(line)
    assert line["history"] == ["0x1.0000000000000p+0", 20]
    assert (line["cap"], line["case"]["cap"], line["expected"]) == (30, 30, ["0x3c00"])
    path.write_text(text)  # without an end of line, as after a concatenation by hand
    corpus.append(path, Finding(verdict, Asked(30)))
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cap": "0x1p-40"}, "its case's is"),
        ({"cap": 1}, "its case's is"),
        ({"cap": None}, "a cap is"),
        ({"history": 3}, "history is a list"),
        ({"history": ["nan"]}, "a cap is"),
        ({"expected": "0x1"}, "expected is a list"),
        ({"out_dtype": "fp8"}, "out_dtype is 'fp8'"),
    ],
)
def test_a_line_that_cannot_be_judged_is_refused(folder, capsys, change, says):
    assert main(["replay", json.dumps({**LINE, **change})]) == 2
    assert says in capsys.readouterr().err


def test_a_corpus_replays_with_its_history_and_its_bits(folder, capsys):
    stale = {**LINE, "candidate": "planted.py:stale_from_the_third", "history": [1, "0x1.4p+4"], "expected": None}
    stale |= {"cap": 2, "case": {**LINE["case"], "cap": 2}}
    other = {**LINE, "expected": ["0x2b01"]}
    for lines, status in (([LINE], 1), ([stale], 1), ([{**stale, "history": [1]}], 0), ([stale, LINE], 1)):
        (folder / "some.jsonl").write_text("# found by hand\n" + "\n".join(map(json.dumps, lines)) + "\n")
        assert main(["replay", "some.jsonl"]) == status
        assert capsys.readouterr().out.count("FA exact_value") == len(lines)
    assert main(["replay", json.dumps(LINE), "--candidate", "native"]) == 0
    assert main(["replay", json.dumps(other), "--candidate", "native"]) == 1
    assert "the line expects ['0x2b01'], the oracle says ['0x2b00']" in capsys.readouterr().out
