"""replay: one failure again, from the line that the report printed."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from invariance.candidate import PASSES
from invariance.checkers import load_laws
from invariance.environment import NoSuchDevice, resolve_device
from invariance.fuzz import corpus
from invariance.process import Job, run_job
from invariance.usage import UsageError
from strategies.case import Case

_KEYS = ("candidate", "law", "pass", "case")
LONGEST_PATH = 4096  # characters


def run(options: argparse.Namespace) -> int:
    """Judge each recipe again: 0 where all pass now, 1 where one fails."""
    texts = _lines_of(options.recipe)
    recipes = [_read(text) for text in texts if text.strip() and not text.startswith("#")]
    if not recipes:
        raise UsageError(f"{options.recipe!r} holds no case")
    return max(_replay(recipe, options) for recipe in recipes)


def _lines_of(text: str) -> list[str]:
    """The recipe itself, or the lines of the file that it names."""
    if text.lstrip().startswith("{") or len(text) >= LONGEST_PATH or not Path(text).exists():
        return [text]
    if Path(text).is_dir():
        raise UsageError(f"{text} is a folder; give a file of cases, or the JSON of a report's replay line")
    try:
        return Path(text).read_text("utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"{text} is no file of cases: {getattr(error, 'strerror', None) or error}"
        ) from error


def _read(text: str) -> dict[str, Any]:
    try:
        recipe = json.loads(text)
        assert isinstance(recipe, dict)
    except (ValueError, AssertionError):
        raise UsageError(
            f"not a case: {text[:60]!r}; give the JSON of a report's replay line, or a file of such lines"
        ) from None
    missing = [key for key in _KEYS if key not in recipe]
    if missing:
        raise UsageError(f"the case lacks {', '.join(missing)}; it needs {', '.join(_KEYS)}")
    if recipe["law"] not in load_laws():
        raise UsageError(f"law {recipe['law']!r} is unknown: there are {', '.join(sorted(load_laws()))}")
    if recipe["pass"] not in PASSES:
        raise UsageError(f"pass {recipe['pass']!r} is unknown: there are {', '.join(PASSES)}")
    try:
        Case.loads(json.dumps(recipe["case"]))
        if corpus.is_line(recipe):
            corpus.check(recipe)
    except ValueError as error:
        raise UsageError(f"the case cannot be built: {error}") from error
    return recipe


def _replay(recipe: dict[str, Any], options: argparse.Namespace) -> int:
    try:
        device = resolve_device(recipe.get("device", "cpu"))
    except NoSuchDevice as error:
        raise UsageError(str(error)) from error
    outcome = run_job(_job(recipe, options.candidate or recipe["candidate"], device, options.timeout))
    if outcome.kind == "done":
        verdict = outcome.value[0] if corpus.is_line(recipe) else outcome.value
        text = str(verdict).splitlines()
        if corpus.is_line(
            recipe
        ):  # the verdict's own line knows neither the history nor how the cap is given
            shown = shlex.quote(json.dumps(recipe, separators=(",", ":")))
            text = [
                *(line for line in text if not line.startswith("  replay ")),
                f"  replay   softcap-verify replay {shown}",
            ]
        print("\n".join(text))
        return 1 if verdict.failed else 0
    if outcome.kind == "raised":
        raise UsageError(outcome.reason)
    print(f"FAIL {recipe['law']} · {recipe['pass']}: {outcome.failure}")
    return 1


def _job(recipe: dict[str, Any], spec: str, device: str, timeout: float) -> Job:
    """A line of a corpus has a history of caps before its own; the rest is one law on one case."""
    if corpus.is_line(recipe):
        return corpus.job(recipe, spec, device, timeout)
    kwargs = {
        "spec": spec,
        "law": recipe["law"],
        "pass_": recipe["pass"],
        "case": Case.loads(json.dumps(recipe["case"])).dumps(),
        "device": device,
        "rounding": recipe.get("rounding", "once"),
    }
    return Job("invariance.run:judge_text", kwargs, timeout)
