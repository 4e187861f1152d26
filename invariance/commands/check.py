"""check: four verdicts on one or more candidates."""

from __future__ import annotations

import argparse
import os
import sys

from invariance.candidate import CandidateNotLoadable
from invariance.environment import NoSuchDevice, resolve_device, too_large
from invariance.offered import DEFAULT_CAPS, DTYPES
from invariance.plan import Settings, laws, takes_any_shape
from invariance.report.text import render
from invariance.session import Session
from invariance.usage import UsageError, deliver, flattened, possible, progress


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
    deliver(report.dumps() if options.json else render(report), options.report, report.write)
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
    if settings.extra_shape is not None:
        _see_that_it_can_be_judged(settings.extra_shape, settings)
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


def _extra_shape(options: argparse.Namespace) -> tuple[int, ...] | None:
    given = [getattr(options, name) for name in ("batch", "seq", "vocab")]
    if all(value is None for value in given):
        return None
    if any(value is None for value in given):
        raise UsageError("--batch, --seq and --vocab go together: give all three")
    return tuple(given)


def _see_that_it_can_be_judged(shape: tuple[int, ...], settings: Settings) -> None:
    """Raise UsageError for a shape that no law asked for takes, or that this machine cannot hold."""
    text = "x".join(map(str, shape))
    if not any(takes_any_shape(law) for law in laws(settings)):
        raise UsageError(
            f"--batch, --seq, --vocab: none of the laws asked for takes a shape, so {text} is not judged"
        )
    if (reason := too_large(shape, settings.device)) is not None:
        raise UsageError(f"--batch, --seq, --vocab: {reason}")
