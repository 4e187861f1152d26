"""Cells that ran out of time: a hang fails with a case that hangs, a slow cell did not run."""

from __future__ import annotations

import time

import pytest
import torch

from invariance import lost
from invariance.lost import explain_lost
from invariance.verdict import FAIL, NOT_RUN, Cell, Verdict
from strategies.case import Case

HERE = "tests.invariance.test_lost"
CASE = Case((40,), "fp32", 20.0, values="mixed").dumps()


class Slow:
    """Takes a while, and returns."""

    seconds = 0.25

    def __init__(self, softcap):
        self.cap = softcap

    def __call__(self, x):
        time.sleep(self.seconds if x.numel() > 8 else 0.0)
        return self.cap * torch.tanh(x.float() / self.cap)


class Hangs(Slow):
    seconds = 1e6


class AtOnce(Slow):
    seconds = 0.0


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Seconds enough for a process that imports this module."""
    monkeypatch.setattr(lost, "SURE", 2.0)
    monkeypatch.setattr(lost, "PATIENCE", {"cpu": 0.8})


def explained(name, timeout=4.0):
    cell = Cell(name, "result_form", "forward", "fp32", 20.0)
    verdicts = [Verdict(cell, "FI", FAIL, elements=1, reason="no result within 4 s", case=CASE, device="cpu")]
    explain_lost(verdicts, {name: f"{HERE}:{name}"}, timeout, 60)
    return verdicts[0]


def test_a_slow_cell_did_not_run(monkeypatch):
    monkeypatch.setattr(lost, "AT_ONCE", 0.1)
    verdict = explained("Slow")
    assert verdict.status == NOT_RUN
    assert "slow, not hung" in verdict.reason
    assert (verdict.case, verdict.elements) == (None, 0)


def test_a_hang_fails_with_a_case_that_hangs():
    verdict = explained("Hangs")
    assert verdict.status == FAIL
    assert Case.loads(verdict.case).shape[0] > 8


def test_what_returns_at_once_was_hung_by_what_came_before(monkeypatch):
    monkeypatch.setattr(lost, "AT_ONCE", 1.0)
    verdict = explained("AtOnce")
    assert (verdict.status, verdict.case) == (FAIL, CASE)
