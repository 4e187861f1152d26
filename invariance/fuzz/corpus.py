"""Counterexamples as data: one JSON object a line, replayed without Hypothesis, merged by concatenation.

A line says law, candidate, pass, cap (an int, a float in hexadecimal, {"tensor": that} or {"call": that}), the
history of caps that the process must have met, the case, and the bits expected with their dtype.
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

from invariance.fuzz.asked import Asked
from invariance.fuzz.finding import Finding
from invariance.process import Job
from strategies.case import Case
from strategies.dtypes import DTYPES


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
    try:
        texts = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise NoCorpus("is not text") from None
    for number, text in enumerate(texts, 1):
        if text.strip() and not text.startswith("#"):
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict) or "law" not in line:
                raise NoCorpus(f"is no corpus: line {number} is {text[:40]!r}")


def append(path: Path, finding: Finding) -> None:
    """Add a finding to a corpus, unless its line is there already; OSError where the file cannot be written.

    Several campaigns may write to one file at a time.
    """
    line = json.dumps(finding.line(), separators=(",", ":"))
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if line not in text.splitlines():
            gap = "" if text == "" or text.endswith("\n") else "\n"
            file.write(f"{gap}{line}\n")


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
    """ValueError unless cap, history and expected bits are what a corpus holds, and the case is at that cap."""
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
    }
    return Job("invariance.fuzz.again:judge_line", kwargs, timeout)
