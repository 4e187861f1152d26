"""sweep: every input of a dtype, and certificates."""

from __future__ import annotations

import argparse
import os
import sys

from invariance.candidate import CandidateNotLoadable, display_name
from invariance.environment import NoSuchDevice, resolve_device
from invariance.offered import DEFAULT_CAPS, DTYPES, SWEPT_PASSES
from invariance.probing import probed
from invariance.process import Job, run_job
from invariance.sweep.campaign import Campaign, Target
from invariance.sweep.text import render
from invariance.usage import UsageError, flattened, progress, writable

NO_GRADIENT = "the candidate has no gradient (asked of four elements)"
PATIENCE = 60.0  # seconds for four elements


def run(options: argparse.Namespace) -> int:
    """Run it; gives back the exit status. Raises UsageError."""
    campaign = read(options)
    try:
        campaign.run()
    except OSError as error:
        raise UsageError(f"--report {options.report}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        _show(campaign)
        kept = f"; --resume goes on from the pieces in {options.report}" if options.report else ""
        print(f"\nsoftcap-verify: interrupted{kept}", file=sys.stderr)
        return 130
    _show(campaign)
    for target in campaign.targets:
        if target not in campaign.certificates and target not in campaign.failures:
            print(f"nothing {campaign.name} · {target}: {_why_nothing(target, *options.shard)}")
    return 0 if campaign.ok else 1


def _show(campaign: Campaign) -> None:
    """What is whole, and what failed."""
    for target in campaign.targets:
        if target in campaign.certificates:
            print(render(campaign.certificates[target]))
        for failure in campaign.failures.get(target, []):
            print(f"FAIL {campaign.name} · {target}: {failure}")


def read(options: argparse.Namespace) -> Campaign:
    """The campaign that the options ask for; raises UsageError."""
    if options.resume and options.report is None:
        raise UsageError("--resume needs --report DIR, where the finished pieces are")
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    dtypes = tuple(sorted(flattened(options.dtype), key=DTYPES.index)) or DTYPES
    writable(options.report)
    caps = tuple(flattened(options.softcap)) or DEFAULT_CAPS
    try:
        found = probed(options.candidate, device, caps, dtypes, PATIENCE)
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    if found["fixed_cap"] is not None:
        caps = (found["fixed_cap"],)
    passes = _passes(options, found["differentiable"])
    targets = [Target(cap, dtype, pass_) for cap in caps for dtype in dtypes for pass_ in passes]
    campaign = Campaign(
        options.candidate,
        display_name(options.candidate),
        tuple(dict.fromkeys(targets)),
        device,
        options.shard,
        options.report,
        options.resume,
        options.jobs or (os.cpu_count() or 1 if device == "cpu" else 1),
        options.timeout,
        progress,
    )
    if options.report is not None:
        answer = run_job(
            Job("invariance.sweep.work:source", {"spec": options.candidate, "device": device}, PATIENCE)
        )
        campaign.source = str(answer.value or "")
    if not found["differentiable"]:
        campaign.refuse("backward", NO_GRADIENT)
    return campaign


def _passes(options: argparse.Namespace, differentiable: bool) -> tuple[str, ...]:
    """The passes asked for, or those that the candidate has."""
    if options.pass_ is not None:
        return SWEPT_PASSES if options.pass_ == "both" else (options.pass_,)
    if differentiable:
        return SWEPT_PASSES
    print(f"softcap-verify: {options.candidate}: {NO_GRADIENT}: forward only", file=sys.stderr)
    return ("forward",)


def _why_nothing(target: Target, number: int, of: int) -> str:
    if target.dtype != "fp32":
        return f"a 16-bit domain is one piece, in shard {of}/{of}"
    return f"shard {number}/{of} holds no inputs"
