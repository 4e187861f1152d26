"""compare: two certificates, the same function or not."""

from __future__ import annotations

import argparse
from pathlib import Path

from invariance.environment import NoSuchDevice, resolve_device
from invariance.process import Job, run_job
from invariance.sweep import document
from invariance.sweep.certificate import Certificate
from invariance.sweep.comparison import DIFFERENT, NOT_COMPARABLE, Comparison, Difference, compare
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
    kwargs = {"specs": specs, "device": device, "cap": a.key.cap, "dtype": a.key.dtype, "pass_": a.key.pass_}
    kwargs |= {"out_dtype": a.key.out_dtype}
    outcome = run_job(
        Job("invariance.sweep.work:first_differences", {**kwargs, "ranges": found.ranges}, options.timeout)
    )
    if outcome.kind != "done":
        return f"  no input named: {' and '.join(specs)} could not both be run here ({outcome.reason})"
    if not outcome.value:
        return f"  {' and '.join(specs)}, run here on {device}, agree in those ranges"
    return "\n".join(_line(difference, a) for difference in outcome.value)


def _line(found: Difference, certificate: Certificate) -> str:
    key = certificate.key
    x, out = decode(found.pattern, TORCH[key.dtype]), TORCH[key.out_dtype]
    a, b = decode(found.a, out), decode(found.b, out)
    return f"  x = {x!r} ({found.pattern:#x}): {a!r} ({found.a:#x}) and {b!r} ({found.b:#x})"
