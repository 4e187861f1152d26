"""sweep: every input of a dtype, and certificates."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from invariance.candidate import CandidateNotLoadable, display_name
from invariance.checkers import DTYPES
from invariance.environment import NoSuchDevice, resolve_device
from invariance.plan import DEFAULT_CAPS
from invariance.probing import probed
from invariance.sweep.campaign import Campaign, Target
from invariance.sweep.subject import PASSES
from invariance.sweep.text import render
from invariance.usage import (
    UsageError,
    add_list,
    flattened,
    progress,
    read_cap,
    read_dtype,
    read_seconds,
    read_shard,
    read_whole,
)

HELP = "judge all inputs of a dtype, forward and gradient (grad_y = 1), and write certificates"
PATIENCE = 60.0  # seconds for four elements


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument(
        "--candidate", default="registry", metavar="SPEC", help="as for check (default: registry)"
    )
    add_list(parser, "--softcap", "caps (default: 20 30)", "C")
    add_list(parser, "--dtype", "fp16, bf16, fp32 (default: all)", "DTYPE")
    parser.add_argument(
        "--pass",
        dest="pass_",
        metavar="PASS",
        help="forward, backward or both (default: what the candidate has)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:i (default: auto)")
    parser.add_argument(
        "--shard", default="1/1", metavar="K/N", help="only the K-th of N parts of each domain"
    )
    parser.add_argument("--report", type=Path, metavar="DIR", help="write the certificates there")
    parser.add_argument(
        "--resume", action="store_true", help="use the pieces that an interrupted run left in --report DIR"
    )
    parser.add_argument(
        "--jobs", metavar="N", help="child processes at a time (default: cores, one on a GPU)"
    )
    parser.add_argument(
        "--timeout",
        default="600",
        metavar="S",
        help="seconds that a piece of 2^26 inputs may take (default: 600)",
    )


def run(options: argparse.Namespace) -> int:
    """Run it; gives back the exit status. Raises UsageError."""
    campaign = read(options)
    try:
        campaign.run()
    except OSError as error:
        raise UsageError(f"--report {options.report}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        kept = f"; --resume goes on from the pieces in {options.report}" if options.report else ""
        print(f"\nsoftcap-verify: interrupted{kept}", file=sys.stderr)
        return 130
    for target in campaign.targets:
        if target in campaign.certificates:
            print(render(campaign.certificates[target]))
        for failure in campaign.failures.get(target, []):
            print(f"FAIL {campaign.name} · {target}: {failure}")
        if target not in campaign.certificates and target not in campaign.failures:
            print(f"nothing {campaign.name} · {target}: shard {options.shard} holds no inputs")
    return 0 if campaign.ok else 1


def read(options: argparse.Namespace) -> Campaign:
    """The campaign that the options ask for; raises UsageError."""
    if options.pass_ not in (None, *PASSES, "both"):
        raise UsageError(f"--pass {options.pass_!r} is unknown: there are {', '.join(PASSES)}, both")
    if options.resume and options.report is None:
        raise UsageError("--resume needs --report DIR, where the finished pieces are")
    if options.report is not None and options.report.exists() and not options.report.is_dir():
        raise UsageError(f"--report {options.report} is a file, not a folder")
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    caps = tuple(read_cap(text) for text in flattened(options.softcap)) or DEFAULT_CAPS
    dtypes = (
        tuple(sorted((read_dtype(text) for text in flattened(options.dtype)), key=DTYPES.index)) or DTYPES
    )
    shard, jobs, timeout = (
        read_shard(options.shard),
        read_whole("--jobs", options.jobs or "1", least=1),
        read_seconds("--timeout", options.timeout),
    )
    caps, passes = _possible(options.candidate, device, caps, dtypes, options.pass_)
    targets = [Target(cap, dtype, pass_) for cap in caps for dtype in dtypes for pass_ in passes]
    return Campaign(
        options.candidate,
        display_name(options.candidate),
        tuple(dict.fromkeys(targets)),
        device,
        shard,
        options.report,
        options.resume,
        jobs if options.jobs else (os.cpu_count() or 1 if device == "cpu" else 1),
        timeout,
        progress,
    )


def _possible(
    spec: str, device: str, caps: tuple[float | int, ...], dtypes: tuple[str, ...], asked: str | None
) -> tuple[tuple[float | int, ...], tuple[str, ...]]:
    """The caps and passes that the candidate has; what was asked for by name stays, and fails if it is not there."""
    try:
        found = probed(spec, device, caps, dtypes, PATIENCE)
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    if (fixed := found.get("fixed_cap")) is not None:
        caps = (fixed,)
    if asked is not None:
        return caps, PASSES if asked == "both" else (asked,)
    if found.get("differentiable", True):
        return caps, PASSES
    print(f"softcap-verify: {spec} has no gradient (asked of four elements): forward only", file=sys.stderr)
    return caps, ("forward",)
