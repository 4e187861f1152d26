"""The collector of GPU evidence: it goes on after a failure, keeps to its limits and says what did not run."""

from __future__ import annotations

import sys
import tarfile
import time
from pathlib import Path

import pytest

from tools import evidence
from tools.evidence import Step

PYTHON = sys.executable


def steps(*given: Step) -> tuple[Step, ...]:
    return given


def python(code: str) -> list[list[str]]:
    return [[PYTHON, "-c", code]]


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    write = "import sys, pathlib; p = pathlib.Path(sys.argv[1]); p.mkdir(); (p / 'report.md').write_text('# fine')"
    given = steps(
        Step("broken", 60, lambda _: python("print('about to break'); raise SystemExit(3)")),
        Step("slow", 1, lambda _: python("import time; time.sleep(60)")),
        Step("absent", 60, lambda _: [], lambda: "there is no such tool"),
        Step("fine", 60, lambda work: [[PYTHON, "-c", write, str(work / "fine")]]),
        Step("second", 60, lambda _: [*python("raise SystemExit(4)"), *python("print('never printed')")]),
    )
    monkeypatch.setattr(evidence, "STEPS", given)


def test_it_goes_on_after_a_failure_and_says_how_each_step_ended(
    faked: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started = time.monotonic()
    assert evidence.main(["--out", str(tmp_path / "out")]) == 1
    assert time.monotonic() - started < 30
    table = (tmp_path / "out" / "summary.md").read_text()
    assert table in capsys.readouterr().out
    for row in (
        "| broken | exit status 3 |",
        "| slow | stopped after 1 s |",
        "| absent | not run: there is no such tool | 0.0 |",
        "| fine | passed |",
        "| second | exit status 4 |",
    ):
        assert row in table
    log = (tmp_path / "out" / "evidence.log").read_text()
    assert "about to break" in log
    assert "\nnever printed" not in log
    assert (tmp_path / "out" / "fine-report.md").read_text() == "# fine"
    with tarfile.open(tmp_path / "out" / "evidence.tar.gz") as archive:
        assert "fine/report.md" in archive.getnames()


def test_only_the_steps_asked_for_decide(faked: None, tmp_path: Path) -> None:
    assert evidence.main(["--out", str(tmp_path), "--steps", "fine"]) == 0
    assert "broken" not in (tmp_path / "summary.md").read_text()


def test_no_step_starts_after_the_budget(faked: None, tmp_path: Path) -> None:
    assert evidence.main(["--out", str(tmp_path), "--steps", "fine", "--budget", "0"]) == 1
    assert "| fine | not run: no time left |" in (tmp_path / "summary.md").read_text()


def test_an_unknown_step_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evidence.main(["--out", str(tmp_path), "--steps", "chekc"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no step chekc: there are environment, check" in line


def test_the_commands_are_those_that_exist(tmp_path: Path) -> None:
    scripts = [
        part
        for step in evidence.STEPS
        for command in step.commands(tmp_path)
        for part in command
        if part.endswith(".py")
    ]
    assert scripts
    assert all(Path(script).is_file() for script in scripts)
