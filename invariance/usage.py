"""What a user may ask for: arguments read and refused in one line."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from invariance.offered import DTYPES, is_cap, is_time

Value = TypeVar("Value")

_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_HEX = re.compile(r"[+-]?0x([0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(p[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
_TOO_LARGE = re.compile(r"[1-9]\d{18,}", re.ASCII)
_ECHOED = 40  # characters of a wrong argument that a message repeats


class UsageError(Exception):
    """A request that cannot be carried out; one line that says what was given and what exists. Exit status 2."""


def flattened(values: list[list[Value]] | None) -> list[Value]:
    """Values that follow one flag or repeat it, in order, each once."""
    return list(dict.fromkeys(value for group in values or [] for value in group))


def shown(text: str) -> str:
    """What was given, for a message of one line: its beginning, where it is long."""
    return repr(text) if len(text) <= _ECHOED else f"{text[:_ECHOED]!r}... ({len(text):,} characters)"


def read_cap(text: str) -> float | int:
    """A cap: an int stays an int; it must be finite and positive also as FP32.

    Spelled as a decimal, with or without an exponent, or as a hexadecimal float; in ASCII, without `_` and blanks,
    which Python's own `int` and `float` take.
    """
    cap: float | int = math.nan
    with contextlib.suppress(ValueError, OverflowError):
        cap = _number(text)
    if not is_cap(cap):
        raise UsageError(
            f"--softcap {shown(text)} is not a cap: give a number that is finite and positive also in FP32, such as 30"
        )
    return cap


def _number(text: str) -> float | int:
    if _HEX.fullmatch(text):
        return float.fromhex(text)
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def read_choice(flag: str, known: Iterable[str], text: str) -> str:
    """One of the values that a flag knows."""
    if text not in known:
        raise UsageError(f"{flag} {shown(text)} is unknown: there are {', '.join(known)}")
    return text


def read_dtype(text: str) -> str:
    """A dtype's short name."""
    return read_choice("--dtype", DTYPES, text)


def read_whole(flag: str, text: str, *, least: int) -> int:
    """A whole number of at least `least`."""
    if _TOO_LARGE.fullmatch(text):
        raise UsageError(f"{flag} {shown(text)} is too large")
    if not _WHOLE.fullmatch(text) or int(text) < least:
        raise UsageError(f"{flag} {shown(text)} is not a whole number of at least {least}")
    return int(text)


def read_shard(text: str) -> tuple[int, int]:
    """`K/N`, part K of N."""
    number, _, of = text.partition("/")
    if not (_WHOLE.fullmatch(number) and _WHOLE.fullmatch(of) and 1 <= int(number) <= int(of)):
        raise UsageError(f"--shard {shown(text)} is not K/N with 1 <= K <= N, such as 1/8")
    return int(number), int(of)


def read_seconds(flag: str, text: str, unit: str = "seconds") -> float:
    """A time limit in seconds, or in another unit."""
    time = float(text) if _DECIMAL.fullmatch(text) else 0.0
    if not is_time(time):
        raise UsageError(f"{flag} {shown(text)} is not a number of {unit} above 0 and below a million")
    return time


def read_folder(flag: str, text: str) -> Path:
    """A folder or a file to write; an empty name would be the current folder, as of a shell variable that is unset."""
    if not text.strip():
        raise UsageError(f"{flag} {text!r} is no path: give one, such as out")
    return Path(text)


def possible(folder: Path | None, flag: str = "--report") -> None:
    """See that a folder can be one and takes a file, by making it; what was not there before is gone afterwards.

    Permissions alone do not tell: root has them all, and /proc takes no folder.
    """
    if folder is None:
        return
    whole = folder.absolute()
    missing = [path for path in (whole, *whole.parents) if not os.path.exists(path)]
    try:
        writable(folder, flag)
    finally:
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()


def writable(folder: Path | None, flag: str = "--report") -> None:
    """Make the folder of a report before anything is judged, and see that it takes a file."""
    if folder is None:
        return
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{flag} {folder} is a file, not a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(f"{flag} {folder}: {error.strerror or error}") from error


def deliver(text: str, folder: Path | None, write: Callable[[Path], object]) -> None:
    """Write a report's files and print it; UsageError comes after both: a full disk must not take the verdict too."""
    failed: OSError | None = None
    if folder is not None:
        try:
            write(folder)
        except OSError as error:
            failed = error
    print(text, end="")
    if failed is not None:
        raise UsageError(f"--report {folder}: {failed.strerror or failed}")


def abandoned(folder: Path | None, stem: str) -> None:
    """Where an interrupt came before a run could write anything: it says so, also in the place of an older report."""
    if folder is None:
        return
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stem}.json").write_text(
            '{"verdict": "incomplete", "complete": false}\n', encoding="utf-8"
        )
        (folder / f"{stem}.md").write_text(
            "# incomplete\n\nInterrupted before anything was judged.\n", encoding="utf-8"
        )


class Pace:
    """When a line was printed last, and how many seconds have to pass until the next."""

    def __init__(self, every: float) -> None:
        self.every = every
        self.last = time.monotonic()

    def due(self, *, first: bool = False) -> bool:
        """Whether it is time for another one; a command's first news starts the clock."""
        now = time.monotonic()
        due = not first and now - self.last >= self.every
        if first or due:
            self.last = now
        return due


IN_A_LOG = 10.0  # seconds between two lines
_PACE = Pace(IN_A_LOG)


def progress(done: int, total: int, what: str) -> None:
    """One line, rewritten in place on a terminal; else a line of its own every ten seconds, for a log."""
    line = f"{done}/{total} {what[:100]}"
    if sys.stderr.isatty() or _PACE.due(first=done <= 1):
        tell(line, last=done >= total)


def tell(line: str, *, last: bool = False) -> None:
    """A line to standard error: on a terminal in the place of the one before, else a line of its own."""
    start, end = ("\r\x1b[2K", "\n" if last else "") if sys.stderr.isatty() else ("", "\n")
    print(f"{start}{line}", end=end, file=sys.stderr, flush=True)
