"""check: four verdicts on one or more candidates."""

from __future__ import annotations

import argparse
import os
import sys

from invariance.candidate import CandidateNotLoadable
from invariance.environment import NoSuchDevice, resolve_device
from invariance.offered import DEFAULT_CAPS, DTYPES
from invariance.plan import Settings, laws
from invariance.report.model import Report
from invariance.report.text import render
from invariance.session import Session
from invariance.usage import UsageError, flattened, possible, progress


def run(options: argparse.Namespace) -> int:
    """Judge, deliver the report, and give the exit status."""
    session = read(options)
    try:
        report = session.run()
        status = report.exit_status
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    except KeyboardInterrupt:
        report, status = session.finish(), 130
        print("\nsoftcap-verify: interrupted; the report is incomplete", file=sys.stderr)
    deliver(report, options)
    return status


def read(options: argparse.Namespace) -> Session:
    """The session that the options ask for; raises UsageError."""
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    settings = Settings(
        caps=tuple(flattened(options.softcap)) or DEFAULT_CAPS,
        dtypes=tuple(sorted(flattened(options.dtype), key=DTYPES.index)) or DTYPES,
        device=device,
        profile=options.profile,
        seed=options.seed,
        laws=tuple(flattened(options.law)),
        extra_shape=_extra_shape(options),
        rounding=options.rounding,
    )
    try:
        laws(settings)
    except ValueError as error:
        raise UsageError(f"--law: {error}") from error
    possible(options.report)
    cores = os.cpu_count() or 1
    return Session(
        settings,
        tuple(flattened(options.candidate)) or ("registry",),
        timeout=options.timeout,
        workers=options.jobs or (cores if device == "cpu" else 1),
        explore=options.explore,
        check_grad=options.check_grad,
        progress=progress,
    )


def deliver(report: Report, options: argparse.Namespace) -> None:
    """Files first, then standard output."""
    if options.report is not None:
        try:
            report.write(options.report)
        except OSError as error:
            raise UsageError(f"--report {options.report}: {error.strerror}") from error
    print(report.dumps() if options.json else render(report), end="")


def _extra_shape(options: argparse.Namespace) -> tuple[int, ...] | None:
    given = [getattr(options, name) for name in ("batch", "seq", "vocab")]
    if all(value is None for value in given):
        return None
    if any(value is None for value in given):
        raise UsageError("--batch, --seq and --vocab go together: give all three")
    return tuple(given)
