"""What commands say on the way and in the end: progress, in place or now and then in a log, and a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from invariance import usage


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds, to be set."""
    now = [100.0]
    monkeypatch.setattr(usage.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_every_ten_seconds(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    for done, at in enumerate((100.0, 103.0, 110.5, 112.0, 121.0, 122.0), 1):
        clock[0] = at
        usage.progress(done, 6, f"cell {done}")
    assert capsys.readouterr().err.splitlines() == ["3/6 cell 3", "5/6 cell 5"]


def test_what_is_over_at_once_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    clock[0] += 1000
    usage.progress(1, 1, "cell")
    assert capsys.readouterr().err == ""


def test_what_cannot_be_written_is_printed_nevertheless(capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(usage.UsageError, match="--report there: No space left on device"):
        usage.deliver("pass: everything\n", Path("there"), full)
    assert capsys.readouterr().out == "pass: everything\n"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc here")
def test_a_folder_that_cannot_be_made_is_refused_though_permissions_allow_it() -> None:
    with pytest.raises(usage.UsageError, match="--report /proc/x/y: "):
        usage.possible(Path("/proc/x/y"))


def test_a_folder_that_can_be_made_is_not_there_afterwards(tmp_path: Path) -> None:
    usage.possible(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    usage.possible(tmp_path)
    assert tmp_path.is_dir()
