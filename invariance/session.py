"""A whole judgement: candidates are probed, their cells judged in children, what was lost explained, a Report made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from invariance import environment
from invariance.candidate import display_name, told_apart
from invariance.checkers import LAWS, load_laws
from invariance.lost import ATTEMPTS, explain_lost
from invariance.offered import DEFAULT_CAPS, DTYPES, is_time
from invariance.plan import EXPLORED, Settings, cells, laws
from invariance.probing import probed
from invariance.process import Job, Outcome, run_jobs
from invariance.report.model import Explored, Report
from invariance.scope import Scope
from invariance.verdict import FAIL, NOT_APPLICABLE, NOT_RUN, Cell, Verdict
from strategies.caps import cap_text
from strategies.case import Case

Progress = Callable[[int, int, str], None]

HANGS_ENDURED = 12  # cells of one candidate that may time out before the rest of its plan counts as not run
SHORT_PATIENCE = 5.0  # seconds a cell, once the candidate has hung; honest ones take far less, interpreted ones more


def unseen(done: int, total: int, what: str) -> None:
    """No progress line."""


@dataclass
class Session:
    """The state of one judgement; `finish` may be called at any time and gives the report of what was done.

    first_failures: once a law failed a candidate, its other cells are left out: which laws fail is asked, not where.
    shrinks: attempts to shrink a failure, at most.
    """

    settings: Settings
    candidates: tuple[str, ...]
    timeout: float = 60.0
    workers: int = 1
    explore: bool = True
    check_grad: bool | None = None
    progress: Progress = unseen
    first_failures: bool = False
    shrinks: int | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    explored: list[Explored] = field(default_factory=list)
    certificates: list[dict[str, Any]] = field(default_factory=list)
    probes: dict[str, dict[str, Any]] = field(default_factory=dict)
    planned: set[Cell] = field(default_factory=set)
    complete: bool = False
    done: int = 0
    total: int = 0
    hangs: dict[str, int] = field(default_factory=dict)
    attempts: int = ATTEMPTS

    def run(self) -> Report:
        """Everything; an interrupt propagates, and `finish` still reports what was done."""
        jobs = self.start()
        self._each(jobs, self.receive)
        self.explain_lost()
        self.certify()
        if self.explore:
            self._each(self.explorations(), self.receive_explored)
        self.complete = {verdict.cell for verdict in self.verdicts} == self.planned
        return self.finish()

    def start(self) -> list[Job]:
        """Probe every candidate and lay out its cells; raises CandidateNotLoadable."""
        load_laws()
        told_apart(self.candidates)
        asked = self.settings
        for spec in self.candidates:
            self.probes[spec] = probed(spec, asked.device, asked.caps, asked.dtypes, self.timeout)
        jobs = [job for spec in self.candidates for job in self._cell_jobs(spec)]
        self.total = (
            len(jobs) + len(list(self.sweeps())) + (len(self._exploration_keys()) if self.explore else 0)
        )
        return jobs

    def finish(self) -> Report:
        """The report of what was done so far; a cell of the plan that has no verdict yet did not run."""
        settings = self.settings
        for cell in self.planned - {verdict.cell for verdict in self.verdicts}:
            verdict = LAWS[cell.law].verdict(cell.pass_)
            self.verdicts.append(Verdict(cell, verdict, NOT_RUN, reason="the judgement ended before it"))
        return Report(
            settings=settings,
            candidates=tuple(display_name(spec) for spec in self.candidates),
            verdicts=tuple(sorted(self.verdicts, key=lambda v: v.cell)),
            certificates=tuple(sorted(self.certificates, key=_certificate_key)),
            explored=tuple(sorted(self.explored, key=lambda e: (e.candidate, e.law, e.pass_))),
            environment=environment.describe(settings.device, settings.seed, self.probes),
            complete=self.complete,
        )

    # --- what applies -------------------------------------------------------------------------------------------------

    @property
    def scope(self) -> Scope:
        """What was asked for, and what is known of the candidates."""
        return Scope(self.settings, self.probes, self.check_grad)

    def _cell_jobs(self, spec: str) -> Iterator[Job]:
        asked = self.scope.asked(spec)
        for cell in cells(display_name(spec), asked):
            self.planned.add(cell)
            reason = self.scope.outside(cell.law, cell.pass_, spec)
            if reason is not None:
                self.verdicts.append(
                    Verdict(cell, LAWS[cell.law].verdict(cell.pass_), NOT_APPLICABLE, reason=reason)
                )
                continue
            kwargs = {"spec": spec, "cell": cell, "settings": asked, "shrinks": self.shrinks}
            yield Job("invariance.run:judge_cell", kwargs, self.timeout, key=cell)

    # --- judging ------------------------------------------------------------------------------------------------------

    def _each(self, jobs: Iterable[Job], receive: Callable[[Outcome], None]) -> None:
        for outcome in run_jobs(self._patiently(jobs), workers=self.workers):
            receive(outcome)
            self.done += 1
            self.progress(self.done, self.total, str(outcome.job.key))

    def _patiently(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Jobs with the time that their candidate still deserves; none after too many hangs."""
        for job in jobs:
            if self.first_failures and self._failed_already(job):
                self.done += 1
                continue
            hangs = self.hangs.get(job.kwargs["spec"], 0)
            if hangs > HANGS_ENDURED:
                self._not_run(job)
                continue
            patience = SHORT_PATIENCE * (4 if self.scope.interpreted(job.kwargs["spec"]) else 1)
            yield job if hangs == 0 else replace(job, timeout=min(job.timeout, patience))

    def _failed_already(self, job: Job) -> bool:
        cell = job.key
        return isinstance(cell, Cell) and any(
            v.status == FAIL and (v.cell.candidate, v.cell.law) == (cell.candidate, cell.law)
            for v in self.verdicts
        )

    def _not_run(self, job: Job) -> None:
        self.done += 1
        if isinstance(job.key, Cell):
            reason = f"the candidate did not return in {HANGS_ENDURED + 1} earlier cells"
            verdict = LAWS[job.key.law].verdict(job.key.pass_)
            self.verdicts.append(Verdict(job.key, verdict, NOT_RUN, reason=reason))

    def receive(self, outcome: Outcome) -> None:
        """Take the outcome of a cell's job."""
        if outcome.kind == "done":
            self.verdicts.append(outcome.value)
            return
        self._count_hang(outcome)
        assert isinstance(outcome.job.key, Cell)
        self.verdicts.append(self._lost(outcome.job.key, outcome))

    def _count_hang(self, outcome: Outcome) -> None:
        if outcome.kind == "timed out":
            spec = outcome.job.kwargs["spec"]
            self.hangs[spec] = self.hangs.get(spec, 0) + 1

    def _lost(self, cell: Cell, outcome: Outcome) -> Verdict:
        reason = outcome.reason
        if outcome.kind == "timed out" and outcome.job.timeout < self.timeout:
            reason = f"{reason}, all that a cell gets once its candidate has hung"
        verdict = LAWS[cell.law].verdict(cell.pass_)
        return Verdict(
            cell,
            verdict,
            FAIL,
            elements=1,
            reason=reason,
            case=outcome.announced,
            device=self.settings.device,
        )

    def explain_lost(self) -> None:
        """Shrink the cases that killed a child or its patience."""
        specs = {display_name(spec): spec for spec in self.candidates}
        self.attempts = explain_lost(self.verdicts, specs, self.timeout, self.attempts)

    # --- certifying ---------------------------------------------------------------------------------------------------

    def sweeps(self) -> Iterator[Job]:
        """One job for every domain that is swept whole: 16 bits always, FP32 on a GPU but in a quick judgement.

        None where single laws were asked for, or another contract than that of one rounding.
        """
        if self.settings.laws or self.settings.rounding != "once":
            return
        asked = self.settings
        whole = asked.profile != "quick" and asked.device != "cpu"
        dtypes = [dtype for dtype in asked.dtypes if dtype != "fp32" or whole]
        swept = [spec for spec in self.candidates if not self.scope.interpreted(spec)]
        for spec, dtype, pass_ in product(swept, dtypes, ("forward", "backward")):
            if self.scope.without_gradient(pass_, spec) is not None:
                continue
            for cap in self.scope.asked(spec).caps:
                kwargs = {"spec": spec, "cap": cap, "dtype": dtype, "pass_": pass_, "device": asked.device}
                key = f"every {dtype} input · {pass_} · cap {cap_text(cap)}"
                yield Job("invariance.run:certify", kwargs, self.timeout, key=key)

    def certify(self) -> None:
        """Sweep them all."""
        self._each(self.sweeps(), self.receive_certificate)

    def receive_certificate(self, outcome: Outcome) -> None:
        """Take the outcome of a sweep's job; what could not be swept is a row that says why."""
        if outcome.kind == "done":
            self.certificates.append(outcome.value)
            return
        self._count_hang(outcome)
        job = outcome.job.kwargs
        self.certificates.append(
            {
                "candidate": display_name(job["spec"]),
                "softcap": {"given": cap_text(job["cap"])},
                "dtype": job["dtype"],
                "pass": job["pass_"],
                "complete": False,
                "reason": outcome.reason,
            }
        )

    # --- exploring ----------------------------------------------------------------------------------------------------

    def _exploration_keys(self) -> list[tuple[str, str, str]]:
        return [
            (spec, law.id, pass_)
            for spec in self.candidates
            for law in laws(self.settings)
            if law.explored and set(law.dtypes) & set(self.settings.dtypes)
            for pass_ in law.passes
            if self.scope.outside(law.id, pass_, spec) is None
        ]

    def explorations(self) -> Iterator[Job]:
        """One job for each law and pass that exploration knows."""
        for spec, law, pass_ in self._exploration_keys():
            kwargs = {
                "spec": spec,
                "law": law,
                "pass_": pass_,
                "settings": self.settings,
                "caps": self.scope.asked(spec).caps,
                "examples": EXPLORED[self.settings.profile],
            }
            yield Job("invariance.run:explore", kwargs, self.timeout, key=f"exploring {law} · {pass_}")

    def receive_explored(self, outcome: Outcome) -> None:
        """Take the outcome of an exploration's job."""
        if outcome.kind == "done":
            self.explored.append(outcome.value)
            return
        self._count_hang(outcome)
        job, reason = outcome.job.kwargs, outcome.reason
        law, pass_, name = job["law"], job["pass_"], display_name(job["spec"])
        case = None if outcome.announced is None else Case.loads(outcome.announced)
        cell = Cell(
            name, law, pass_, case.dtype if case else "fp32", case.cap if case else self.settings.caps[0]
        )
        self.explored.append(Explored(name, law, pass_, 0, 0, self._lost(cell, outcome), reason))


