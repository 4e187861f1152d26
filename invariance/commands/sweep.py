"""sweep: every input of a dtype, and certificates."""

from __future__ import annotations

import argparse
import math
import os
import sys

from invariance.candidate import CandidateNotLoadable, display_name
from invariance.environment import NoSuchDevice, resolve_device
from invariance.offered import DEFAULT_CAPS, DTYPES, SWEPT_PASSES
from invariance.probing import probed
from invariance.process import Job, run_job
from invariance.scope import without_accuracy
from invariance.sweep.campaign import Campaign, Occupied, Target
from invariance.sweep.certificate import Certificate
from invariance.sweep.text import render
from invariance.usage import UsageError, flattened, possible, progress, writable
from oracles.tolerances import load_contract
from strategies.caps import cap_text

NO_GRADIENT = "the candidate has no gradient (asked of four elements)"
PATIENCE = 60.0  # seconds for four elements
FOR_CHECK = ("oddness_breaks", "bound_breaks", "monotonicity_breaks")  # counted here, judged there


def run(options: argparse.Namespace) -> int:
    """Run it; gives back the exit status. Raises UsageError."""
    campaign = read(options)
    try:
        campaign.run()
    except Occupied as error:
        raise UsageError(f"--report {options.report}: {error}") from error
    except OSError as error:
        raise UsageError(f"--report {options.report}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        _show(campaign)
        kept = f"; --resume goes on from the pieces in {options.report}" if campaign.left_behind() else ""
        print(f"\nsoftcap-verify: interrupted{kept}", file=sys.stderr)
        return 130
    _show(campaign)
    for target in campaign.targets:
        if target not in campaign.certificates and target not in campaign.failures:
            print(f"nothing {campaign.name} · {target}: {_why_nothing(target, *options.shard)}")
    print(ending(campaign))
    return 0 if campaign.ok else 1


def _show(campaign: Campaign) -> None:
    """What is whole, and what failed."""
    for target in campaign.targets:
        if target in campaign.certificates:
            print(render(campaign.certificates[target]))
        for failure in campaign.failures.get(target, []):
            print(f"FAIL {campaign.name} · {target}: {failure}")


def ending(campaign: Campaign) -> str:
    """The last line: what the exit status says, and what it does not."""
    certificates = [campaign.certificates[t] for t in campaign.targets if t in campaign.certificates]
    judged = [certificate for certificate in certificates if certificate.key.judged]
    broken = sum(not certificate.ok for certificate in judged)
    bad = [f"{broken} of {len(judged)} certificates break the rules"] if broken else []
    bad += [f"{len(campaign.failures)} of {len(campaign.targets)} failed"] if campaign.failures else []
    if bad:
        said = f"FAIL: {', '.join(bad)}"
    else:
        said = f"PASS: {len(judged)} by the accuracy rules" if judged else "NOTHING was judged"
    return "; ".join([said, *_unjudged(certificates), *_for_check(judged)])


def _unjudged(certificates: list[Certificate]) -> list[str]:
    caps = dict.fromkeys(c.key.given for c in certificates if not c.key.judged)
    low, high = (f"2^{math.frexp(end)[1] - 1}" for end in load_contract().judged_cap_range)
    return (
        [f"not judged, whatever they show: cap {', '.join(caps)} (judged are {low} to {high})"]
        if caps
        else []
    )


def _for_check(judged: list[Certificate]) -> list[str]:
    counts = {name: sum(certificate.count(name) for certificate in judged) for name in FOR_CHECK}
    shown = [f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items() if count]
    return [f"but {', '.join(shown)}: `check` judges that"] if shown else []


def read(options: argparse.Namespace) -> Campaign:
    """The campaign that the options ask for; raises UsageError."""
    if options.resume and options.report is None:
        raise UsageError("--resume needs --report DIR, where the finished pieces are")
    try:
        device = resolve_device(options.device)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error
    dtypes = tuple(sorted(flattened(options.dtype), key=DTYPES.index)) or DTYPES
    possible(options.report)
    caps = tuple(flattened(options.softcap)) or DEFAULT_CAPS
    try:
        found = probed(options.candidate, device, caps, dtypes, PATIENCE)
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    if found.get("substitutions"):
        raise UsageError(without_accuracy(options.candidate, "a sweep"))
    if found["fixed_cap"] is not None:
        _say_own_cap(options.candidate, found["fixed_cap"], flattened(options.softcap))
        caps = (found["fixed_cap"],)
    writable(options.report)
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
        campaign.source = _source(options.candidate, device, caps, dtypes)
    if not found["differentiable"]:
        campaign.refuse("backward", NO_GRADIENT)
    return campaign


def _say_own_cap(spec: str, own: float, asked: list[float | int]) -> None:
    """A configured instance has one cap; the others that were asked for are not swept."""
    if others := [cap_text(cap) for cap in asked if cap != own]:
        print(
            f"softcap-verify: {spec} carries its own cap {cap_text(own)}: swept at that, not at {', '.join(others)}",
            file=sys.stderr,
        )


def _source(spec: str, device: str, caps: tuple[float | int, ...], dtypes: tuple[str, ...]) -> str:
    """The candidate's digest; of its import alone where it dies or hangs on four elements. Raises UsageError."""
    loading = {"spec": spec, "device": device}
    for more in ({"caps": caps, "dtypes": dtypes}, {}):
        answer = run_job(Job("invariance.sweep.work:source", {**loading, **more}, PATIENCE))
        if answer.kind == "done":
            return str(answer.value)
    raise UsageError(f"candidate {spec!r}: what it is made of cannot be told: {answer.reason}")


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
