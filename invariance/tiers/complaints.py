"""What a compiler says of a kernel, as an error or past it, in one line."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

_SAID = 300  # characters kept: the last ones, where the reason stands
_PLACE = re.compile(r"at \d+:\d+:")


@contextlib.contextmanager
def standard_error() -> Iterator[BinaryIO]:
    """A file that takes the process's standard error: LLVM writes to the descriptor, past sys.stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 2)
            try:
                yield file
            finally:
                sys.stderr.flush()
                os.dup2(kept, 2)
    finally:
        os.close(kept)


def read(file: BinaryIO) -> str:
    """What the file holds, in one line."""
    sys.stderr.flush()
    file.seek(0)
    return _in_one_line(file.read().decode("utf-8", "replace"))


def why(error: BaseException) -> str:
    """The error that an error goes back to, in one line: Triton wraps one for each function that calls another.

    Of a message that shows the source, the place and the last line.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip("^ ")] or [""]
    place = f", {lines[0].rstrip(':')}" if len(lines) > 1 and _PLACE.fullmatch(lines[0]) else ""
    return f"{type(error).__name__}: {lines[-1]}{place}"[-_SAID:]


def _in_one_line(text: str) -> str:
    """The different lines of a text, in order: LLVM says a thing once a function."""
    lines = dict.fromkeys(line.strip() for line in text.splitlines())
    return " / ".join(line for line in lines if line.strip("^ "))[-_SAID:]
