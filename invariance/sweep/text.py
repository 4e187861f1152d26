"""A certificate in a few lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from invariance.sweep import document
from invariance.sweep.certificate import Certificate, Worst

_LATER = ("flushed", "wrong_specials", "oddness_breaks", "bound_breaks", "monotonicity_breaks", "escalated")


def render(certificate: Certificate) -> str:
    """The certificate for a reader."""
    return "\n".join(_lines(certificate))


def _lines(certificate: Certificate) -> Iterator[str]:
    key, data = certificate.key, document.as_json(certificate)
    verdict = ("PASS" if certificate.ok else "FAIL") if key.judged else "not judged (cap)"
    part = "" if certificate.complete else f", magnitudes {', '.join(data['covered'])}"
    yield (
        f"{verdict} {key.candidate} · {key.pass_} {key.dtype} -> {key.out_dtype} · cap {key.given}: "
        f"{certificate.inputs:,} inputs{part}"
    )
    if data["worst"] is not None:
        yield f"  worst   {_error(certificate.worst)} {_unit(key.pass_)} at x = {_pair(data['worst']['input'])}"
        yield f"          got {_pair(data['worst']['got'])}, exact {data['worst']['exact']}"
    rounded = certificate.count("correctly_rounded")
    yield f"  rounded {rounded:,} correctly ({100 * rounded / max(1, certificate.inputs):.4f}%)"
    if certificate.below.count and certificate.below.worst is not None:
        worst = certificate.below.worst
        unit = data["below"]["unit"]
        yield f"  below   {certificate.below.count:,} inputs with |x/c| < 2^-126, worst {_error(worst)} x {unit}"
    counts = [f"{name.replace('_', ' ')} {certificate.count(name):,}" for name in _LATER]
    yield f"  counts  {', '.join(counts)}"
    if certificate.count("violations"):
        first = ", ".join(_pair(number) for number in data["counts"]["violations"]["first"])
        yield f"  RULES   broken by {certificate.count('violations'):,} inputs, first x = {first}"


def _error(worst: Worst | None) -> str:
    return "-" if worst is None else f"{worst.error:.6g}"


def _unit(pass_: str) -> str:
    return "ulp" if pass_ == "forward" else "x 2^-24"


def _pair(number: dict[str, str]) -> str:
    return f"{number['decimal']} ({number['bits']})"
