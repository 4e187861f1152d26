"""results.json as a page for a reader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.contenders import PASSES
from benchmarks.workload import SIZES

_NAMES = {"forward": "Forward (no_grad)", "backward": "Backward", "forward_backward": "Forward + backward"}


def render(data: dict[str, Any]) -> str:
    """The Markdown report of a run."""
    blocks = [
        "# Benchmark: final logit softcap",
        _provenance(data),
        _promises(data["goals"]),
        *(_events(data["events"], pass_) for pass_ in PASSES),
        _small(data["small"]),
        _accuracy(data["accuracy"]),
        _NOTES,
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


_NOTES = """## How it was measured

* Events: device events around one call, contenders in turn within each repetition, after four reads of 1 GiB
  that empty the L2 cache and let the host queue the call before the device is ready for it. Allocation of the result
  and autograd's dispatch are included; input generation, accuracy checks and compilation are not. "native / this"
  above 1 is faster than the reference.
* Of ceiling: the time of a kernel that moves the same bytes and computes next to nothing, divided by the time of the
  contender; forward + backward against the sum of the two kernels. Empty where the output is narrower.
* Extra peak: memory that one call allocates at its peak, beyond inputs and a graph built before.
* Host: wall time of a call without a synchronisation in between. Graph: device time of a call among many in one CUDA
  graph, inputs in L2.
* Samples of every row are in results.json."""


def _provenance(data: dict[str, Any]) -> str:
    environment, settings, kernel = data["environment"], data["settings"], data["kernel"]
    launches = "; ".join(
        f"{size} tensors {kernel[size]['block']}, {kernel[size]['num_warps']}" for size in SIZES
    )
    gpu = environment.get("accelerator") or {}
    packages = {name: version for name, version in environment["packages"].items() if version}
    rows = [
        (
            "device",
            f"{gpu.get('name')} ({gpu.get('architecture')}), {gpu.get('runtime')}, driver {gpu.get('driver')}",
        ),
        ("versions", ", ".join(f"{name} {version}" for name, version in packages.items())),
        ("python", f"{environment['python']} on {environment['platform']}"),
        ("commit", f"{environment['commit']}, tracked changes: {environment['tracked_changes']}"),
        ("warm-up, repetitions, seed", f"{settings['warmup']}, {settings['repeat']}, {settings['seed']}"),
        ("block, warps", launches),
        ("fp fusion", str(kernel["enable_fp_fusion"])),
        ("tolerance contract", environment["contract"]),
        ("seconds in all", f"{data['seconds']:.0f}"),
    ]
    return _table(("what", "value"), rows)


def _promises(goals: Sequence[dict[str, Any]]) -> str:
    if not goals:
        return ""
    kept = sum(goal["holds"] for goal in goals)
    kinds: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for goal in goals:
        kinds.setdefault((goal["what"], goal["pass"]), []).append(goal)
    rows = [_promise(what, pass_, found) for (what, pass_), found in sorted(kinds.items())]
    title = f"## Promised ratios: {kept} of {len(goals)} hold"
    return f"{title}\n\n" + _table(("what", "pass", "limit", "worst", "at", "hold"), rows)


def _promise(what: str, pass_: str, goals: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    least = goals[0]["least"]
    worst = (min if least else max)(goals, key=lambda goal: goal["value"])
    limit = f"{'at least' if least else 'at most'} {goals[0]['limit']}"
    held = f"{sum(goal['holds'] for goal in goals)} of {len(goals)}"
    return what, _NAMES[pass_], limit, f"{worst['value']:.3f}", _key(worst), held


def _events(rows: Sequence[dict[str, Any]], pass_: str) -> str:
    body = [
        (
            _key(row),
            row["contender"],
            f"{row['median_ms'] * 1e3:.2f} ± {row['stdev_ms'] * 1e3:.2f}",
            f"{row['native_over_this']:.2f}",
            "" if row["of_ceiling"] is None else f"{row['of_ceiling']:.3f}",
            "" if row["bytes"] is None else f"{row['bytes'] / row['median_ms'] * 1e-9:.2f}",
            f"{row['extra_peak_bytes'] / 2**20:.1f}",
        )
        for row in rows
        if row["pass"] == pass_
    ]
    head = ("workload", "contender", "µs", "native / this", "of ceiling", "TB/s", "extra peak MiB")
    return f"## {_NAMES[pass_]}\n\n" + _table(head, body) if body else ""


def _small(rows: Sequence[dict[str, Any]]) -> str:
    body = [
        (
            _key(row),
            _NAMES[row["pass"]],
            row["contender"],
            f"{row['host_us']:.1f}",
            f"{row['graph_us']:.2f}" if "graph_us" in row else row.get("graph_refused", ""),
        )
        for row in rows
    ]
    head = ("workload", "pass", "contender", "host µs a call", "µs in a CUDA graph")
    return "## Small shapes: host and graph\n\n" + _table(head, body) if body else ""


def _accuracy(rows: Sequence[dict[str, Any]]) -> str:
    body = [
        (
            _key(row),
            row["contender"],
            row["output_dtype"],
            "yes" if row["ok"] else "no: not timed",
            f"{row.get('output_worst', 'wrong shape')}",
            f"{row.get('gradient_worst', 'wrong shape')}",
            f"{row['elements']:,}",
        )
        for row in rows
    ]
    errors = ("worst output (ulp)", "worst gradient (2^-24 grad_y)")
    head = ("workload", "contender", "output", "accepted", *errors, "compared")
    return "## Accuracy, checked before timing\n\n" + _table(head, body)


def _key(row: dict[str, Any]) -> str:
    return f"{row['shape']} {row['dtype']} cap {row['cap']:g}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
