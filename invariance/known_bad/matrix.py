"""The kill matrix: every kernel of the catalogue judged in its tier, and what became of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass

from invariance.interrupts import SEEN_WITHIN, heed
from invariance.known_bad.entry import Entry
from invariance.known_bad.here import reason_not_here
from invariance.offered import ONE_A_VENDOR
from invariance.plan import LEAST, Settings, laws
from invariance.process import Child, Job
from invariance.server import closed_down
from invariance.session import Session
from invariance.verdict import Verdict
from strategies.case import Case

# What a launch can get wrong. No law of accuracy is among them: it would grade the tanh that stands in for another.
INTERPRETER_LAWS = (
    "slicing", "inputs_unmodified", "guard_bands", "freed_memory", "empty_and_scalar", "autograd_gradients",
    "changed_in_place", "cap_used", "bad_caps", "far_offsets",
)  # fmt: skip

# Each takes as long as five to fifty others: a first trace, children of its own, threads, a thousand calls, every
# setting of the process. Wrong kernels of the plan's tier meet them only where they name them, right ones always.
DEAR = frozenset(
    {
        "first_call", "fresh_process", "many_calls", "memory_growth", "process_left_alone", "process_state",
        "threads_at_once", "traced",
    }
)  # fmt: skip

# Attempts on one failure: the report wants a small case, not the smallest one.
SHRINKS = {"plan": 24, "interpreter": 12, "device": 24}
POST_MORTEM = 30  # of a process that died or hung, see `lost`: for a hang six seconds


@dataclass(frozen=True)
class Failure:
    """The first failing cell of a law. elements: of the shrunk case; None where there is no case."""

    law: str
    judgement: str
    pass_: str
    dtype: str
    what: str
    elements: int | None = None
    case: str | None = None


@dataclass(frozen=True)
class Row:
    """What became of one kernel. not_run: why it was not judged here. compared: elements that were compared.

    unjudged: laws that were asked for, could not be judged on it, and failed in no other cell, with the reason.
    """

    entry: Entry
    failures: tuple[Failure, ...] = ()
    compared: int = 0
    unjudged: tuple[tuple[str, str], ...] = ()
    not_run: str | None = None

    @property
    def failed(self) -> frozenset[str]:
        """The laws that failed."""
        return frozenset(failure.law for failure in self.failures)

    @property
    def killed(self) -> bool:
        """Whether a wrong kernel was judged, and every law that must fail did."""
        return self.entry.wrong and self.not_run is None and self.entry.must <= self.failed

    @property
    def false_alarm(self) -> bool:
        """Whether a right kernel was judged and refused."""
        return not self.entry.wrong and self.not_run is None and bool(self.failed)

    @property
    def complaints(self) -> list[str]:
        """What is not as the entry says; empty where the kernel was judged right, or not judged."""
        return [] if self.not_run is not None else [*self._about_laws(), *self._about_cases()]

    def _about_laws(self) -> Iterator[str]:
        entry = self.entry
        yield from (f"{law} did not fail" for law in sorted(entry.must - self.failed))
        yield from (f"{f.law} failed: {f.what}" for f in self.failures if not entry.allows(f.law))
        yield from (f"{law} did not run: {reason}" for law, reason in self.unjudged)
        if self.compared == 0:
            yield "nothing was compared"

    def _about_cases(self) -> Iterator[str]:
        most = self.entry.elements
        for failure in self.failures:
            if failure.law in self.entry.must and (failure.elements or 0) > most:
                yield f"the shrunk case of {failure.law} has {failure.elements} elements, at most {most} were expected"


def judge(entry: Entry, *, seed: int = 0) -> Row:
    """Judge one kernel in its tier; a row that says why where this machine does not have the tier."""
    reason = reason_not_here(entry.tier)
    if reason is not None:
        return Row(entry, not_run=reason)
    return _judge_code(entry) if entry.tier == "codegen" else _judge_calls(entry, seed)


def judge_all(
    entries: Iterable[Entry], *, jobs: int, seed: int = 0, progress: Callable[[Row], None] = lambda _: None
) -> Iterator[Row]:
    """Rows in the order of the entries, judged `jobs` at a time; each kernel has children of its own.

    An interrupt ends those that are being judged, and propagates.
    """
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in [pool.submit(judge, entry, seed=seed) for entry in entries]:
                while not future.done():
                    wait([future], timeout=SEEN_WITHIN)
                    heed()
                progress(row := future.result())
                yield row
        except (KeyboardInterrupt, GeneratorExit):
            with closed_down():
                pool.shutdown(cancel_futures=True)
            raise


def _judge_calls(entry: Entry, seed: int) -> Row:
    """The plan on the caps and dtypes of the entry."""
    settings = Settings(
        caps=entry.caps,
        dtypes=entry.dtypes,
        device="cuda:0" if entry.tier == "device" else "cpu",
        profile=entry.profile or _profile(entry),
        seed=seed,
        laws=_laws(entry),
    )
    session = Session(
        settings,
        (entry.spec,),
        timeout=entry.timeout,
        explore=False,
        check_grad=True,
        first_failures=True,
        shrinks=SHRINKS[entry.tier],
        attempts=POST_MORTEM,
    )
    report = session.run()
    failures = tuple(_failure(verdict) for verdict in report.failures)
    failed = {failure.law for failure in failures}
    unjudged = {v.cell.law: v.reason or "no reason given" for v in report.not_run if v.cell.law not in failed}
    return Row(entry, failures, sum(v.elements for v in report.verdicts), tuple(unjudged.items()))


def _profile(entry: Entry) -> str:
    """The least in the interpreter and for wrong kernels, which nearly all show on its two shapes; else more."""
    least = entry.tier == "interpreter" or (entry.tier == "plan" and entry.wrong)
    return LEAST if least else "quick"


def _laws(entry: Entry) -> tuple[str, ...]:
    """The laws that an entry is judged by, by name; empty for all."""
    if entry.laws or entry.tier == "interpreter":
        return entry.laws or INTERPRETER_LAWS
    if not entry.wrong or entry.tier == "device":
        return ()
    spared = DEAR - entry.must - entry.may
    every = laws(Settings(dtypes=entry.dtypes, device="cpu"))
    return tuple(law.id for law in every if law.id not in spared and set(law.dtypes) & set(entry.dtypes))


def _failure(verdict: Verdict) -> Failure:
    cell, broken = verdict.cell, verdict.mismatch
    words = [f"{broken.label}: {broken.what}" if broken else "", verdict.reason or ""]
    return Failure(
        cell.law,
        verdict.judgement,
        cell.pass_,
        cell.dtype,
        "; ".join(word for word in words if word),
        None if verdict.case is None else math.prod(Case.loads(verdict.case).shape),
        verdict.case,
    )


def _judge_code(entry: Entry) -> Row:
    """The laws of the code generation tier, a job for each target: a compiler may end its process."""
    failures: list[Failure] = []
    judged = 0
    with closing(Child()) as child:
        for target in ONE_A_VENDOR:
            found, facts = _code_for(target, entry, child)
            failures += found
            judged += facts
    return Row(entry, _first_of_each(failures), judged)


def _code_for(target: str, entry: Entry, child: Child) -> tuple[list[Failure], int]:
    """The laws broken on one target; a child that does not survive it breaks `compiles`."""
    asked = {"spec": entry.spec, "dtypes": entry.dtypes, "target": target}
    outcome = child.run(Job("invariance.known_bad.code:broken_laws", asked, entry.timeout))
    if outcome.kind != "done":
        return [Failure("compiles", "FI", "forward", entry.dtypes[0], f"for {target}: {outcome.reason}")], 1
    found, judged = outcome.value
    failures = [
        Failure(law, "GI" if pass_ == "backward" else "FI", pass_, dtype, what)
        for law, pass_, dtype, what in found
    ]
    return failures, judged


def _first_of_each(failures: list[Failure]) -> tuple[Failure, ...]:
    return tuple({failure.law: failure for failure in reversed(failures)}.values())[::-1]


@dataclass(frozen=True)
class Score:
    """The last line, and the exit status."""

    killed: int
    wrong: int
    false_alarms: int
    right: int

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Score:
        """The score of all rows, those not run included: a fault not run is not killed."""
        rows = list(rows)
        wrong = [row for row in rows if row.entry.wrong]
        return cls(
            sum(row.killed for row in rows),
            len(wrong),
            sum(row.false_alarm for row in rows),
            len(rows) - len(wrong),
        )

    def __str__(self) -> str:
        percent = 100.0 * self.killed / self.wrong if self.wrong else 0.0
        return (
            f"killed {self.killed} of {self.wrong} ({percent:.1f}%), "
            f"false alarms {self.false_alarms} of {self.right}"
        )
