"""Counterexamples as lines: written once, read again, replayed; and the lines that are kept in tests/corpus."""

from __future__ import annotations

import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from invariance.cli import main
from invariance.fuzz import corpus
from invariance.fuzz.asked import CALL, TENSOR, Asked
from invariance.fuzz.finding import Finding
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


@pytest.mark.parametrize(
    "asked", [Asked(30), Asked(30.0), Asked(0.1), Asked(2.0**-41, TENSOR), Asked(7, CALL), Asked(2**60)]
)
def test_caps_survive_as_they_were_given(asked):
    again = Asked.of_record(json.loads(json.dumps(asked.record())))
    assert again == asked
    assert type(again.cap) is type(asked.cap)


@pytest.mark.parametrize(
    "record", [None, "x", "-0x1p3", True, [1], {"tensor": "0x1p0", "more": 1}, "inf", {}]
)
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


FINDING = Finding(
    Verdict(
        Cell("k.py:f", "exact_value", "forward", "fp16", 30),
        "FA",
        FAIL,
        case='{"shape":[1],"dtype":"fp16","cap":30}',
    ),
    Asked(30),
)


def _append_many(path: Path, first: int) -> None:
    for number in range(first, first + 40):
        corpus.append(path, replace(FINDING, history=tuple(Asked(cap) for cap in range(1, 40 + number % 60))))


def test_two_campaigns_may_write_to_one_corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    writers = [threading.Thread(target=_append_many, args=(path, first)) for first in (0, 20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = path.read_text().splitlines()
    assert len(lines) == len(set(lines)) == 60
    assert all(json.loads(line)["cap"] == 30 for line in lines)


def test_a_corpus_is_looked_at_before_the_search_and_left_as_it_is(tmp_path):
    corpus.prepare(tmp_path / "new.jsonl")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old.jsonl").write_text("# mine\n\n" + json.dumps(LINE))
    corpus.prepare(tmp_path / "old.jsonl")
    os.mkfifo(tmp_path / "pipe")
    for name, content, says in (
        ("k.py", b"def f(x): ...\n", "line 1"),
        ("b", b"\xff\xfe", "is not text"),
        ("pipe", None, "regular"),
        (".", None, "is a folder"),
    ):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(corpus.NoCorpus, match=says):
            corpus.prepare(tmp_path / name)
    assert (tmp_path / "k.py").read_bytes() == b"def f(x): ...\n"


def test_a_corpus_that_fails_later_is_told_and_ends_nothing(tmp_path):
    keeper = corpus.Keeper(tmp_path / "gone" / "corpus.jsonl")
    keeper(FINDING)
    assert keeper.failure == "No such file or directory"


def test_a_line_leads_to_the_candidate_from_here(tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert replace(FINDING, spec=f"{tmp_path}/k.py:f").line()["candidate"] == "../k.py:f"
    assert replace(FINDING, spec="native").line()["candidate"] == "native"


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
    stale = {
        **LINE,
        "candidate": "planted.py:stale_from_the_third",
        "history": [1, "0x1.4p+4"],
        "expected": None,
    }
    stale |= {"cap": 2, "case": {**LINE["case"], "cap": 2}}
    other = {**LINE, "expected": ["0x2b01"]}
    for lines, status in (([LINE], 1), ([stale], 1), ([{**stale, "history": [1]}], 0), ([stale, LINE], 1)):
        (folder / "some.jsonl").write_text("# found by hand\n" + "\n".join(map(json.dumps, lines)) + "\n")
        assert main(["replay", "some.jsonl"]) == status
        printed = capsys.readouterr().out
        assert printed.count("FA exact_value") == len(lines)
        assert all(
            f"  replay   softcap-verify replay '{json.dumps(line, separators=(',', ':'))}'" in printed
            for line in lines
        )
    assert main(["replay", json.dumps(LINE), "--candidate", "native"]) == 0
    assert main(["replay", json.dumps(other), "--candidate", "native"]) == 1
    assert "the line expects ['0x2b01'], the oracle says ['0x2b00']" in capsys.readouterr().out
