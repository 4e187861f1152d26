"""Counterexamples as data: one JSON object a line, replayed without Hypothesis, merged by concatenation.

A line says version, law, candidate, pass, cap (an int, a float in hexadecimal, {"tensor": that} or {"call": that}), the
history of caps that the process must have met, the case, and the bits expected with their dtype; attempts, of a failure
that does not come each time, and timeout, the seconds after which a candidate was said to hang.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invariance.fuzz.asked import Asked
from invariance.fuzz.finding import VERSION, Finding
from invariance.process import Job
from strategies.case import Case
from strategies.dtypes import DTYPES

MOST_ATTEMPTS, MOST_SECONDS = 1000, 1e6


class NoCorpus(ValueError):
    """A file that holds something else; the message says what."""


def prepare(path: Path) -> None:
    """See that lines can be added, and leave everything as it is; raises OSError, or NoCorpus for what is none."""
    if path.exists() and not path.is_file():
        raise NoCorpus("is a folder, not a file" if path.is_dir() else "is not a regular file")
    new = not path.exists()
    with path.open("a", encoding="utf-8"):
        pass
    if new:
        path.unlink()
    else:
        _check_all(path)


def _check_all(path: Path) -> None:
    """A file with lines of a corpus among others is one: a line may have been cut short, and replay tells of it."""
    lines = list(lines_of(read(path)))
    if lines and not any(_known(text) for _, text in lines):
        number, text = lines[0]
        raise NoCorpus("is not text" if text is None else f"is no corpus: line {number} is {text[:40]!r}")


def read(path: Path) -> bytes:
    """What a file holds; OSError, or NoCorpus where it is UTF-16, of which no line is one."""
    content = path.read_bytes()
    for name in ("utf-16-le", "utf-16-be"):
        with contextlib.suppress(UnicodeDecodeError):
            if content.decode(name).lstrip("\ufeff").startswith(("{", "#")):
                raise NoCorpus("is UTF-16, and a corpus is UTF-8: save it as that")
    return content


def lines_of(content: bytes) -> Iterator[tuple[int, str | None]]:
    """Each line that says something, with its number; None where it is not UTF-8.

    Comments begin with #. A mark of the byte order may begin any line, as where files that have one are concatenated.
    """
    for number, raw in enumerate(content.splitlines(), 1):
        try:
            text = raw.decode("utf-8").lstrip("\ufeff").strip()
        except UnicodeDecodeError:
            yield number, None
            continue
        if text and not text.startswith("#"):
            yield number, text


def _known(text: str | None) -> str | None:
    """A line so that equal ones are the same text, also one that was written before there was a version; else None."""
    try:
        line = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or "law" not in line:
        return None
    return json.dumps({"version": 1, **line}, sort_keys=True)


def append(path: Path, finding: Finding) -> None:
    """Add a finding to a corpus, unless its line is there already; OSError where the file cannot be written.

    Several campaigns may write to one file at a time.
    """
    line = json.dumps(finding.line(), separators=(",", ":"))
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        if _known(line) not in {_known(text) for _, text in lines_of(content)}:
            gap = b"" if content == b"" or content.endswith(b"\n") else b"\n"
            file.write(gap + line.encode() + b"\n")


class Keeper:
    """Appends findings to a corpus; where that fails once the campaign goes on, and `failure` says why."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None

    def __call__(self, finding: Finding) -> None:  # noqa: D102 - the class says it
        try:
            append(self.path, finding)
        except OSError as error:
            self.failure = error.strerror or str(error)


def is_line(recipe: dict[str, Any]) -> bool:
    """Whether a recipe is a line of a corpus: what a report prints has no history."""
    return "history" in recipe or "cap" in recipe


def check(recipe: dict[str, Any]) -> None:
    """ValueError unless cap, history and what else a line has are what a corpus holds, and the case is at that cap."""
    _check_numbers(recipe)
    asked = Asked.of_record(recipe.get("cap"))
    case = Case.loads(json.dumps(recipe["case"]))
    if type(case.cap) is not type(asked.cap) or case.cap != asked.cap:
        raise ValueError(f"the line's cap is {recipe['cap']!r}, its case's is {case.cap!r}")
    history = recipe.get("history", [])
    if not isinstance(history, list):
        raise ValueError(f"history is a list of caps, not {history!r}")
    for record in history:
        Asked.of_record(record)
    expected, dtype = recipe.get("expected"), recipe.get("out_dtype")
    if expected is not None and not (
        isinstance(expected, list) and all(isinstance(b, str) for b in expected)
    ):
        raise ValueError(f"expected is a list of bits such as '0x3c00', not {expected!r}")
    if dtype is not None and dtype not in DTYPES:
        raise ValueError(f"out_dtype is {dtype!r}: there are {', '.join(DTYPES)}")


def _check_numbers(recipe: dict[str, Any]) -> None:
    version, attempts, timeout = (recipe.get(key, 1) for key in ("version", "attempts", "timeout"))
    if version != VERSION:
        raise ValueError(f"its version is {version!r}, and this softcap-verify reads {VERSION}")
    if type(attempts) is not int or not 1 <= attempts <= MOST_ATTEMPTS:
        raise ValueError(f"attempts is {attempts!r}: a whole number from 1 to {MOST_ATTEMPTS} is needed")
    if type(timeout) not in (int, float) or not 0 < timeout < MOST_SECONDS:
        raise ValueError(f"timeout is {timeout!r}: seconds above 0 and below {MOST_SECONDS:g} are needed")


def job(recipe: dict[str, Any], spec: str, device: str, timeout: float) -> Job:
    """What judges a line again, in a process that has met no other cap."""
    kwargs = {
        "spec": spec,
        "law": recipe["law"],
        "pass_": recipe["pass"],
        "case": Case.loads(json.dumps(recipe["case"])).dumps(),
        "device": device,
        "history": recipe.get("history", []),
        "cap": recipe["cap"],
        "expected": recipe.get("expected"),
        "out_dtype": recipe.get("out_dtype"),
        "attempts": recipe.get("attempts", 1),
        "seconds": timeout / 2,
    }
    return Job("invariance.fuzz.line:judge_line", kwargs, timeout)
