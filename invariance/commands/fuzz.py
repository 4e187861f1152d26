"""fuzz: new caps by the thousand, each with whole domains of inputs."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path

from invariance.arguments import ON_A_GPU
from invariance.candidate import CandidateNotLoadable
from invariance.environment import NoSuchDevice, resolve_device
from invariance.fuzz import corpus, report
from invariance.fuzz.campaign import Campaign, Limits, ignored
from invariance.fuzz.finding import Finding
from invariance.fuzz.rounds import Subject
from invariance.fuzz.schedule import Schedule
from invariance.usage import IN_A_LOG, Pace, UsageError, abandoned, tell, writable
from strategies.campaign import CapRange, bf16_caps
from strategies.caps import HIGHEST, LOWEST
from strategies.simplest import read_spelled

DEFAULT_MINUTES = 1.0
TICK = 0.2  # seconds between two progress lines on a terminal, where each takes the place of the one before
LEAST_PATIENCE = 1.0  # seconds: a cap takes 0.03 on an idle core, and a busy machine many times that


def run(options: argparse.Namespace) -> int:
    """Search, deliver the report, and give the exit status."""
    try:
        campaign = read(options)
        if options.report is not None:  # an older report is not this run's, whatever ends it
            report.write(report.as_json(campaign), options.report)
    except KeyboardInterrupt:
        abandoned(options.report, "fuzz")
        raise
    except OSError as error:
        raise UsageError(f"--report {options.report}: {error.strerror or error}") from error
    try:
        campaign.run()
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    except KeyboardInterrupt:  # before the first round
        campaign.interrupted = True
    if sys.stderr.isatty():
        print("\r\x1b[2K", end="", file=sys.stderr)
    return deliver(campaign, options)


def deliver(campaign: Campaign, options: argparse.Namespace) -> int:
    """Files first, then standard output; the exit status. What cannot be written does not keep the rest back."""
    made, failure = report.as_json(campaign), None
    try:
        if options.report is not None:
            report.write(made, options.report)
    except OSError as error:
        failure = f"--report {options.report}: {error.strerror or error}"
    print(report.dumps(made) if options.json else report.text(made), end="", flush=True)
    if isinstance(campaign.on_finding, corpus.Keeper) and campaign.on_finding.failure:
        print(f"softcap-verify: --corpus {options.corpus}: {campaign.on_finding.failure}", file=sys.stderr)
    if campaign.interrupted:
        print("softcap-verify: interrupted; the report is incomplete", file=sys.stderr)
        return 130
    if failure is not None:
        raise UsageError(failure)
    return report.status(made)


def read(options: argparse.Namespace) -> Campaign:
    """The campaign that the options ask for; raises UsageError."""
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    if options.timeout < LEAST_PATIENCE:
        raise UsageError(
            f"--timeout {options.timeout:g}: a cap is all inputs of three dtypes, give it {LEAST_PATIENCE:g} s at least"
        )
    exhaustive = options.campaign == "bf16xbf16"
    subject = Subject(options.candidate, device, options.seed, ("bf16",) if exhaustive else Subject.dtypes)
    within = _range(options.softcap_range)
    if exhaustive and not bf16_caps(within):
        raise UsageError(f"--softcap-range {options.softcap_range}: BF16 has no cap there")
    writable(options.report)
    keeper = _keeper(options.corpus)
    schedule = Schedule(options.campaign, within, options.seed, options.shard)
    cores = os.cpu_count() or 1
    cores = cores if device == "cpu" else min(cores, ON_A_GPU)
    endless = options.examples is not None or (exhaustive and options.minutes is None)
    limits = Limits(
        None if endless else 60.0 * (options.minutes or DEFAULT_MINUTES),
        options.examples,
        options.timeout,
        options.jobs or cores,
    )
    return Campaign(subject, schedule, limits, _Line().show, keeper)


def _keeper(path: Path | None) -> Callable[[Finding], None]:
    """Appends to a corpus; one that cannot take lines is refused before the search, not after it."""
    if path is None:
        return ignored
    try:
        corpus.prepare(path)
    except (OSError, corpus.NoCorpus) as error:
        raise UsageError(f"--corpus {path}: {getattr(error, 'strerror', None) or error}") from error
    return corpus.Keeper(path)


class _Line:
    """The progress line: rewritten in place on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._pace = Pace(TICK if sys.stderr.isatty() else IN_A_LOG)

    def show(self, campaign: Campaign) -> None:
        """Caps done, inputs judged, inputs per second, worst so far."""
        if self._pace.due():
            tell(report.progress(campaign))


def _range(text: str | None) -> CapRange:
    if text is None:
        return CapRange(LOWEST, HIGHEST)
    low, colon, high = text.partition(":")
    try:
        assert colon
        return CapRange(read_spelled(low), read_spelled(high))
    except (ValueError, OverflowError, AssertionError):
        raise UsageError(
            f"--softcap-range {text!r} is not LO:HI: give two caps, finite and positive in FP32, the lower one first, "
            "as 0.5, 1e-3, 0x1.8p3, 2^-60 or 2^10+step"
        ) from None
