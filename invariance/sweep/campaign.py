"""A sweep over caps, dtypes and passes: pieces in child processes, kept as they come, merged when all are there."""

from __future__ import annotations

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
        """Everything; an interrupt propagates and leaves the finished pieces in the report folder."""
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

    def _kept(self, target: Target, lo: int, hi: int) -> Certificate | None:
        """A piece that an earlier run left behind, if it is to be used."""
        path = self._piece_path(target, lo, hi)
        if path is None:
            return None
        for left in path.parent.glob(f"{_piece_name(target, lo, hi)}*"):
            if not self.resume or left != path:
                left.unlink()
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
            document.write(outcome.value, path)
        self._parts[target].append(outcome.value)
        self._left[target] -= 1
        self._finish(target)

    def _finish(self, target: Target) -> None:
        """Merge the pieces of a target once the last is there."""
        if self._left[target] or not self._parts[target]:
            return
        self.certificates[target] = merged(self._parts[target])
        if (path := self.path(target)) is None:
            return
        document.write(self.certificates[target], path)
        for part in self._parts[target]:
            piece = self._piece_path(target, *part.covered[0])
            if piece is not None:
                piece.unlink(missing_ok=True)
        if not any(path.with_name(PIECES).glob("*")) and path.with_name(PIECES).is_dir():
            path.with_name(PIECES).rmdir()


def _piece_name(target: Target, lo: int, hi: int) -> str:
    return f"{target.stem}.{lo:08x}-{hi - 1:08x}."
