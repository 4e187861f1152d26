"""replay: failures again, from the line that a report printed, or from a file of such lines."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from invariance.candidate import PASSES, CandidateNotLoadable, display_name
from invariance.checkers import load_laws
from invariance.environment import NoSuchDevice, resolve_device, too_large
from invariance.fuzz import corpus
from invariance.fuzz.asked import Asked
from invariance.fuzz.finding import NOT_SEEN, Finding
from invariance.fuzz.rounds import CRASHED, LATE, RAISED, WRONG
from invariance.judge import Mismatch
from invariance.probing import load
from invariance.process import Child, Job, Outcome
from invariance.usage import UsageError
from invariance.verdict import FAIL, NOT_RUN, PASS, Cell, Verdict
from strategies.case import Case

_KEYS = ("candidate", "law", "pass", "case")
_WORDS = ("candidate", "law", "pass", "device", "rounding")
LONGEST_PATH = 4096  # characters
PATIENCE = 60.0  # seconds, where neither the user nor the line says how many
NOT_JUDGED = "not judged"
_LEFT = ("SystemExit", "KeyboardInterrupt")  # what a candidate raises to leave the interpreter


def run(options: argparse.Namespace) -> int:
    """Judge each recipe again: 0 where none fails now, 1 where one does, 2 where one could not be judged."""
    path = _file_of(options.recipe)
    if path is None:
        return 1 if _replay(_read(options.recipe), options).verdict.failed else 0
    counts = _replay_all(path, options)
    told = [f"{number} {status}" for status, number in sorted(counts.items())]
    print(f"{path}: {counts.total()} case{'s' if counts.total() != 1 else ''}: {', '.join(told)}")
    if counts[NOT_JUDGED] or not counts[PASS] + counts[FAIL] + counts[NOT_SEEN]:
        return 2
    return 1 if counts[FAIL] else 0


def _replay_all(path: Path, options: argparse.Namespace) -> Counter[str]:
    """Every line, and how many came to what; one that cannot be judged is told by its number, and the rest go on."""
    try:
        lines = list(corpus.lines_of(corpus.read(path)))
    except corpus.NoCorpus as error:
        raise UsageError(f"{path} {error}") from error
    except OSError as error:
        raise UsageError(f"{path} is no file of cases: {error.strerror or error}") from error
    if all(text is None for _, text in lines):
        raise UsageError(f"{path} is no file of cases: it holds {'no text' if lines else 'none'}")
    counts: Counter[str] = Counter()
    for number, text in lines:
        counts[_status(f"{path} line {number}", text, options)] += 1
    return counts


def _status(where: str, text: str | None, options: argparse.Namespace) -> str:
    try:
        if text is None:
            raise UsageError("not a case: this is not UTF-8")
        return _replay(_read(text), options).status
    except UsageError as error:
        print(f"softcap-verify: {where}: {error}", file=sys.stderr, flush=True)
        return NOT_JUDGED


def _file_of(text: str) -> Path | None:
    """The file that is named; None where it is a recipe itself."""
    if text.lstrip().startswith("{") or len(text) >= LONGEST_PATH or not Path(text).exists():
        return None
    if Path(text).is_dir():
        raise UsageError(f"{text} is a folder; give a file of cases, or the JSON of a report's replay line")
    return Path(text)


def _read(text: str) -> dict[str, Any]:
    try:
        recipe = json.loads(text)
        assert isinstance(recipe, dict)
    except (ValueError, AssertionError, RecursionError):
        nor = "" if text.lstrip().startswith("{") else ", and no file is called so"
        raise UsageError(
            f"not a case{nor}: {text[:60]!r}; give the JSON of a report's replay line, or a file of such lines"
        ) from None
    missing = [key for key in _KEYS if key not in recipe]
    if missing:
        raise UsageError(f"the case lacks {', '.join(missing)}; it needs {', '.join(_KEYS)}")
    wrong = [key for key in _WORDS if not isinstance(recipe.get(key, ""), str)]
    if wrong:
        raise UsageError(f"{wrong[0]} is {recipe[wrong[0]]!r}, and has to be text")
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


def _replay(recipe: dict[str, Any], options: argparse.Namespace) -> Finding:
    """Judge one recipe and print what came of it; raises UsageError where it cannot be judged."""
    try:
        device = resolve_device(recipe.get("device", "cpu"))
    except NoSuchDevice as error:
        raise UsageError(str(error)) from error
    if (reason := too_large(Case.loads(json.dumps(recipe["case"])).shape, device)) is not None:
        raise UsageError(f"not judged: the shape {reason}")
    spec = options.candidate or recipe["candidate"]
    timeout = options.timeout or recipe.get("timeout", PATIENCE)
    child = Child()
    try:
        load(child, spec, device, timeout)
        outcome = child.run(_job(recipe, spec, device, timeout))
    except CandidateNotLoadable as error:
        raise UsageError(str(error)) from error
    finally:
        child.close()
    found = _finding(recipe, spec, device, outcome)
    shown = {**recipe, "candidate": spec}
    lines = [line for line in str(found).splitlines() if not line.startswith("  replay ")]
    lines.append(f"  replay   softcap-verify replay {shlex.quote(json.dumps(shown, separators=(',', ':')))}")
    print("\n".join(lines), flush=True)
    return found


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


def _finding(recipe: dict[str, Any], spec: str, device: str, outcome: Outcome) -> Finding:
    """What the recipe showed, as a campaign tells it: with cap and history, also where no verdict came back."""
    case = Case.loads(json.dumps(recipe["case"]))
    asked = Asked.of_record(recipe["cap"]) if corpus.is_line(recipe) else Asked(case.cap)
    history = tuple(Asked.of_record(record) for record in recipe.get("history", []))
    if outcome.kind == "done":
        verdict = outcome.value[0] if corpus.is_line(recipe) else outcome.value
        if verdict.status == NOT_RUN:
            raise UsageError(f"not judged: {verdict.reason}")
        kind = RAISED if verdict.raised and corpus.is_line(recipe) else WRONG
        return Finding(verdict, asked, history, kind=kind, attempts=recipe.get("attempts", 1))
    reason = outcome.reason or "failed"
    if outcome.kind == "raised" and not reason.startswith(_LEFT):
        raise UsageError(reason)
    kind = {"timed out": LATE, "raised": RAISED}.get(outcome.kind, CRASHED)
    law = load_laws()[recipe["law"]]
    cell = Cell(display_name(spec), law.id, recipe["pass"], case.dtype, case.cap)
    none = Mismatch("the candidate", kind, got=reason, want="a result")
    verdict = Verdict(
        cell, law.verdict(recipe["pass"]), FAIL, 1, 1, mismatch=none, case=case.dumps(), device=device
    )
    return Finding(verdict, asked, history, kind=kind)
