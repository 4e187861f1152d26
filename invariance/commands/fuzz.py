"""fuzz: new caps by the thousand, each with whole domains of inputs."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from invariance.arguments import ON_A_GPU
from invariance.candidate import CandidateNotLoadable
from invariance.environment import NoSuchDevice, resolve_device
from invariance.fuzz import corpus, report
from invariance.fuzz.campaign import Campaign, Limits, ignored
from invariance.fuzz.findings import Finding
from invariance.fuzz.rounds import Subject
from invariance.fuzz.schedule import Schedule
from invariance.usage import UsageError, read_shard, read_whole, writable
from strategies.campaign import CapRange
from strategies.caps import HIGHEST, LOWEST, as_fp32

DEFAULT_MINUTES = 1.0
TICK = 0.2  # seconds between two progress lines


def run(options: argparse.Namespace) -> int:
    """Search, deliver the report, and give the exit status."""
    campaign = read(options)
    try:
        campaign.run()
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    except KeyboardInterrupt:  # before the first round
        campaign.interrupted = True
    if sys.stderr.isatty():
        print("\r\x1b[2K", end="", file=sys.stderr)
    made = report.as_json(campaign)
    if options.report is not None:
        try:
            report.write(made, options.report)
        except OSError as error:
            raise UsageError(f"--report {options.report}: {error.strerror}") from error
    print(report.dumps(made) if options.json else report.text(made), end="")
    if campaign.interrupted:
        print("softcap-verify: interrupted; the report is incomplete", file=sys.stderr)
        return 130
    return 0 if made["verdict"].startswith("nothing") else 1


def read(options: argparse.Namespace) -> Campaign:
    """The campaign that the options ask for; raises UsageError."""
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    writable(options.report)
    _check_corpus(options.corpus)
    exhaustive = options.campaign == "bf16xbf16"
    seed = read_whole("--seed", options.seed, least=0)
    subject = Subject(options.candidate, device, seed, ("bf16",) if exhaustive else Subject.dtypes)
    within = _range(options.softcap_range)
    schedule = Schedule(options.campaign, within, seed, read_shard(options.shard))
    cores = os.cpu_count() or 1
    cores = cores if device == "cpu" else min(cores, ON_A_GPU)
    endless = options.examples is not None or (exhaustive and options.minutes is None)
    limits = Limits(
        None if endless else 60.0 * _number("--minutes", options.minutes),
        read_whole("--examples", options.examples, least=1) if options.examples is not None else None,
        _number("--timeout", options.timeout),
        read_whole("--jobs", options.jobs, least=1) if options.jobs else cores,
    )
    return Campaign(subject, schedule, limits, _Line().show, _kept(options.corpus))


def _check_corpus(path: Path | None) -> None:
    """A corpus that cannot be written is refused before the search, not after it."""
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"--corpus {path} is a folder, not a file")
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise UsageError(f"--corpus {path}: {error.strerror}") from error


def _kept(path: Path | None) -> Callable[[Finding], None]:
    return ignored if path is None else partial(corpus.append, path)


class _Line:
    """The progress line: rewritten in place, on a terminal only."""

    def __init__(self) -> None:
        self._next = 0.0

    def show(self, campaign: Campaign) -> None:
        """Caps done, inputs judged, inputs per second, worst so far."""
        if not sys.stderr.isatty() or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + TICK
        first = {pass_: rows[0] for pass_, rows in sorted(campaign.worst.items()) if rows}
        worst = [f"worst {pass_} {error:.4g} at {judged.asked}" for pass_, (error, judged) in first.items()]
        parts = [
            f"{campaign.caps + campaign.outside:,} caps",
            f"{campaign.inputs:,} inputs",
            f"{campaign.rate():.3g}/s",
            *worst,
            f"{len(campaign.findings)} failures",
        ]
        print(f"\r\x1b[2K{', '.join(parts)}", end="", file=sys.stderr, flush=True)


def _range(text: str | None) -> CapRange:
    if text is None:
        return CapRange(LOWEST, HIGHEST)
    low, colon, high = text.partition(":")
    try:
        ends = [as_fp32(float.fromhex(end) if "0x" in end else float(end)) for end in (low, high)]
        assert colon
        return CapRange(*ends)
    except (ValueError, OverflowError, AssertionError):
        raise UsageError(
            f"--softcap-range {text!r} is not LO:HI: give two caps, finite and positive in FP32, the lower one first"
        ) from None


def _number(flag: str, text: str | None) -> float:
    if text is None:
        return DEFAULT_MINUTES
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise UsageError(f"{flag} {text!r} is not a number above 0")
    return value
