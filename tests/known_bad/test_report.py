"""The kill matrix counts the whole catalogue, says what was not run, and ends in the score."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from invariance import cli, interrupts
from invariance.commands import mutants
from invariance.known_bad import matrix, report
from invariance.known_bad.entry import ANY, Entry
from invariance.known_bad.matrix import Failure, Row, Score
from invariance.process import Job, run_job


def entry(name: str, must: set[str] | None = None, **fields: object) -> Entry:
    return Entry(name, f"m:{name}", must is not None, "Says.", must=frozenset(must or ()), **fields)  # type: ignore[arg-type]  # plain fields


def failure(law: str, elements: int = 1) -> Failure:
    return Failure(law, "FA", "forward", "fp32", "differ in bits", elements)


KILLED = Row(entry("killed", {"a"}), (failure("a"),), 9)
SURVIVED = Row(entry("survived", {"a", "b"}), (failure("a"),), 9)
NOT_RUN = Row(entry("not_run", {"a"}, tier="device"), not_run="no device")
PASSED = Row(entry("passed"), (), 9)
ALARM = Row(entry("alarm"), (failure("c"),), 9)
ENVIRONMENT = {
    "python": "3", "packages": {"torch": "2.9"}, "device": "cuda:0", "accelerator": {"name": "Fast"}, "commit": "abc",
    "tracked_changes": False, "seed": 7, "contract": "c", "candidates": {},
}  # fmt: skip
ROWS = [KILLED, SURVIVED, NOT_RUN, PASSED, ALARM]


def test_a_fault_not_run_is_not_killed() -> None:
    assert str(Score.of(ROWS)) == "killed 1 of 3 (33.3%), false alarms 1 of 2"


def test_a_kernel_that_dies_of_another_law_is_not_judged_right() -> None:
    stray = Row(entry("stray", {"a"}), (failure("a"), failure("z")), 9)
    assert stray.killed
    assert stray.complaints == ["z failed: differ in bits"]
    assert SURVIVED.complaints == ["b did not fail"]
    assert Row(entry("loose", {"a"}, may=ANY), (failure("a"), failure("z")), 9).complaints == []


def test_a_large_case_and_an_empty_comparison_are_complaints() -> None:
    large = Row(entry("large", {"a"}), (failure("a", 65),), 9)
    assert large.complaints == ["the shrunk case of a has 65 elements, at most 64 were expected"]
    assert Row(entry("large", {"a"}, elements=65), (failure("a", 65),), 9).complaints == []
    assert Row(entry("empty"), (), 0).complaints == ["nothing was compared"]


def test_a_law_that_could_not_run_is_a_complaint() -> None:
    row = Row(entry("right"), (), 9, (("far_offsets", "no memory"),))
    assert row.complaints == ["far_offsets did not run: no memory"]


def test_the_last_line_is_the_score_and_the_json_says_the_same() -> None:
    text, data = report.text(ROWS), report.as_json(ROWS, {}, 0)
    assert text.splitlines()[-1] == data["summary"] == "killed 1 of 3 (33.3%), false alarms 1 of 2"
    assert "device: 1 kernel not run: no device" in text
    assert data["matrix"] == {"a": {"plan": ["killed", "survived"]}}
    assert json.loads(report.dumps(data)) == data


def test_the_markdown_holds_every_kernel_and_tier() -> None:
    page = report.markdown(report.as_json(ROWS, ENVIRONMENT, 7))
    for words in (
        "| killed | plan |",
        "| survived |",
        "| device | no device | 1 | not_run |",
        "| device | 0 | 1 | 0 | 0 | no device |",
        "| survived | b did not fail | `softcap-verify check --candidate m:survived --no-explore --profile quick ",
        "killed* where every one",
        "| guarded_inputs | What guard_bands says",
        "| commit | abc |",
        "| tracked_changes | no |",
        "| accelerator name | Fast |",
        "| seed | 7 |",
    ):
        assert words in page
    assert "## Not as expected\n\nNothing." not in page
    assert "## Not as expected\n\nNothing." in report.markdown(report.as_json([KILLED, PASSED], ENVIRONMENT, 7))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The command over five kernels that are judged already."""
    rows = list(ROWS)
    monkeypatch.setattr(mutants, "load_catalogue", lambda: {row.entry.name: row.entry for row in rows})
    by_name = {row.entry.name: row for row in rows}
    monkeypatch.setattr(mutants, "judge_all", lambda entries, **_: [by_name[e.name] for e in entries])
    return rows


