"""Child processes that survive nothing, so that the suite survives everything.

A job is a function named by import path, run in a child of the fork server: every child is a fresh process. A child
that dies or overstays its time is a result like any other, together with the last thing it announced.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from invariance import interrupts, server

LOST_DEVICE = 79  # the exit status of a child that left because of that
_ADDRESS = re.compile(r" at 0x[0-9a-f]{6,}")  # as in the default repr of an object

_parent: Connection | None = None  # set in children only
_process: int | None = None  # the child's own, which a copy that a candidate forks does not have


@dataclass(frozen=True)
class Job:
    """`target` is "module:function"; `kwargs` are plain data; `timeout` is in seconds."""

    target: str
    kwargs: dict[str, Any]
    timeout: float
    key: object = None

    @property
    def subject(self) -> str | None:
        """The import path of the candidate that it loads, if any: no child loads a second one."""
        spec = self.kwargs.get("spec") or getattr(self.kwargs.get("subject"), "spec", None)
        return None if spec is None else str(spec)


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a value, or a failure in words and the last thing the child announced.

    failure: of a job that raised, the traceback. reason: the same in one line.
    """

    job: Job
    value: Any = None
    failure: str | None = None
    kind: str = "done"  # done, raised, crashed, timed out
    announced: str | None = None
    seconds: float = 0.0
    reason: str | None = None


def announce(text: str) -> None:
    """In a child: tell the parent what is about to be tried, so that a crash has a name."""
    if _parent is not None and os.getpid() == _process:
        _parent.send(("announce", text))


def keep(value: Any) -> None:
    """In a child: what the job's value is, should its time end before it returns."""
    if _parent is not None and os.getpid() == _process:
        _parent.send(("keep", value))


def fresh(target: str, timeout: float = 60.0, **kwargs: Any) -> Any:
    """Run `target` in another fresh process and return what it returns; raises RuntimeError when it fails."""
    if _parent is None:
        outcome = run_job(Job(target, kwargs, timeout))
        if outcome.failure is not None:
            raise RuntimeError(outcome.failure)
        return outcome.value
    _parent.send(("fresh", Job(target, kwargs, timeout)))
    value, failure = _parent.recv()
    if failure is not None:
        raise RuntimeError(failure)
    return value


def resolve(target: str) -> Any:
    """The function that "module:function" names."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _serve(connection: Connection) -> None:
    """A child's life: jobs in, results out, until the parent hangs up."""
    global _parent, _process
    _parent, _process = connection, os.getpid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    _silence_standard_output()
    import torch  # noqa: PLC0415 - the parent starts the server before it imports torch itself

    torch.set_num_threads(1)
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        answer = _answer(job)
        if (
            os.getpid() != _process
        ):  # a candidate forked, and its copy came back here too: one of them answers
            os._exit(0)
        connection.send(answer)


def _answer(job: Job) -> tuple[str, Any]:
    try:
        return "done", resolve(job.target)(**job.kwargs)
    except BaseException as error:  # noqa: BLE001 - goes to the parent whole; a candidate may also exit
        leave_a_lost_device()
        return "raised", (traceback.format_exc(), in_one_line(error))


def in_one_line(error: BaseException) -> str:
    """The type and the first line of an exception; the line alone where its class says that this is enough.

    Without the addresses of objects, which are others in each process.
    """
    line = _ADDRESS.sub("", next(iter(str(error).strip().splitlines()), ""))
    if line and getattr(error, "says_all", False):
        return line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def leave_a_lost_device(device: str | None = None) -> None:
    """End this child where its accelerator answers no more, as after an access that faulted.

    Whatever runs in the process then fails too, and would be blamed on laws and cases that have no part in it.
    """
    import torch  # noqa: PLC0415 - as below

    if _parent is None or os.getpid() != _process:
        return
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
        return
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        os._exit(LOST_DEVICE)


def _silence_standard_output() -> None:
    """A candidate that prints must not write into the report: its standard output goes to standard error."""
    sys.stdout.flush()
    os.dup2(2, 1)


