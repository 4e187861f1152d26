"""What the project promises of the operator's speed, as ratios within one run."""

from __future__ import annotations

import math
import statistics
from typing import Any

from benchmarks.contenders import COMPILED, FORMULA, OPERATOR

LARGE = 1 << 24  # elements from which the memory's speed is the measure

Rows = list[dict[str, Any]]


def goals(events: Rows, small: Rows) -> Rows:
    """The ratios that the project promises, each with its limit and whether it holds in this run."""
    return [*_large_goals(events), *_small_goals(small)]


def _large_goals(rows: Rows) -> Rows:
    found = []
    for row in (r for r in rows if r["contender"] == OPERATOR and _elements(r) >= LARGE):
        if row["pass"] != "forward_backward":
            found.append(_goal(row, "share of the ceiling kernel", row["of_ceiling"], 0.95, least=True))
        compiled = _same(rows, row, COMPILED)
        if compiled is not None:
            found.append(
                _goal(row, "time over torch.compile", row["median_ms"] / compiled["median_ms"], 1.02)
            )
    return found


def _small_goals(rows: Rows) -> Rows:
    limits = {"forward": 0.5, "forward_backward": 0.8}
    found = []
    for row in (r for r in rows if r["contender"] == OPERATOR and r["pass"] in limits):
        eager, compiled = (_same(rows, row, name) for name in (FORMULA, COMPILED))
        if eager is not None:
            found.append(
                _goal(row, "host time over the eager formula", _paired(row, eager), limits[row["pass"]])
            )
        if compiled is not None and row["pass"] == "forward" and "graph_us" in row and "graph_us" in compiled:
            ratio = row["graph_us"] / compiled["graph_us"]
            found.append(_goal(row, "in a CUDA graph, time over torch.compile", ratio, 1.1))
    return found


def _paired(row: dict[str, Any], other: dict[str, Any]) -> float:
    """The median over rounds of the ratio within a round: hosts change their clock by a factor of two within a run."""
    return statistics.median(
        a / b for a, b in zip(row["host_samples_us"], other["host_samples_us"], strict=True)
    )


def _same(rows: Rows, row: dict[str, Any], contender: str) -> dict[str, Any] | None:
    key = ("shape", "dtype", "cap", "pass")
    return next((r for r in rows if r["contender"] == contender and all(r[k] == row[k] for k in key)), None)


def _elements(row: dict[str, Any]) -> int:
    return math.prod(map(int, row["shape"].split("x")))


def _goal(
    row: dict[str, Any], what: str, value: float, limit: float, *, least: bool = False
) -> dict[str, Any]:
    key = {name: row[name] for name in ("shape", "dtype", "cap", "pass")}
    holds = value >= limit if least else value <= limit
    return key | {"what": what, "value": value, "limit": limit, "least": least, "holds": holds}
