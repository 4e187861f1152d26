"""What another repository's tests import: three lines put a kernel under its own pytest.

from invariance.testing import law_tests

test_my_softcap = law_tests("my_pkg.kernels:MySoftcap")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any

import pytest

from invariance.candidate import display_name
from invariance.environment import resolve_device
from invariance.offered import DEFAULT_CAPS, DTYPES
from invariance.plan import Settings, cells
from invariance.probing import with_own_cap
from invariance.process import Child, Job
from invariance.report.model import Explored
from invariance.session import Session, check_request, verify
from invariance.verdict import NOT_APPLICABLE, Cell, Verdict

__all__ = ["Bench", "bench", "law_tests", "verify"]

VERDICT_PROPERTY = "softcap_verdict"  # survives xdist, as report.user_properties


class Bench:
    """One candidate under judgement, cell by cell, in a child process of its own."""

    def __init__(
        self, spec: str, settings: Settings, timeout: float = 60.0, check_grad: bool | None = None
    ) -> None:
        self.spec = spec
        self.session = Session(settings, (spec,), timeout, check_grad=check_grad)
        self.child = Child()

    @cached_property
    def jobs(self) -> dict[Any, Job]:
        """The jobs of all cells that apply; raises CandidateNotLoadable."""
        return {job.key: job for job in self.session.start()}

    def judge(self, cell: Cell) -> Verdict:
        """The verdict of one cell of the plan."""
        job = self.jobs.get(cell)
        if job is None:
            return next(verdict for verdict in self.session.verdicts if verdict.cell == cell)
        self.session.receive(self.child.run(job))
        self.session.explain_lost()
        return self.session.verdicts[-1]

    def explore(self, law: str, pass_: str) -> Explored | None:
        """What Hypothesis finds for one law and pass; None where they do not apply."""
        assert self.jobs is not None
        for job in self.session.explorations():
            if (job.kwargs["law"], job.kwargs["pass_"]) == (law, pass_):
                self.session.receive_explored(self.child.run(job))
                return self.session.explored[-1]
        return None


@lru_cache(maxsize=8)
def bench(spec: str, settings: Settings, timeout: float, check_grad: bool | None) -> Bench:
    """The one bench of this process for a candidate and what is asked of it."""
    return Bench(spec, settings, timeout, check_grad)


def law_tests(
    candidate: str,
    *,
    softcap: Iterable[float | int] = DEFAULT_CAPS,
    dtype: Iterable[str] = DTYPES,
    device: str = "auto",
    law: Iterable[str] = (),
    profile: str = "quick",
    check_grad: bool | None = None,
    timeout: float = 60.0,
    seed: int = 0,
) -> Callable[..., None]:
    """A test over every cell of the plan for `candidate`: assign it to a name that starts with `test_`.

    Raises CandidateNotLoadable, NoSuchDevice, ValueError for what does not exist or has nothing to judge,
    and TypeError for a candidate that is no import path.
    """
    check_request(candidate, timeout)
    asked = Settings(tuple(softcap), tuple(dtype), resolve_device(device), profile, seed, tuple(law))
    settings = with_own_cap(candidate, asked, timeout)
    planned = cells(display_name(candidate), settings)
    if not planned:
        raise ValueError(f"nothing to judge: {asked}")

    @pytest.mark.parametrize("cell", planned, ids=lambda cell: cell.id)
    def test_law(cell: Cell, record_property: Callable[[str, object], None]) -> None:
        check(bench(candidate, settings, timeout, check_grad).judge(cell), record_property)

    return test_law


def check(verdict: Verdict, record_property: Callable[[str, object], None]) -> None:
    """Record a verdict and fail the test with its message; what does not apply is skipped with its reason."""
    record_property(VERDICT_PROPERTY, json.dumps(verdict.record()))
    if verdict.status == NOT_APPLICABLE:
        pytest.skip(f"not applicable: {verdict.reason}")
    if verdict.failed:
        pytest.fail(str(verdict), pytrace=False)