def _certificate_key(row: dict[str, Any]) -> tuple[str, ...]:
    return (row["candidate"], row["dtype"], row["softcap"]["given"], row["pass"])


def verify(
    candidate: str = "registry",
    *,
    softcap: Iterable[float | int] | float = DEFAULT_CAPS,
    dtype: Iterable[str] | str = DTYPES,
    device: str = "auto",
    law: Iterable[str] | str = (),
    profile: str = "default",
    explore: bool = True,
    check_grad: bool | None = None,
    timeout: float = 60.0,
    seed: int = 0,
    jobs: int | None = None,
    rounding: str = "once",
) -> Report:
    """Judge one candidate as `softcap-verify check` does; a cap, a dtype or a law may stand for a list of one.

    Raises CandidateNotLoadable for an import path that leads nowhere, NoSuchDevice for a missing device, ValueError
    for what does not exist and for laws that say nothing of what was asked for, TypeError for a candidate that is no
    import path.
    """
    check_request(candidate, timeout)
    if jobs is not None and (type(jobs) is not int or jobs < 1):
        raise ValueError(f"jobs {jobs!r} is not a whole number of at least 1")
    device = environment.resolve_device(device)
    settings = Settings(
        _several(softcap), _several(dtype), device, profile, seed, _several(law), rounding=rounding
    )
    workers = jobs or (1 if device != "cpu" else os.cpu_count() or 1)
    return Session(settings, (candidate,), timeout, workers, explore, check_grad).run()


def check_request(candidate: object, timeout: object) -> None:
    """TypeError or ValueError, in words for the caller, where a candidate is no import path or a time is none."""
    if not isinstance(candidate, str):
        raise TypeError(
            f"a candidate is an import path such as 'my_pkg.kernels:MySoftcap', for each child imports it anew: "
            f"{type(candidate).__name__} was given"
        )
    if not is_time(timeout):
        raise ValueError(f"timeout {timeout!r} is not a number of seconds above 0 and below a million")


def _several(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, str | int | float) else tuple(given)