@dataclass
class _Worker:
    """One child and the parent's end of its pipe."""

    process: Any = None
    connection: Connection | None = None
    job: Job | None = None
    started: float = 0.0
    announced: str | None = None
    kept: Any = None
    subject: str | None = None

    def start(self, job: Job) -> None:
        if None not in (self.subject, job.subject) and self.subject != job.subject:
            self.stop()  # what one candidate imports, patches or sets is not there for the next
        if self.process is None:
            self._spawn()
        self.subject = job.subject or self.subject
        assert self.connection is not None
        self.job, self.announced, self.kept, self.started = job, None, None, time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # died between jobs: the wait below sees it
            self.connection.send(job)

    def _spawn(self) -> None:
        with server.starting() as context:
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self.connection, self.process = ours, process  # last: an interrupt leaves nothing half started

    @property
    def deadline(self) -> float:
        assert self.job is not None
        return self.started + self.job.timeout

    def stop(self) -> str:
        """Kill the child; how it ended, in words."""
        if self.process is None:
            return "not started"
        self.process.kill() if self.process.exitcode is None and self.job is not None else None
        if self.connection is not None:
            self.connection.close()
        self.process.join(10)
        code = self.process.exitcode
        self.process = self.connection = self.subject = None
        return _how(code)


def _how(code: int | None) -> str:
    if code is None:
        return "did not end"
    if code == LOST_DEVICE:
        return "lost its device, which answers no more after an access that faulted or an error as grave"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"died of {signal.Signals(-code).name}"
    return f"exited with status {code}"


class Child:
    """One child for many jobs of one candidate, for a caller that has one at a time; anew after a crash."""

    def __init__(self) -> None:
        self._worker = _Worker()

    def run(self, job: Job, waiting: Callable[[float], None] = lambda _: None) -> Outcome:
        """Wait for the outcome of one job; `waiting` is told the seconds so far, several times a second."""
        interrupts.heed()
        self._worker.start(job)
        while True:
            waiting(time.monotonic() - self._worker.started)
            for worker in _ready([self._worker]):
                outcome = _collect(worker)
                if outcome is not None:
                    return outcome

    def close(self) -> None:
        """End the child."""
        self._worker.stop()


def run_job(job: Job) -> Outcome:
    """The outcome of one job in a child of its own."""
    child = Child()
    try:
        return child.run(job)
    finally:
        child.close()


def run_jobs(jobs: Iterable[Job], *, workers: int) -> Iterator[Outcome]:
    """Outcomes of `jobs` as they come, `workers` children at a time. Closing the iterator kills the children."""
    pool = [_Worker() for _ in range(workers)]
    waiting = iter(jobs)
    try:
        busy = [worker for worker in pool if _next(worker, waiting)]
        while busy:
            for worker in _ready(busy):
                outcome = _collect(worker)
                if outcome is None:
                    continue
                yield outcome
                if not _next(worker, waiting):
                    busy.remove(worker)
    finally:
        for worker in pool:
            worker.stop()


def _next(worker: _Worker, waiting: Iterator[Job]) -> bool:
    job = next(waiting, None)
    if job is None:
        return False
    worker.start(job)
    return True


def _ready(busy: list[_Worker]) -> list[_Worker]:
    """Workers that said something, died, or are out of time."""
    patience = max(0.0, min(worker.deadline for worker in busy) - time.monotonic())
    patience = min(patience, interrupts.SEEN_WITHIN)
    spoke = set(wait([worker.connection for worker in busy if worker.connection], timeout=patience))
    interrupts.heed()
    late = time.monotonic()
    return [worker for worker in busy if worker.connection in spoke or late >= worker.deadline]


def _collect(worker: _Worker) -> Outcome | None:
    """The worker's outcome, or None while it goes on."""
    assert worker.job is not None
    assert worker.connection is not None
    job, seconds = worker.job, time.monotonic() - worker.started
    if not worker.connection.poll():
        worker.stop()
        if worker.kept is not None:
            return Outcome(job, worker.kept, None, "done", worker.announced, seconds)
        late = f"no result within {job.timeout:g} s"
        return Outcome(job, None, late, "timed out", worker.announced, seconds, late)
    try:
        kind, value = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join(10)
        how = f"the process {worker.stop()}"
        return Outcome(job, None, how, "crashed", worker.announced, seconds, how)
    if kind == "announce":
        worker.announced = value
        return None
    if kind == "keep":
        worker.kept = value
        return None
    if kind == "fresh":
        worker.connection.send(_run_fresh(value))
        return None
    worker.job = None
    if kind == "raised":
        return Outcome(job, None, value[0], "raised", worker.announced, seconds, value[1])
    return Outcome(job, value, None, "done", worker.announced, seconds)


def _run_fresh(job: Job) -> tuple[Any, str | None]:
    outcome = run_job(job)
    return outcome.value, outcome.failure
