"""A campaign: rounds in children, until the time or the caps are spent; what breaks is explained as it comes."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from invariance import environment
from invariance.candidate import display_name
from invariance.fuzz.asked import Asked
from invariance.fuzz.deaths import death
from invariance.fuzz.finding import LISTED, Finding
from invariance.fuzz.findings import Explainer
from invariance.fuzz.probing import known_of
from invariance.fuzz.rounds import CRASHED, LATE, Broken, Judged, Subject
from invariance.fuzz.schedule import Schedule
from invariance.interrupts import heed, settled
from invariance.process import Job, Outcome, run_jobs
from oracles.formats import cap_as_fp32
from oracles.tolerances import load_contract
from strategies.caps import as_fp32

Progress = Callable[["Campaign"], None]

HANGS_ENDURED = 6  # rounds that may time out before the campaign stops
SHORT_PATIENCE = 5.0  # seconds
NEWS = 5.0  # seconds after which a child tells what it has
BRIEF = 3.0  # seconds for a cap that kills or hangs
SHOWN = 16  # worst caps of a pass that are kept


def unseen(campaign: Campaign) -> None:
    """No progress line."""


def ignored(finding: Finding) -> None:
    """Nobody is told of a finding before the report."""


@dataclass(frozen=True)
class Limits:
    """When a campaign ends: seconds or caps, whichever is given and first reached.

    timeout: seconds that a cap may take.
    """

    seconds: float | None = None
    caps: int | None = None
    timeout: float = 60.0
    workers: int = 1


def _inside(asked: Asked) -> bool:
    return load_contract().judges_cap(cap_as_fp32(asked.cap))


class _Jobs:
    """What `give` gives; after a None there may be more, when a child that is still at work leaves some of its caps."""

    def __init__(self, give: Callable[[], Job | None]) -> None:
        self._give = give

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        job = self._give()
        if job is None:
            raise StopIteration
        return job


@dataclass
class Campaign:
    """A campaign and what it found; `finish` may be called at any time.

    caps, outside: done in the judged domain and outside it. worst: by pass, (error, Judged), first the largest share of
    what a correct kernel may have at its cap. findings, apart: inside the domain and outside it. drawn: by source, the
    caps that were judged. first_found: after how many seconds the first failure was explained.
    """

    subject: Subject
    schedule: Schedule
    limits: Limits
    progress: Progress = unseen
    on_finding: Callable[[Finding], None] = ignored
    probe: dict[str, Any] = field(default_factory=dict)
    caps: int = 0
    outside: int = 0
    inputs: int = 0
    flushed: int = 0
    escalated: int = 0
    seconds: float = 0.0
    worst: dict[str, list[tuple[float, Judged]]] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    apart: list[Finding] = field(default_factory=list)
    drawn: Counter[str] = field(default_factory=Counter)
    first_found: float | None = None
    complete: bool = False
    interrupted: bool = False
    stopped: str | None = None
    _asked: int = 0
    _rounds: Iterator[list[Asked]] = field(default_factory=lambda: iter(()))
    _started: float = 0.0
    _times: dict[tuple[bool, tuple[str, ...]], int] = field(default_factory=dict)
    _first: dict[tuple[bool, tuple[str, ...]], Finding] = field(default_factory=dict)
    _hangs: int = 0
    _slowest: float = 0.0
    _loading: float = 0.0
    _left: list[list[Asked]] = field(default_factory=list)

    @property
    def begun(self) -> bool:
        """Whether it has run at all."""
        return self._started > 0.0

    @property
    def found(self) -> bool:
        """Whether anything that was asked for broke."""
        return bool(self.findings or self.apart)

    def run(self) -> None:
        """Everything; raises CandidateNotLoadable. An interrupt ends it, and is noted."""
        self._started, self._rounds = time.monotonic(), iter(self.schedule)
        try:
            self.prepare()
            self._started = time.monotonic()
            for outcome in run_jobs(_Jobs(self._next_job), workers=self.limits.workers):
                self.receive(outcome)
                self.seconds = time.monotonic() - self._started
                self.progress(self)
            heed()  # one that was swallowed after the last round
            ended = self.schedule.ended and not self._left
            self.complete = self.stopped is None and (ended or not self.schedule.exhaustive)
        except KeyboardInterrupt:
            self.interrupted = True
            settled()
        self.seconds = time.monotonic() - self._started

    def prepare(self) -> None:
        """Ask what the candidate is; raises CandidateNotLoadable for what cannot be loaded or has one cap only."""
        known = known_of(self.subject, self.limits.timeout)
        self.probe, self._loading = known.facts, known.loading
        if not self.probe["differentiable"]:
            self.subject = replace(
                self.subject, passes=tuple(p for p in self.subject.passes if p != "backward")
            )
        self.schedule.forms = self.probe["forms"]
        for broken in known.broken:
            self.schedule.given(broken.asked.cap, "before the first round")
            self._take(Judged(broken.asked, 1, broken=[broken]))

    def _next_job(self) -> Job | None:
        """Caps that a child did not come to, else the next round; None while there is nothing to do."""
        if self._hangs >= HANGS_ENDURED:
            self.stopped = f"the candidate did not return in {self._hangs} rounds: the campaign stopped there"
            return None
        if self._late():
            return None
        if self._left:
            return self._job(self._left.pop())
        room = math.inf if self.limits.caps is None else self.limits.caps - self._asked
        caps = next(self._rounds, []) if room > 0 else []
        caps = caps[: int(min(room, len(caps)))]
        self._asked += len(caps)
        return self._job(caps) if caps else None

    def _late(self) -> bool:
        return self.limits.seconds is not None and time.monotonic() - self._started >= self.limits.seconds

    def _job(self, caps: list[Asked]) -> Job:
        """A round, which begins no cap in its last two thirds: any cap has its patience, and slow ones are no hang.

        It ends early for the sake of the progress line, and of an interrupt, which loses what is not told yet.
        """
        patience = self._patience()  # a new child loads the candidate first
        kwargs = {"subject": self.subject, "caps": caps, "seconds": min(patience / 2, NEWS)}
        return Job(
            "invariance.fuzz.rounds:run_round", kwargs, 1.5 * patience + 2 * self._loading, key=patience
        )

    def _patience(self) -> float:
        """Seconds for a cap: once the candidate has hung, a few times what an honest round took."""
        if not self._hangs:
            return self.limits.timeout
        return min(self.limits.timeout, max(SHORT_PATIENCE, 4.0 * self._slowest))

    def receive(self, outcome: Outcome) -> None:
        """Take what became of a round."""
        if outcome.kind == "done":
            self._slowest = max(self._slowest, outcome.seconds)
            self._put_back(outcome.job.kwargs["caps"][len(outcome.value) :])
            for judged in outcome.value:
                self._take(judged)
            return
        self._hangs += outcome.kind == "timed out"
        broken, left = death(outcome, self.subject)
        for caps in left:
            self._put_back(caps)
        self._take(Judged(broken.asked, 1, broken=[broken]))

    def _put_back(self, caps: list[Asked]) -> None:
        if caps:
            self._left.append(caps)

    def _take(self, judged: Judged) -> None:
        inside = _inside(judged.asked)
        self.caps, self.outside = self.caps + inside, self.outside + (not inside)
        self.drawn[self.schedule.source(judged.asked.cap)] += 1
        self.inputs += judged.elements
        self.flushed += judged.flushed
        self.escalated += judged.escalated
        # One dtype speaks for the others: a cap that is wrong is mostly wrong in all of them.
        first: dict[tuple[str, ...], Broken] = {}
        for broken in judged.broken:
            first.setdefault(broken.cause, broken)
        for broken in first.values():
            self._broken(broken, self.findings if inside else self.apart)
        if not inside:
            return
        for pass_ in judged.worst if not judged.broken else ():
            self._keep_worst(pass_, judged)
        self.schedule.learn(
            judged.asked.cap, max((judged.share(pass_) for pass_ in judged.worst), default=0.0)
        )

    def _keep_worst(self, pass_: str, judged: Judged) -> None:
        """One row a cap, whatever form it was given in."""
        cap, rows = as_fp32(judged.asked.cap), self.worst.get(pass_, [])
        same = [j for _, j in rows if as_fp32(j.asked.cap) == cap]
        top = max([*same, judged], key=lambda j: j.share(pass_))
        kept = [j for _, j in rows if as_fp32(j.asked.cap) != cap] + [top]
        kept.sort(key=lambda j: -j.share(pass_))
        self.worst[pass_] = [(j.worst[pass_].error, j) for j in kept[:SHOWN]]

    def _broken(self, broken: Broken, there: list[Finding]) -> None:
        """Make failure 1, 2, 4, 8, ... of a cause small, and count the others: most are one."""
        key = (there is self.apart, broken.cause)
        times = self._times[key] = self._times.get(key, 0) + 1
        known = self._first.get(key)
        dear = broken.kind in (CRASHED, LATE)  # each look at it costs a process
        if known is not None and (times & (times - 1) or dear or self._late()):
            self._count(known, broken)
            return
        patience, brief = self.limits.timeout, min(BRIEF, self.limits.timeout)
        explainer = Explainer(
            self.subject, self.schedule.within, patience + self._loading, brief + self._loading, patience
        )
        try:
            finding = explainer.explain(broken, there)
        except KeyboardInterrupt:
            if known is None:
                self._found(explainer.unexplained(broken), there)
            else:
                self._count(known, broken)
            raise
        there = self.findings if _inside(finding.asked) else self.apart  # made small, it may have come inside
        same = next((f for f in there if f.same(finding)), None)
        self._first.setdefault(key, same or finding)
        self._found(finding, there) if same is None else self._count(same, broken)

    def _found(self, finding: Finding, there: list[Finding]) -> None:
        if self.first_found is None:
            self.first_found = time.monotonic() - self._started
        there.append(finding)
        self.on_finding(finding)

    def _count(self, known: Finding, broken: Broken) -> None:
        """Once more what is known: the first finding like it has the number."""
        there = self.findings if _inside(known.asked) else self.apart
        place = next(place for place, other in enumerate(there) if other.same(known))
        seen = there[place].seen_at
        if len(seen) < LISTED and str(broken.asked) not in seen:
            seen = (*seen, str(broken.asked))
        there[place] = replace(there[place], seen_at=seen, times=there[place].times + 1)

    def environment(self) -> dict[str, Any]:
        """Provenance; nothing in it is compared between two reports."""
        described = environment.describe(
            self.subject.device,
            self.schedule.seed,
            {display_name(self.subject.spec): self.probe or {"ran": None}},
        )
        return {**described, "workers": self.limits.workers, "cores": os.cpu_count()}

    def rate(self) -> float:
        """Inputs per second so far."""
        return self.inputs / self.seconds if self.seconds > 0 and math.isfinite(self.seconds) else 0.0
