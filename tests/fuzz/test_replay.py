"""A corpus replayed: each line is judged or told of by its number, with cap and history, in the time that it had."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from invariance.cli import main
from invariance.fuzz import corpus
from invariance.fuzz.asked import Asked
from invariance.fuzz.finding import Finding
from invariance.fuzz.rounds import LATE
from invariance.verdict import FAIL, Cell, Verdict

LINE = {
    "version": 1,
    "law": "exact_value",
    "candidate": "planted.py:wrong_when_tiny",
    "pass": "forward",
    "cap": "0x1p-41",
    "history": [],
    "case": {"shape": [1], "dtype": "bf16", "cap": 2.0**-41, "values": ["0x3f80"]},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(Path(__file__).with_name("planted.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def at(candidate: str, cap: float | int, **more: object) -> dict:
    return {
        **LINE,
        "candidate": candidate,
        "cap": Asked(cap).record(),
        "case": {**LINE["case"], "cap": cap},
        **more,
    }


def test_one_bad_line_stops_no_other_and_is_told_by_its_number(folder, capsys):
    good = json.dumps(LINE).encode()
    content = (
        b"\xef\xbb\xbf" + good + b"\r\n# mine\r\n" + good[:70] + b"\n\xff\xfe\n" + b"\xef\xbb\xbf" + good
    )
    content += b"\n" + json.dumps({**LINE, "version": 2}).encode() + b"\n[]\n" + b"[" * 100_000
    content += b"\n" + json.dumps({**LINE, "law": ["exact_value"]}).encode()
    content += b"\n" + json.dumps({**LINE, "candidate": "absent.py:f"}).encode()
    (folder / "c.jsonl").write_bytes(content)
    assert main(["replay", "c.jsonl"]) == 2
    printed = capsys.readouterr()
    assert printed.out.count("FAIL FA exact_value") == 2
    assert printed.out.endswith("c.jsonl: 9 cases: 2 fail, 7 not judged\n")
    told = [line.partition("c.jsonl line ")[2] for line in printed.err.splitlines()]
    assert [line.partition(":")[0] for line in told] == ["3", "4", "6", "7", "8", "9", "10"]
    assert "its version is 2, and this softcap-verify reads 1" in told[2]
    assert "absent.py does not exist" in told[-1]


def test_the_totals_and_the_status_of_a_file(folder, capsys):
    for lines, status, total in (
        ([LINE], 1, "1 case: 1 fail"),
        ([{**LINE, "candidate": "native"}, LINE], 1, "2 cases: 1 fail, 1 pass"),
        ([{**LINE, "candidate": "native"}], 0, "1 case: 1 pass"),
        ([at("native", 30, law="device_placement")], 2, "not judged"),
    ):
        (folder / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
        assert main(["replay", "c.jsonl"]) == status
        assert total in capsys.readouterr().out
    (folder / "c.jsonl").write_text("# nothing\n\n")
    assert main(["replay", "c.jsonl"]) == 2


def test_a_line_without_a_version_is_one_of_the_first(folder):
    assert main(["replay", json.dumps({key: LINE[key] for key in LINE if key != "version"})]) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"version": "1"}, "version"),
        ({"attempts": 0}, "attempts"),
        ({"timeout": -1}, "timeout"),
        ({"candidate": 5}, "text"),
    ],
)
def test_what_a_line_cannot_say_is_refused(folder, capsys, change, says):
    assert main(["replay", json.dumps({**LINE, **change})]) == 2
    assert says in capsys.readouterr().err


def test_a_constructor_that_exits_is_a_failure_of_its_line_and_the_next_one_is_judged(folder, capsys):
    lines = [
        at("planted.py:LeavesInItsConstructor", 128.0),
        LINE,
        {
            k: v
            for k, v in at("planted.py:LeavesInItsConstructor", 128.0).items()
            if k not in ("cap", "history")
        },
    ]
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["replay", "c.jsonl"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("SystemExit: 3") == 2
    assert "3 cases: 3 fail" in printed


def test_a_crash_and_a_hang_are_told_with_candidate_cap_and_history_in_the_time_of_the_line(folder, capsys):
    lines = [at("planted.py:dies", 2.0**31, history=[20]), at("planted.py:hangs", 2.0**31, timeout=1.0)]
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main(["replay", "c.jsonl"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL crashed · bf16 · cap 2^31 · planted.py:dies" in printed
    assert "after    caps 20 in the same process" in printed
    assert "FAIL timed out · bf16 · cap 2^31 · planted.py:hangs" in printed
    assert "no result within 1 s" in printed
    assert printed.count("  replay   softcap-verify replay") == 2
    assert main(["replay", json.dumps(at("planted.py:hangs", 2.0**31)), "--timeout", "1.5"]) == 1
    assert "no result within 1.5 s" in capsys.readouterr().out


def test_a_line_of_a_hang_names_the_time_that_it_had():
    verdict = Verdict(
        Cell("k.py:f", "exact_value", "forward", "fp16", 30),
        "FA",
        FAIL,
        case='{"shape":[1],"dtype":"fp16","cap":30}',
    )
    line = Finding(verdict, Asked(30), kind=LATE, timeout=2.0).line()
    corpus.check(line)
    assert (line["timeout"], line["version"]) == (2.0, 1)


def test_a_corpus_that_was_cut_short_takes_more_lines(tmp_path):
    path = tmp_path / "c.jsonl"
    older = {key: LINE[key] for key in LINE if key != "version"}
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(older).encode() + b"\n" + json.dumps(LINE).encode()[:50])
    corpus.prepare(path)
    verdict = Verdict(
        Cell(LINE["candidate"], "exact_value", "forward", "bf16", 2.0**-41),
        "FA",
        FAIL,
        case=json.dumps(LINE["case"]),
    )
    for cap in (2.0**-41, 30.0):
        corpus.append(path, Finding(verdict, Asked(cap)))
    lines = path.read_bytes().splitlines()
    assert len(lines) == 4
    assert json.loads(lines[3])["cap"] == (30.0).hex()


def test_a_line_that_is_there_without_a_version_is_not_written_again(tmp_path):
    path = tmp_path / "c.jsonl"
    verdict = Verdict(
        Cell("k.py:f", "exact_value", "forward", "fp16", 30),
        "FA",
        FAIL,
        case='{"shape":[1],"dtype":"fp16","cap":30}',
    )
    finding = Finding(verdict, Asked(30))
    older = {key: value for key, value in finding.line().items() if key != "version"}
    path.write_text(json.dumps(older) + "\n")
    corpus.append(path, finding)
    assert len(path.read_text().splitlines()) == 1