def test_the_command_fails_where_a_kernel_was_judged_wrong(
    small: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["mutants"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "killed 1 of 3 (33.3%), false alarms 1 of 2"


def test_the_command_passes_where_all_that_was_judged_was_judged_right(
    small: list[Row], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    small[:] = [KILLED, NOT_RUN, PASSED]
    assert cli.main(["mutants", "--tier", "all", "--json", "--report", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["summary"] == "killed 1 of 2 (50.0%), false alarms 0 of 1"
    assert json.loads((tmp_path / "mutants.json").read_text("utf-8"))["kernels"] == data["kernels"]
    assert (tmp_path / "mutants.md").read_text("utf-8").startswith("# Kill matrix")


def test_kernels_of_other_tiers_are_listed_as_not_asked_for(
    small: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    small[:] = [KILLED, NOT_RUN, PASSED]
    assert cli.main(["mutants", "--tier", "plan"]) == 0
    assert "device: 1 kernel not run: the tier was not asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tier", "gpu"], "--tier 'gpu' is unknown"),
        (["--seed", "-1"], "--seed '-1' is not a whole number"),
        (["--jobs", "0"], "--jobs '0' is not a whole number of at least 1"),
        (["--report", __file__], "is a file, not a folder"),
        (["--kernel", "kiled"], "--kernel 'kiled' is not in the catalogue; near it: killed"),
        (["--kernel", "killed", "--tier", "codegen"], "--kernel killed is of the tier plan, which --tier does not"),
    ],
)
def test_a_mistake_is_one_line(
    small: list[Row], arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["mutants", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_several_tiers_may_be_asked_for(small: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    small[:] = [KILLED, NOT_RUN, PASSED]
    assert cli.main(["mutants", "--tier", "interpreter", "codegen", "--tier", "plan"]) == 0
    out = capsys.readouterr().out
    assert "plan: killed 1 of 1" in out
    assert "device: 1 kernel not run: the tier was not asked for" in out


def test_kernels_may_be_asked_for_by_name(small: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["mutants", "--kernel", "passed", "killed"]) == 0
    out = capsys.readouterr().out
    assert "plan: 2 kernels not run: the kernel was not asked for\nplan: killed 1 of 2" in out


def test_what_is_not_as_expected_comes_with_the_command_that_shows_it(
    small: list[Row], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["mutants", "--kernel", "survived"]) == 1
    told = "softcap-verify check --candidate m:survived --no-explore --profile quick --softcap 17.3 --dtype fp32"
    assert f"survived: survived: b did not fail\n  judge it alone: {told} --device cpu" in capsys.readouterr().out


def test_an_interrupt_reports_what_was_judged(
    small: list[Row], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(entries: list[Entry], **_: object) -> Iterator[Row]:
        yield KILLED
        raise KeyboardInterrupt

    monkeypatch.setattr(mutants, "judge_all", interrupted)
    assert cli.main(["mutants", "--report", str(tmp_path)]) == 130
    out, err = capsys.readouterr()
    assert "plan: 3 kernels not run: interrupted before it\nplan: killed 1 of 2" in out
    assert "interrupted; the report is incomplete" in err
    data = json.loads((tmp_path / "mutants.json").read_text("utf-8"))
    assert data["complete"] is False
    assert [k["outcome"] for k in data["kernels"]].count("not run: interrupted before it") == 4
    assert "Interrupted: killed 1 of 3" in (tmp_path / "mutants.md").read_text("utf-8")


def test_a_report_that_cannot_be_written_is_one_line(
    small: list[Row], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report, "write", full)
    assert cli.main(["mutants", "--report", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith(f"--report {tmp_path}: No space left on device\n")


def test_a_tier_that_is_not_here_is_one_line(
    small: list[Row], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mutants, "reason_not_here", lambda tier: "no CUDA or ROCm device")
    assert cli.main(["mutants", "--tier", "device"]) == 2
    assert "--tier device cannot be judged here: no CUDA or ROCm device" in capsys.readouterr().err


def test_an_interrupt_ends_the_kernels_that_are_being_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def hangs(entry: Entry, *, seed: int) -> Row:
        started.append(entry.name)
        outcome = run_job(Job("signal:pause", {}, 60.0))
        return Row(entry, compared=0 if outcome.kind == "crashed" else 1)

    def interrupt(row: Row) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        matrix, "judge", lambda e, *, seed: KILLED if e.name == "first" else hangs(e, seed=seed)
    )
    names = ["first", "second", "third", "fourth"]
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(matrix.judge_all([entry(name, {"a"}) for name in names], jobs=2, progress=interrupt))
    assert time.monotonic() - begun < 20
    assert "fourth" not in started
    assert run_job(Job("os:getpid", {}, 20.0)).kind == "done"


def test_an_interrupt_that_python_swallows_ends_them_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(entry: Entry, *, seed: int) -> Row:
        interrupts._noted.set()  # what the handler leaves when a collection or a finalizer swallows what it raises
        outcome = run_job(Job("signal:pause", {}, 60.0))
        return Row(entry, compared=0 if outcome.kind == "crashed" else 1)

    monkeypatch.setattr(matrix, "judge", judge)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(matrix.judge_all([entry(name, {"a"}) for name in ("first", "second")], jobs=1))
    assert time.monotonic() - begun < 20


def test_an_interrupt_while_kernels_are_handed_out_ends_those_that_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(entry: Entry, *, seed: int) -> Row:
        outcome = run_job(Job("signal:pause", {}, 60.0))
        return Row(entry, compared=0 if outcome.kind == "crashed" else 1)

    def interrupted() -> Iterator[Entry]:
        yield from (entry(name, {"a"}) for name in ("first", "second"))
        raise KeyboardInterrupt

    monkeypatch.setattr(matrix, "judge", judge)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(matrix.judge_all(interrupted(), jobs=1))
    assert time.monotonic() - begun < 20
