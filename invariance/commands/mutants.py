"""mutants: the suite judges kernels that are known to be wrong, and proves that it can fail."""

from __future__ import annotations

import argparse
import os
import sys
from difflib import get_close_matches

from invariance import environment
from invariance.checkers import load_laws
from invariance.known_bad import report
from invariance.known_bad.entry import Entry, load_catalogue
from invariance.known_bad.here import reason_not_here
from invariance.known_bad.matrix import Row, judge_all
from invariance.offered import TIERS
from invariance.usage import UsageError, deliver, flattened, possible, progress, shown


def run(options: argparse.Namespace) -> int:
    """Judge, report; 0 when everything that could be judged here was judged right, 1 when not, 130 interrupted."""
    seed, jobs = options.seed, options.jobs or os.cpu_count() or 1
    asked = _tiers(flattened(options.tier))
    possible(options.report)
    entries = load_catalogue()
    chosen = _chosen(entries, asked, flattened(options.kernel))
    judged = _judged(chosen, jobs, seed)
    rows = [judged.get(name) or Row(entry, not_run=_why_not(entry, asked, chosen)) for name, entry in entries.items()]
    device = environment.resolve_device("auto")
    data = report.as_json(rows, environment.describe(device, seed, {}), seed)
    text = report.dumps(data) if options.json else report.text(rows)
    deliver(text, options.report, lambda folder: report.write(folder, data))
    if not data["complete"]:
        return 130
    return 1 if any(row.complaints for row in rows) else 0


def _judged(chosen: list[Entry], jobs: int, seed: int) -> dict[str, Row]:
    """What became of each kernel, by its name, up to an interrupt."""
    load_laws()
    done = 0

    def shown(row: Row) -> None:
        nonlocal done
        done += 1
        progress(done, len(chosen), f"{row.entry.name}: {report.outcome(row)}")
        if sys.stderr.isatty():
            for complaint in row.complaints:
                print(f"\r\x1b[2K{row.entry.name}: {complaint}", file=sys.stderr)

    # A kernel that damages the device's context does it alone: one at a time there.
    on_device = [entry for entry in chosen if entry.tier == "device"]
    on_host = sorted((entry for entry in chosen if entry.tier != "device"), key=_takes_longest_first)
    by_name: dict[str, Row] = {}
    try:
        for together, at_a_time in ((on_host, jobs), (on_device, 1)):
            for row in judge_all(together, jobs=at_a_time, seed=seed, progress=shown):
                by_name[row.entry.name] = row
    except KeyboardInterrupt:
        print("\nsoftcap-verify: interrupted; the report is incomplete", file=sys.stderr)
    return by_name


def _takes_longest_first(entry: Entry) -> bool:
    """Right kernels meet every law, and a hang is waited for: begun last, one would keep the others waiting."""
    return entry.wrong and entry.name != "hangs"


def _chosen(entries: dict[str, Entry], asked: tuple[str, ...], names: list[str]) -> list[Entry]:
    """The kernels of the tiers asked for; of those that are named only these, each of which must be judged."""
    for name in names:
        if name not in entries:
            near = get_close_matches(name, entries, 3)
            raise UsageError(
                f"--kernel {shown(name)} is not in the catalogue"
                + (f"; near it: {', '.join(near)}" if near else "; `mutants --json` lists all names")
            )
        if entries[name].tier not in asked:
            raise UsageError(f"--kernel {name} is of the tier {entries[name].tier}, which --tier does not name")
        if (reason := reason_not_here(entries[name].tier)) is not None:
            raise UsageError(f"--kernel {name} cannot be judged here: {reason}")
    return [entry for name, entry in entries.items() if entry.tier in asked and (name in names or not names)]


def _why_not(entry: Entry, asked: tuple[str, ...], chosen: list[Entry]) -> str:
    if entry.tier not in asked:
        return "the tier was not asked for"
    return report.INTERRUPTED if entry in chosen else "the kernel was not asked for"


def _tiers(asked: list[str]) -> tuple[str, ...]:
    """Those asked for, in the catalogue's order; all of them unless some are named."""
    if not asked or "all" in asked:
        return TIERS
    for tier in asked:
        if (reason := reason_not_here(tier)) is not None:
            raise UsageError(f"--tier {tier} cannot be judged here: {reason}")
    return tuple(tier for tier in TIERS if tier in asked)
