"""compare: two certificates, the same function or not."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

import torch
from torch import Tensor

from invariance.environment import NoSuchDevice, resolve_device
from invariance.process import Child, Job
from invariance.sweep import document
from invariance.sweep.certificate import Certificate
from invariance.sweep.comparison import (
    DIFFERENT,
    NOT_COMPARABLE,
    Comparison,
    Difference,
    Results,
    compare,
    differences,
)
from invariance.sweep.domain import decode
from invariance.usage import UsageError
from strategies.dtypes import TORCH


def run(options: argparse.Namespace) -> int:
    """Run it; gives back the exit status. Raises UsageError."""
    device = _device(options.device)
    for path in (options.a, options.b):
        if Path(path).is_dir():
            raise UsageError(
                f"{path} is a folder: compare takes two certificates, such as A/x.cert.json B/x.cert.json"
            )
    try:
        a, b = document.read(options.a), document.read(options.b)
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = compare(a, b)
    label = {NOT_COMPARABLE: "not comparable", DIFFERENT: "DIFFERENT"}.get(found.status, "same")
    print(f"{label}: {found.reason}")
    for lo, hi in found.ranges if a.key.out_dtype == b.key.out_dtype else ():
        print(f"  magnitudes {lo:#010x} to {hi - 1:#010x}: |x| from {_edge(a, lo)} to {_edge(a, hi - 1)}")
    if found.status == DIFFERENT and a.key.out_dtype == b.key.out_dtype:
        print(_first_inputs(a, b, found, options, device))
    return found.status


def _edge(certificate: Certificate, magnitude: int) -> str:
    return repr(decode(magnitude, TORCH[certificate.key.dtype]))


def _device(name: str) -> str:
    try:
        return resolve_device(name)
    except NoSuchDevice as error:
        raise UsageError(f"--{error}") from error


def _first_inputs(
    a: Certificate, b: Certificate, found: Comparison, options: argparse.Namespace, device: str
) -> str:
    specs = tuple(options.candidate or (a.key.candidate, b.key.candidate))
    if specs[0] == specs[1] and not options.candidate:
        return "  both certificates are of the same candidate: with one version at hand no input can be named"
    try:
        with closing(Child()) as one, closing(Child()) as other:  # neither sees what the other imports
            sides = [
                _results(child, spec, a, options, device)
                for child, spec in zip((one, other), specs, strict=True)
            ]
            named = differences(sides[0], sides[1], found.ranges, a.sign)
    except _NotRun as error:
        return f"  no input named: {' and '.join(specs)} could not both be run here ({error})"
    if not named:
        return f"  {' and '.join(specs)}, run here on {device}, agree in those ranges"
    return "\n".join(_line(difference, a) for difference in named)


class _NotRun(Exception):
    """A candidate could not be run here; why."""


def _results(
    child: Child, spec: str, certificate: Certificate, options: argparse.Namespace, device: str
) -> Results:
    """The results of one candidate, run in a child."""
    key = certificate.key
    asked = {"spec": spec, "device": device, "cap": key.cap, "dtype": key.dtype, "pass_": key.pass_}

    def results(lo: int, hi: int) -> Tensor:
        kwargs = {**asked, "out_dtype": key.out_dtype, "lo": lo, "hi": hi}
        outcome = child.run(Job("invariance.sweep.work:results", kwargs, options.timeout))
        if outcome.kind != "done":
            raise _NotRun(outcome.reason)
        return torch.from_numpy(outcome.value).view(TORCH[key.out_dtype])

    return results


def _line(found: Difference, certificate: Certificate) -> str:
    key = certificate.key
    x, out = decode(found.pattern, TORCH[key.dtype]), TORCH[key.out_dtype]
    a, b = decode(found.a, out), decode(found.b, out)
    return f"  x = {x!r} ({found.pattern:#x}): {a!r} ({found.a:#x}) and {b!r} ({found.b:#x})"
