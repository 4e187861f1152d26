"""check: four verdicts on one or more candidates."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from invariance.candidate import CandidateNotLoadable
from invariance.checkers import DTYPES
from invariance.environment import NoSuchDevice, resolve_device
from invariance.plan import DEFAULT_CAPS, PROFILES, Settings, laws
from invariance.report.model import Report
from invariance.report.text import render
from invariance.session import Session
from invariance.usage import (
    UsageError,
    add_list,
    flattened,
    progress,
    read_cap,
    read_dtype,
    read_law,
    read_seconds,
    read_whole,
    writable,
)

HELP = "judge softcap kernels given by import path: accuracy and invariance, forward and gradient"
OPERATORS = ("final_logit_softcap",)
ROUNDINGS = ("once", "chain")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's flags."""
    add_list(
        parser, "--candidate", "pkg.mod:attr, path/file.py:attr or a short name (default: registry)", "SPEC"
    )
    add_list(parser, "--softcap", "caps to judge at (default: 20 30)", "C")
    add_list(parser, "--dtype", "fp16, bf16, fp32 (default: all)", "DTYPE")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:i (default: auto)")
    for name in ("batch", "seq", "vocab"):
        parser.add_argument(
            f"--{name}",
            metavar=name[0].upper(),
            help="with its two fellows: add the shape batch x seq x vocab",
        )
    gradient = parser.add_mutually_exclusive_group()
    gradient.add_argument(
        "--check-grad",
        dest="check_grad",
        action="store_true",
        default=None,
        help="a candidate without a gradient fails",
    )
    gradient.add_argument(
        "--no-check-grad", dest="check_grad", action="store_false", help="judge no gradient"
    )
    add_list(parser, "--law", "judge these laws only (see: softcap-verify laws)", "NAME")
    parser.add_argument(
        "--profile",
        default="default",
        help=f"{', '.join(PROFILES)}: every law in each, on more and more cases",
    )
    parser.add_argument(
        "--no-explore", dest="explore", action="store_false", help="only the fixed plan, no Hypothesis on top"
    )
    parser.add_argument("--timeout", default="60", metavar="S", help="seconds a cell may take (default: 60)")
    parser.add_argument(
        "--seed",
        default="0",
        metavar="N",
        help="of the plan's hash-drawn cases and of exploration (default: 0)",
    )
    parser.add_argument(
        "--jobs", default=None, metavar="N", help="child processes at a time (default: cores, one on a GPU)"
    )
    parser.add_argument(
        "--rounding", default="once", help="once, or chain: the contract of an eager chain in the input dtype"
    )
    parser.add_argument("--op", default="final_logit_softcap", help="final_logit_softcap")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write report.json and report.md there")
    parser.add_argument(
        "--json", action="store_true", help="the JSON report on standard output, and nothing else there"
    )


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
    if options.op not in OPERATORS:
        raise UsageError(f"--op {options.op!r} is unknown: there is {', '.join(OPERATORS)}")
    if options.profile not in PROFILES:
        raise UsageError(f"--profile {options.profile!r} is unknown: there are {', '.join(PROFILES)}")
    if options.rounding not in ROUNDINGS:
        raise UsageError(f"--rounding {options.rounding!r} is unknown: there are {', '.join(ROUNDINGS)}")
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    settings = Settings(
        caps=tuple(read_cap(text) for text in flattened(options.softcap)) or DEFAULT_CAPS,
        dtypes=tuple(sorted((read_dtype(text) for text in flattened(options.dtype)), key=DTYPES.index))
        or DTYPES,
        device=device,
        profile=options.profile,
        seed=read_whole("--seed", options.seed, least=0),
        laws=tuple(read_law(text) for text in flattened(options.law)),
        extra_shape=_extra_shape(options),
        rounding=options.rounding,
    )
    try:
        laws(settings)
    except ValueError as error:
        raise UsageError(f"--law: {error}") from error
    if options.report is not None and options.report.exists() and not options.report.is_dir():
        raise UsageError(f"--report {options.report} is a file, not a folder")
    writable(options.report)
    jobs = (
        read_whole("--jobs", options.jobs, least=1)
        if options.jobs
        else (1 if device != "cpu" else os.cpu_count() or 1)
    )
    return Session(
        settings,
        tuple(flattened(options.candidate)) or ("registry",),
        timeout=read_seconds("--timeout", options.timeout),
        workers=jobs,
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
    return tuple(
        read_whole(f"--{name}", value, least=1)
        for name, value in zip(("batch", "seq", "vocab"), given, strict=True)
    )
