"""merge: the certificates of shards, made whole."""

from __future__ import annotations

import argparse
from pathlib import Path

from invariance.sweep import document
from invariance.sweep.certificate import Certificate, Key, difference, gaps, merged
from invariance.sweep.text import render
from invariance.usage import UsageError, possible, writable


def run(options: argparse.Namespace) -> int:
    """Run it; gives back the exit status. Raises UsageError."""
    possible(options.output, "-o")
    groups = grouped(_files(options.certificates))
    _one_a_name([parts[0] for parts in groups])
    wholes = [whole(parts) for parts in groups]
    writable(options.output, "-o")
    for certificate in wholes:
        try:
            document.write(certificate, options.output / f"{certificate.key.stem}{document.SUFFIX}")
        except OSError as error:
            raise UsageError(f"-o {options.output}: {error.strerror or error}") from error
        print(render(certificate))
    return 0 if all(certificate.ok for certificate in wholes) else 1


def _files(paths: list[str]) -> list[str]:
    """A folder stands for the certificates in it."""
    found: list[str] = []
    for path in paths:
        inside = (
            sorted(str(p) for p in Path(path).glob(f"*{document.SUFFIX}")) if Path(path).is_dir() else [path]
        )
        if not inside:
            raise UsageError(f"{path} holds no *{document.SUFFIX} file")
        found += inside
    return found


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


def _one_a_name(firsts: list[tuple[str, Certificate]]) -> None:
    """Two groups under one name would overwrite each other; mostly they are shards that do not belong together."""
    seen: dict[str, tuple[str, Certificate]] = {}
    for path, certificate in firsts:
        other, kept = seen.setdefault(certificate.key.stem, (path, certificate))
        if kept is not certificate:
            differ = difference(kept.key, certificate.key)
            raise UsageError(f"{other} and {path} are parts of two functions, {kept.key.stem} both: {differ}")


def whole(parts: list[tuple[str, Certificate]]) -> Certificate:
    """The merged certificate of a complete set of parts; raises UsageError for an overlap or a gap."""
    key = parts[0][1].key
    names = ", ".join(dict.fromkeys(path for path, _ in parts))
    try:
        certificate = merged(part for _, part in parts)
    except ValueError as error:
        raise UsageError(f"{key.stem} of {key.candidate}: {error} (in {names})") from error
    missing = gaps(certificate.covered, certificate.sign)
    if missing:
        spans = ", ".join(f"{lo:#x}-{hi - 1:#x}" for lo, hi in missing)
        raise UsageError(f"{key.stem} of {key.candidate}: magnitudes {spans} are in none of {names}")
    return certificate
