"""The plan over the shipped operators, or over `--candidate`; and Hypothesis on top."""

from __future__ import annotations

import pytest

from invariance.testing import check


def test_cell(plan_cell, plan_benches, record_property):
    """A cell of the plan passes."""
    spec, settings, cell = plan_cell
    verdict = plan_benches(spec, settings).judge(cell)
    check(verdict, record_property)


def test_exploration(explored_law, plan_benches):
    """Hypothesis finds nothing that the plan did not foresee."""
    spec, settings, law, pass_ = explored_law
    explored = plan_benches(spec, settings).explore(law, pass_)
    if explored is None:
        pytest.skip("not applicable to this candidate")
    assert explored.verdict is None, str(explored.verdict)
    assert explored.elements > 0, f"{law} explored {explored.examples} cases and compared nothing"
