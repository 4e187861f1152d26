"""The command: what it prints and writes, what it refuses, how it exits."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest

from invariance.cli import main
from invariance.fuzz import report
from invariance.fuzz.asked import Asked
from invariance.fuzz.campaign import Campaign, Limits
from invariance.fuzz.rounds import Judged, Point, Subject
from invariance.fuzz.schedule import Schedule


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(Path(__file__).with_name("planted.py"), tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def fuzz(kernel: str, *arguments: str) -> int:
    return main(["fuzz", "--candidate", f"planted.py:{kernel}", "--device", "cpu", "--jobs", "1", *arguments])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--campaign", "all"], "mixed, bf16xbf16"),
        (["--softcap-range", "5"], "LO:HI"),
        (["--softcap-range", "5:1"], "LO:HI"),
        (["--softcap-range", "0:1"], "LO:HI"),
        (["--softcap-range", "1:inf"], "LO:HI"),
        (["--minutes", "0"], "--minutes '0'"),
        (["--minutes", "nan"], "--minutes 'nan'"),
        (["--examples", "0"], "--examples '0'"),
        (["--examples", "3", "--minutes", "1"], "not allowed with"),
        (["--device", "tpu"], "auto, cpu, cuda"),
        (["--seed", "x"], "--seed 'x'"),
        (["--shard", "3/2"], "--shard '3/2'"),
        (["--shard", "0/2"], "--shard '0/2'"),
        (["--jobs", "0"], "--jobs '0'"),
        (["--timeout", "-1"], "--timeout"),
        (["--report", "planted.py"], "is a file"),
        (["--minutes", "1e6"], "number of minutes above 0 and below a million"),
        (["--campaign", "bf16xbf16", "--softcap-range", "1.001:1.002"], "BF16 has no cap there"),
        (["--corpus", "."], "is a folder"),
        (["--corpus", "planted.py"], "is no corpus: line 1"),
        (["--report", "planted.py/out"], "Not a directory"),
        (["--corpus", "absent/c.jsonl"], "No such file"),
        (["--candidate", "planted.py:absent"], "has no 'absent'"),
        (["--candidate", "planted.py:fixed"], "its own cap"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_bad_request_is_one_line_and_status_2(folder, capsys, arguments, says):
    assert main(["fuzz", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert [path.name for path in folder.iterdir() if path.suffix != ".pyc" and path.is_file()] == [
        "planted.py"
    ]


def test_nothing_found_is_status_0_and_the_report_counts(folder, capsys):
    assert fuzz("right", "--examples", "10", "--report", "out", "--json", "--seed", "5") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "out" / "fuzz.json").read_text())
    assert printed["verdict"] == "nothing found"
    assert printed["totals"]["caps"] == 10
    assert printed["totals"]["inputs"] > 10 * 3 * 2 * 65536
    assert sum(printed["totals"]["drawn"].values()) >= 10
    assert printed["settings"]["seed"] == 5
    assert printed["environment"]["contract"]
    text = (folder / "out" / "fuzz.md").read_text()
    assert "nothing found" in text
    assert all(row["spelled"] in text for row in printed["worst"]["forward"])
    for row in printed["worst"]["forward"]:
        assert 1.0 <= row["significand"] < 2.0
        assert row["error"] <= row["bound"]


def test_found_is_status_1_and_each_failure_is_printed_once(folder, capsys):
    arguments = [
        "--examples",
        "12",
        "--corpus",
        "c.jsonl",
        "--report",
        "out",
        "--softcap-range",
        "0x1p-50:0x1p-30",
    ]
    assert fuzz("wrong_when_tiny", *arguments) == 1
    printed = capsys.readouterr().out
    assert printed.count("FA exact_value · forward") == 1
    assert printed.count("GA exact_value · backward") == 1
    assert "cap      2^-41" in printed
    lines = (folder / "c.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert main(["replay", "c.jsonl"]) == 1
    assert main(["replay", "c.jsonl", "--candidate", "native"]) == 0
    capsys.readouterr()
    (command,) = [line for line in printed.splitlines() if line.startswith("  replay ") and "forward" in line]
    assert main(shlex.split(command)[2:]) == 1


def test_an_interrupt_is_status_130_and_writes_the_report(folder, capsys, monkeypatch):
    take = Campaign.receive

    def interrupted(self, outcome):
        take(self, outcome)
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "receive", interrupted)
    assert fuzz("right", "--minutes", "1", "--report", "out", "--softcap-range", "1:2") == 130
    made = json.loads((folder / "out" / "fuzz.json").read_text())
    assert (made["verdict"], made["complete"]) == ("incomplete", False)
    assert made["totals"]["caps"] == 8
    assert "interrupted" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_after_all_does_not_keep_the_findings_back(
    folder, capsys, monkeypatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "write", full)
    assert (
        fuzz("truncates_to_integers", "--examples", "2", "--report", "out", "--softcap-range", "1.1:1.9") == 2
    )
    printed = capsys.readouterr()
    assert "FA exact_value" in printed.out
    assert "No space left" in printed.err


def test_what_breaks_outside_the_judged_domain_is_told(folder, capsys):
    assert fuzz("wrong_when_tiny", "--examples", "3", "--softcap-range", "0x1p-80:0x1p-70") == 0
    printed = capsys.readouterr().out
    assert "Not judged: 6 laws broken outside the judged domain, first at" in printed
    assert "0 failures" in printed


def test_a_shard_without_caps_is_nothing_and_no_failure(folder, capsys):
    asked = ["--campaign", "bf16xbf16", "--softcap-range", "1:1", "--shard", "2/2"]
    assert fuzz("right", *asked) == 0
    assert "nothing judged: the shard holds no caps: 0 caps of 0" in capsys.readouterr().out


def test_the_progress_line_says_how_far_and_how_bad():
    campaign = Campaign(Subject("native"), Schedule(), Limits())
    campaign.caps, campaign.inputs, campaign.seconds = 1, 65536, 0.5
    point = Judged(Asked(30), worst={"forward": Point(1.25, "fp16", 0x3C00)})
    campaign.worst = {"forward": [(1.25, point)]}
    assert (
        report.progress(campaign) == "1 cap, 65,536 inputs, 1.31e+05/s, worst forward 1.25 at 30, 0 failures"
    )
    assert report.counted(1, "failure") == "1 failure"


def test_shards_of_a_campaign_judge_different_caps(folder, capsys):
    seen = []
    for shard in ("1/2", "2/2"):
        asked = ["--campaign", "bf16xbf16", "--softcap-range", "1:1.25", "--shard", shard, "--json"]
        assert fuzz("right", *asked) == 0
        made = json.loads(capsys.readouterr().out)
        seen.append(({row["cap"] for row in made["worst"]["forward"]}, made["totals"]["caps"]))
    assert not seen[0][0] & seen[1][0]
    assert seen[0][1] + seen[1][1] == 33
