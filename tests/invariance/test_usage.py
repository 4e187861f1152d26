"""The line that tells how far a command is: on a terminal in place, in a log now and then."""

from __future__ import annotations

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
