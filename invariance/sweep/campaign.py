"""A sweep over caps, dtypes and passes: pieces in child processes, kept as they come, merged when all are there."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from invariance.process import Job, Outcome, run_jobs
from invariance.sweep import document
from invariance.sweep.certificate import Certificate, merged
from invariance.sweep.domain import Domain
from oracles.formats import cap_as_fp32
from oracles.tolerances import load_contract
from strategies.caps import cap_text
from strategies.dtypes import TORCH

Progress = Callable[[int, int, str], None]

PIECE = {"cpu": 1 << 25, "cuda": 1 << 28}
"""Magnitudes of one job: a few seconds on a core, a few milliseconds on a GPU."""
PIECES = "pieces"
TRIES = 10
"""At writing a file into a folder that other runs tidy up."""


@dataclass(frozen=True)
class Target:
    """One certificate to be made."""

    cap: float | int
    dtype: str
    pass_: str

    @property
    def stem(self) -> str:
        """The certificate's file name without shard and extension."""
        return f"{self.pass_}-{self.dtype}-{cap_text(self.cap)}"

    def __str__(self) -> str:
        return f"{self.pass_} {self.dtype} cap {cap_text(self.cap)}"


@dataclass
class Campaign:
    """The state of one sweep: `certificates` that are whole, `failures` in words.

    source: what the candidate is made of, see `work.source`; pieces of another source are no pieces of this sweep.
    """

    spec: str
    name: str
    targets: tuple[Target, ...]
    device: str = "cpu"
    shard: tuple[int, int] = (1, 1)
    report: Path | None = None
    resume: bool = False
    workers: int = 1
    timeout: float = 600.0
    progress: Progress | None = None
    source: str = ""
    certificates: dict[Target, Certificate] = field(default_factory=dict)
    failures: dict[Target, list[str]] = field(default_factory=dict)
    _parts: dict[Target, list[Certificate]] = field(default_factory=dict)
    _left: dict[Target, int] = field(default_factory=dict)

    def run(self) -> None:
        """Everything; an interrupt propagates and leaves the finished pieces in the report folder.

        Certificates that an earlier run left of these targets go first: what fails now has none. Raises Occupied
        where one of another candidate is in the place of one to come.
        """
        self._clear()
        jobs = [job for target in self.targets if target not in self.failures for job in self._jobs(target)]
        began, inputs = time.monotonic(), 0
        for done, outcome in enumerate(run_jobs(self._wanted(jobs), workers=self.workers), 1):
            inputs += 2 * (outcome.job.kwargs["hi"] - outcome.job.kwargs["lo"])
            self._receive(outcome)
            rate = inputs / (time.monotonic() - began)
            left = sum(2 * (job.kwargs["hi"] - job.kwargs["lo"]) for job in jobs) - inputs
            what = f"pieces, {rate / 1e6:.0f} M inputs/s, {left / rate:.0f} s left: {outcome.job.key}"
            if self.progress is not None:
                self.progress(done, len(jobs), what)
        for target, failures in self.failures.items():
            if (untried := self._left.get(target, 0) - len(failures)) > 0:
                failures.append(f"pieces that were not tried: {untried}")
        self._tidy()
        for target, certificate in self.certificates.items():
            self._see_that_it_stands(target, certificate)

    def left_behind(self) -> bool:
        """Whether there are pieces that a run with `resume` could use."""
        if self.report is None:
            return False
        own = f"*.{self.source[:12]}{document.SUFFIX}"
        names = [path.name for path in (self.report / PIECES).glob(own)]
        return any(name.startswith(f"{target.stem}.") for name in names for target in self.targets)

    def refuse(self, pass_: str, reason: str) -> None:
        """Fail the targets of a pass before any input is tried."""
        self.failures |= {target: [reason] for target in self.targets if target.pass_ == pass_}

    def _wanted(self, jobs: list[Job]) -> Iterator[Job]:
        """The jobs of targets that may still be whole: a candidate that hangs does not get every piece to hang in."""
        for job in jobs:
            if job.key not in self.failures:
                yield job

    @property
    def ok(self) -> bool:
        """Whether all that was asked for is there and breaks no rule."""
        return not self.failures and all(certificate.ok for certificate in self.certificates.values())

    def path(self, target: Target) -> Path | None:
        """Where the certificate of a target goes."""
        if self.report is None:
            return None
        number, of = self.shard
        part = "" if of == 1 else f".{number}of{of}"
        return self.report / f"{target.stem}{part}{document.SUFFIX}"

    def _jobs(self, target: Target) -> Iterator[Job]:
        domain = Domain(TORCH[target.dtype], float(target.cap), target.pass_)
        lo, hi = domain.shard(*self.shard)
        step = PIECE[torch.device(self.device).type]
        cuts = [lo, *range(lo - lo % step + step, hi, step), hi]
        spans = [span for span in itertools.pairwise(cuts) if span[0] < span[1]]
        self._parts[target] = [part for span in spans if (part := self._kept(target, *span)) is not None]
        have = {part.covered[0] for part in self._parts[target]}
        spans = [span for span in spans if span not in have]
        self._left[target] = len(spans)
        self._finish(target)
        for lo, hi in spans:
            kwargs = {"spec": self.spec, "device": self.device, "cap": target.cap, "dtype": target.dtype}
            kwargs |= {"pass_": target.pass_, "lo": lo, "hi": hi}
            yield Job("invariance.sweep.work:piece", kwargs, self.timeout, key=target)

    def _clear(self) -> None:
        paths = [path for target in self.targets if (path := self.path(target)) is not None]
        for path in paths:
            if (other := _candidate_of(path)) not in (None, self.name):
                raise Occupied(
                    f"{path} is of candidate {other}, and this run is of {self.name}: give each a folder"
                )
        for path in paths:
            path.unlink(missing_ok=True)

    def _kept(self, target: Target, lo: int, hi: int) -> Certificate | None:
        """A piece that an earlier run left behind, if it is to be used."""
        path = self._piece_path(target, lo, hi)
        if path is None:
            return None
        for left in path.parent.glob(f"{_piece_name(target, lo, hi)}*"):
            if not self.resume or left != path:
                left.unlink(missing_ok=True)
        if not path.is_file():
            return None
        try:
            part = document.read(path)
        except ValueError:
            return None
        key, contract = part.key, load_contract().fingerprint
        wanted = (self.name, cap_as_fp32(target.cap), target.dtype, target.pass_, contract)
        fits = (key.candidate, *key.subject, key.contract) == wanted and part.covered == ((lo, hi),)
        return part if fits else None

    def _piece_path(self, target: Target, lo: int, hi: int) -> Path | None:
        if self.report is None:
            return None
        return self.report / PIECES / f"{_piece_name(target, lo, hi)}{self.source[:12]}{document.SUFFIX}"

    def _receive(self, outcome: Outcome) -> None:
        target = outcome.job.key
        assert isinstance(target, Target)
        lo, hi = outcome.job.kwargs["lo"], outcome.job.kwargs["hi"]
        if outcome.kind != "done":
            where = outcome.announced or f"magnitudes {lo:#x} to {hi - 1:#x}"
            self.failures.setdefault(target, []).append(f"{where}: {outcome.reason}")
            return
        if (path := self._piece_path(target, lo, hi)) is not None:
            _write(outcome.value, path)
        self._parts[target].append(outcome.value)
        self._left[target] -= 1
        self._finish(target)

    def _finish(self, target: Target) -> None:
        """Merge the pieces of a target once the last is there."""
        if self._left[target] or not self._parts[target]:
            return
        self.certificates[target] = merged(self._parts[target])
        path = self.path(target)
        if path is not None and not path.exists():  # else by another run: seen below, and not overwritten
            _write(self.certificates[target], path)

    def _see_that_it_stands(self, target: Target, certificate: Certificate) -> None:
        """Two runs may write to one folder at once: each answers for its own certificates."""
        path = self.path(target)
        if path is None:
            return
        try:
            same = path.read_text("utf-8") == document.dumps(certificate)
        except (OSError, UnicodeDecodeError):
            same = False
        if not same:
            whose = _candidate_of(path)
            what = f"a certificate of {whose}" if whose else "no certificate"
            self.failures.setdefault(target, []).append(
                f"{path} holds {what} and not what this run found: another run writes there too"
            )

    def _tidy(self) -> None:
        """Remove the pieces of targets that are whole. Not before the end: an interrupted run resumes with them."""
        for target in self.certificates:
            for part in self._parts[target]:
                if (piece := self._piece_path(target, *part.covered[0])) is not None:
                    piece.unlink(missing_ok=True)
        if self.report is not None:
            with contextlib.suppress(OSError):  # of other runs there are pieces yet, or it is gone
                (self.report / PIECES).rmdir()


class Occupied(Exception):
    """A certificate of another candidate is where this run would put its own; the message names both."""


def _candidate_of(path: Path) -> str | None:
    try:
        return document.read(path).key.candidate
    except ValueError:
        return None


def _write(certificate: Certificate, path: Path) -> None:
    """Write it, again where another run removed the folder, or took the file that was to be renamed, meanwhile."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(FileNotFoundError):
            document.write(certificate, path)
            return
    document.write(certificate, path)


def _piece_name(target: Target, lo: int, hi: int) -> str:
    return f"{target.stem}.{lo:08x}-{hi - 1:08x}."
