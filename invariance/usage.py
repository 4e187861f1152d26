"""What a user may ask for: arguments read and refused in one line."""

from __future__ import annotations

import math
import struct
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from invariance.offered import DTYPES

Value = TypeVar("Value")


class UsageError(Exception):
    """A request that cannot be carried out; one line that says what was given and what exists. Exit status 2."""


def flattened(values: list[list[Value]] | None) -> list[Value]:
    """Values that follow one flag or repeat it, in order, each once."""
    return list(dict.fromkeys(value for group in values or [] for value in group))


def read_cap(text: str) -> float | int:
    """A cap: an int stays an int; it must be finite and positive also as FP32."""
    try:
        cap: float | int = (
            int(text)
            if text.strip().lstrip("+-").isdigit()
            else float.fromhex(text)
            if "0x" in text
            else float(text)
        )
        as_fp32 = struct.unpack("<f", struct.pack("<f", cap))[0]
    except (ValueError, OverflowError):
        as_fp32, cap = math.nan, math.nan
    if not (math.isfinite(as_fp32) and as_fp32 > 0):
        raise UsageError(
            f"--softcap {text!r} is not a cap: give a number that is finite and positive also in FP32, such as 30"
        )
    return cap


def read_choice(flag: str, known: Iterable[str], text: str) -> str:
    """One of the values that a flag knows."""
    if text not in known:
        raise UsageError(f"{flag} {text!r} is unknown: there are {', '.join(known)}")
    return text


def read_dtype(text: str) -> str:
    """A dtype's short name."""
    return read_choice("--dtype", DTYPES, text)


def read_whole(flag: str, text: str, *, least: int) -> int:
    """A whole number of at least `least`."""
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise UsageError(f"{flag} {text!r} is not a whole number of at least {least}")
    return int(text)


def read_shard(text: str) -> tuple[int, int]:
    """`K/N`, part K of N."""
    number, _, of = text.partition("/")
    if not (
        number.isascii()
        and number.isdigit()
        and of.isascii()
        and of.isdigit()
        and 1 <= int(number) <= int(of)
    ):
        raise UsageError(f"--shard {text!r} is not K/N with 1 <= K <= N, such as 1/8")
    return int(number), int(of)


def read_seconds(flag: str, text: str, unit: str = "seconds") -> float:
    """A time limit in seconds, or in another unit."""
    try:
        time = float(text)
    except ValueError:
        time = 0.0
    if not 0 < time < 1e6:
        raise UsageError(f"{flag} {text!r} is not a number of {unit} above 0 and below a million")
    return time


def writable(folder: Path | None, flag: str = "--report") -> None:
    """Make the folder of a report before anything is judged, and see that it takes a file."""
    if folder is None:
        return
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{flag} {folder} is a file, not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{flag} {folder}: {error.strerror or error}") from error


def progress(done: int, total: int, what: str) -> None:
    """One line, rewritten in place, on a terminal only."""
    if sys.stderr.isatty():
        end = "\n" if done >= total else ""
        print(f"\r\x1b[2K{done}/{total} {what[:100]}", end=end, file=sys.stderr, flush=True)
