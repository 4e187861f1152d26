"""laws: every law of the suite."""

from __future__ import annotations

import argparse
import json

from invariance.checkers import Law, load_laws


def run(options: argparse.Namespace) -> int:
    """Print the laws; always 0."""
    laws = list(load_laws().values())
    if options.json:
        print(json.dumps([_row(law) for law in laws], indent=1))
        return 0
    width = max(len(law.id) for law in laws)
    for law in laws:
        where = " (on an accelerator)" if law.device else ""
        print(f"{law.id:<{width}}  {_judgements(law):<5}  {law.statement}{where}")
        if law.bugs:
            print(f"{'':<{width}}         {', '.join(law.bugs)}")
    return 0


def _judgements(law: Law) -> str:
    return " ".join(dict.fromkeys(law.verdict(pass_) for pass_ in law.passes))


def _row(law: Law) -> dict[str, object]:
    return {
        "law": law.id,
        "judgement": _judgements(law),
        "states": law.statement,
        "passes": list(law.passes),
        "dtypes": list(law.dtypes),
        "device": law.device,
        "bugs": list(law.bugs),
    }
