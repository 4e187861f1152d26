"""The command: what it prints and writes, what it refuses, how it exits."""

from __future__ import annotations

import gc
import json
import shlex
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from invariance import server, usage
from invariance.cli import main
from invariance.commands import fuzz as fuzz_command
from invariance.fuzz import report
from invariance.fuzz.asked import Asked
from invariance.fuzz.campaign import Campaign, Limits
from invariance.fuzz.rounds import Judged, Point, Subject
from invariance.fuzz.schedule import Schedule


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(Path(__file__).with_name("planted.py"), tmp_path)
    (tmp_path / "utf16.jsonl").write_text('{"law": "exact_value"}\n', encoding="utf-16")
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
        (["--softcap-range", "2^-60:2^128"], "LO:HI"),
        (["--softcap-range", "1_0:2_0"], "LO:HI"),
        (["--timeout", "1e-3"], "--timeout 0.001: a cap is all inputs of three dtypes, give it 1 s at least"),
        (["--softcap-range", "-1:1"], "--softcap-range '-1:1' is not LO:HI"),
        (["--corpus", "utf16.jsonl"], "--corpus utf16.jsonl: is UTF-16, and a corpus is UTF-8"),
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
        (["--candidate", "triton-interpreted"], "accuracy is not judged in the interpreter"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_bad_request_is_one_line_and_status_2(folder, capsys, arguments, says):
    assert main(["fuzz", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    left = {path.name for path in folder.iterdir() if path.suffix != ".pyc" and path.is_file()}
    assert left == {"planted.py", "utf16.jsonl"}


def test_nothing_found_is_status_0_and_the_report_counts(folder, capsys):
    assert fuzz("right", "--examples", "10", "--report", "out", "--json", "--seed", "5") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((folder / "out" / "fuzz.json").read_text())
    assert printed["verdict"] == "nothing found"
    assert printed["totals"]["caps"] == 10
    assert printed["totals"]["inputs"] > 10 * 3 * 2 * 65536
    assert sum(printed["totals"]["sources"].values()) == 10
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


class _Finalized:
    """Raises inside its finalizer, where Python prints what is raised and goes on."""

    def __del__(self):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def in_the_foreground():
    """SIGINT as in a terminal: a shell has what runs in the background ignore it."""
    kept = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, kept)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", ["a finalizer", "a collection", "the last round"])
@pytest.mark.usefixtures("in_the_foreground")
def test_an_interrupt_that_python_swallows_ends_it_all_the_same(folder, capsys, monkeypatch, where):
    take, seen = Campaign.receive, []

    def collected(phase, _info):
        if phase == "start":
            gc.callbacks.remove(collected)
            signal.raise_signal(signal.SIGINT)

    def receive(self, outcome):
        take(self, outcome)
        seen.append(outcome)
        if len(seen) > 1 or where == "a finalizer":
            _Finalized()
        elif where == "a collection":
            gc.callbacks.append(collected)
            gc.collect()

    monkeypatch.setattr(Campaign, "receive", receive)
    length = ("--examples", "9") if where == "the last round" else ("--minutes", "5")
    assert fuzz("right", *length, "--report", "out", "--softcap-range", "1:2") == 130
    made = json.loads((folder / "out" / "fuzz.json").read_text())
    assert (made["verdict"], made["complete"]) == ("incomplete", False)
    assert len(seen) <= 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("in_the_foreground")
def test_an_interrupt_while_the_server_of_children_starts_is_kept(folder, monkeypatch):
    def begun():
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(server.forkserver, "ensure_running", begun)
    assert fuzz("right", "--examples", "1") == 130


def test_a_report_that_cannot_be_written_after_all_does_not_keep_the_findings_back(
    folder, capsys, monkeypatch
):
    write, left = report.write, [1]  # the one that says that the run began

    def full(*given: object) -> None:
        if not left:
            raise OSError(28, "No space left on device")
        left.pop()
        write(*given)

    monkeypatch.setattr(report, "write", full)
    assert (
        fuzz("truncates_to_integers", "--examples", "2", "--report", "out", "--softcap-range", "1.1:1.9") == 2
    )
    printed = capsys.readouterr()
    assert "FA exact_value" in printed.out
    assert "No space left" in printed.err


def test_what_breaks_outside_the_judged_domain_is_apart_and_replays(folder, capsys):
    asked = ["--examples", "3", "--softcap-range", "2^-80:2^-70", "--corpus", "c.jsonl", "--report", "out"]
    assert fuzz("wrong_when_tiny", *asked) == 1
    printed = capsys.readouterr().out
    assert (
        "found outside the judged domain: planted.py:wrong_when_tiny on cpu, seed 0: 0 caps and 3" in printed
    )
    assert "0 failures; 2 failures outside the judged domain" in printed
    made = json.loads((folder / "out" / "fuzz.json").read_text())
    assert (made["failures"], len(made["outside"])) == ([], 2)
    assert "## Failures outside the judged domain" in (folder / "out" / "fuzz.md").read_text()
    assert main(["replay", "c.jsonl"]) == 1
    assert main(["replay", "c.jsonl", "--candidate", "native"]) == 0
    assert "c.jsonl: 2 cases: 2 pass" in capsys.readouterr().out


def test_where_no_cap_is_judged_the_status_is_no_0(folder, capsys):
    assert fuzz("right", "--examples", "2", "--softcap-range", "2^-80:2^-70") == 2
    assert "nothing judged: every cap is outside the judged domain, and none broke" in capsys.readouterr().out
    assert fuzz("right", "--campaign", "bf16xbf16", "--softcap-range", "1:1", "--shard", "2/2") == 2
    assert "nothing judged: the shard holds no caps: " in capsys.readouterr().out


def test_the_judged_end_of_a_range_comes_first(folder, capsys):
    assert fuzz("right", "--examples", "2", "--softcap-range", "2^60:2^62") == 0
    assert "1 cap and 1 outside the judged domain" in capsys.readouterr().out


def test_a_time_in_which_no_cap_fits_is_nothing_judged(folder, capsys):
    assert fuzz("right", "--minutes", "1e-9") == 2
    assert "nothing judged: the time was over before the first cap: " in capsys.readouterr().out


def test_an_interrupted_campaign_that_found_something_says_both(folder, capsys, monkeypatch):
    take = Campaign.receive

    def interrupted(self, outcome):
        take(self, outcome)
        raise KeyboardInterrupt

    monkeypatch.setattr(Campaign, "receive", interrupted)
    assert fuzz("truncates_to_integers", "--softcap-range", "1.1:1.9", "--report", "out") == 130
    assert "\nincomplete, found: planted.py" in capsys.readouterr().out
    assert json.loads((folder / "out" / "fuzz.json").read_text())["verdict"] == "incomplete, found"


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


def test_a_campaign_that_is_not_complete_says_how_much_it_judged(folder, capsys):
    asked = ["--campaign", "bf16xbf16", "--softcap-range", "1:1.25", "--examples", "5", "--report", "out"]
    assert fuzz("right", *asked) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "nothing found so far: not complete: planted.py:right on cpu, seed 0, bf16xbf16: 5 caps of 33"
    )
    assert "not complete" in (folder / "out" / "fuzz.md").read_text().splitlines()[0]


def test_the_closing_line_names_what_it_takes_to_have_the_same_again(folder, capsys):
    assert fuzz("right", "--examples", "2", "--seed", "7", "--shard", "2/3") == 0
    assert "nothing found: planted.py:right on cpu, seed 7, shard 2/3: 2 caps, " in capsys.readouterr().out
    assert fuzz("without_gradient", "--examples", "2") == 0
    assert "on cpu, seed 0, forward only: it has no gradient: 2 caps, " in capsys.readouterr().out


def test_an_interrupt_before_the_first_cap_leaves_no_older_report(folder, monkeypatch):
    (folder / "out").mkdir()
    older = json.dumps({"verdict": "nothing found", "complete": True})
    for where in (Campaign, fuzz_command):
        (folder / "out" / "fuzz.json").write_text(older)
        (folder / "out" / "fuzz.md").write_text("nothing found")
        with monkeypatch.context() as patched:
            patched.setattr(
                where, *(("run", _interrupted) if where is Campaign else ("resolve_device", _interrupted))
            )
            assert fuzz("right", "--report", "out") == 130
        made = json.loads((folder / "out" / "fuzz.json").read_text())
        assert (made["verdict"], made["complete"]) == ("incomplete", False)
        assert "incomplete" in (folder / "out" / "fuzz.md").read_text()


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_run_that_ends_without_a_word_left_an_incomplete_report(folder, monkeypatch):
    def killed(*_: object) -> None:
        raise SystemExit(9)

    (folder / "out").mkdir()
    (folder / "out" / "fuzz.json").write_text('{"verdict": "nothing found"}')
    monkeypatch.setattr(Campaign, "run", killed)
    with pytest.raises(SystemExit):
        fuzz("right", "--report", "out")
    assert json.loads((folder / "out" / "fuzz.json").read_text())["verdict"] == "incomplete"


def test_progress_in_a_log_is_a_plain_line_now_and_then(capsys, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(usage.time, "monotonic", lambda: clock[0])
    line = fuzz_command._Line()
    campaign = Campaign(Subject("native"), Schedule(), Limits())
    for now in (100.1, 109.0, 110.0, 111.0, 119.9, 120.1):
        clock[0] = now
        line.show(campaign)
    assert capsys.readouterr().err == "0 caps, 0 inputs, 0/s, 0 failures\n" * 2


def test_an_interrupt_of_the_imports_leaves_no_older_report(folder):
    def interrupted(last: Callable[[], None]) -> AbstractContextManager[object]:
        last()
        raise KeyboardInterrupt

    (folder / "out").mkdir()
    assert main(["fuzz", "--report", "out"], loading=interrupted) == 130
    assert json.loads((folder / "out" / "fuzz.json").read_text())["verdict"] == "incomplete"
    (folder / "out" / "fuzz.json").write_text('{"verdict": "nothing found"}')
    assert main(["fuzz", "--report", "out"], loading=interrupted) == 130
    assert json.loads((folder / "out" / "fuzz.json").read_text()) == {
        "verdict": "incomplete",
        "complete": False,
    }


def test_where_every_cap_breaks_a_law_no_worst_is_promised(folder):
    assert fuzz("raises", "--examples", "2", "--softcap-range", "2^-50:2^-40", "--report", "out") == 1
    text = (folder / "out" / "fuzz.md").read_text()
    assert "## Worst caps\n\nNone: every cap that was judged broke a law." in text
