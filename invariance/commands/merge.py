"""merge: the certificates of shards, made whole."""

from __future__ import annotations

import argparse
from pathlib import Path

from invariance.sweep import document
from invariance.sweep.certificate import Certificate, Key, gaps, merged
from invariance.sweep.text import render
from invariance.usage import UsageError

HELP = (
    "merge certificates of shards: grouped by candidate, cap, dtype and pass; overlaps and gaps are refused"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("certificates", nargs="+", metavar="CERT", help="*.cert.json files")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR", help="where the whole ones go"
    )


def run(options: argparse.Namespace) -> int:
    """Run it; gives back the exit status. Raises UsageError."""
    wholes = [whole(parts) for parts in grouped(options.certificates)]
    by_stem: dict[str, Certificate] = {}
    for certificate in wholes:
        if certificate.key.stem in by_stem:
            other = by_stem[certificate.key.stem].key
            raise UsageError(f"two functions would be {certificate.key.stem}: {other} and {certificate.key}")
        by_stem[certificate.key.stem] = certificate
    for stem, certificate in by_stem.items():
        try:
            document.write(certificate, options.output / f"{stem}{document.SUFFIX}")
        except OSError as error:
            raise UsageError(f"-o {options.output}: {error.strerror or error}") from error
        print(render(certificate))
    return 0 if all(certificate.ok for certificate in wholes) else 1


def grouped(paths: list[str]) -> list[list[tuple[str, Certificate]]]:
    """Files with the same key together, in the order of their first; raises UsageError for what is no certificate."""
    groups: dict[Key, list[tuple[str, Certificate]]] = {}
    for path in paths:
        try:
            certificate = document.read(path)
        except ValueError as error:
            raise UsageError(str(error)) from error
        groups.setdefault(certificate.key, []).append((path, certificate))
    return list(groups.values())


def whole(parts: list[tuple[str, Certificate]]) -> Certificate:
    """The merged certificate of a complete set of parts; raises UsageError for an overlap or a gap."""
    key = parts[0][1].key
    names = ", ".join(path for path, _ in parts)
    try:
        certificate = merged(part for _, part in parts)
    except ValueError as error:
        raise UsageError(f"{key.stem} of {key.candidate}: {error} (in {names})") from error
    missing = gaps(certificate.covered, certificate.sign)
    if missing:
        spans = ", ".join(f"{lo:#x}-{hi - 1:#x}" for lo, hi in missing)
        raise UsageError(f"{key.stem} of {key.candidate}: magnitudes {spans} are in none of {names}")
    return certificate
