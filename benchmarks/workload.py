"""One workload: a shape, a dtype and a cap; its inputs, its accuracy and its rows of the results."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.accuracy import Truths, check
from benchmarks.ceilings import CEILINGS, KERNEL, bytes_moved, ceilings
from benchmarks.contenders import NATIVE, PASSES, Contender, calls, contenders
from benchmarks.measure import Flush, event_times, extra_peak_bytes, graph_times, host_times, summary

SIZES = {"small": 1, "large": 1 << 30}  # elements at which the report tells how the operator is launched
SMALL = 1 << 18  # elements up to which the host's part is measured, and the device's part in a CUDA graph
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


class Inaccurate(Exception):
    """The operator or its reference is outside the contract: nothing is timed."""


@dataclass(frozen=True)
class Workload:
    """What is timed. `seed` makes the inputs: N(0, 1) times the cap, so that all of tanh is used."""

    shape: tuple[int, ...]
    dtype: str
    cap: float
    seed: int = 0

    @property
    def key(self) -> dict[str, Any]:
        """The columns that name a row."""
        return {"shape": "x".join(map(str, self.shape)), "dtype": self.dtype, "cap": self.cap}

    def inputs(self, device: str) -> tuple[Tensor, Tensor]:
        """x in the dtype, and an FP32 upstream gradient, both contiguous."""
        generator = torch.Generator(device).manual_seed(self.seed)
        x = torch.randn(self.shape, generator=generator, device=device).mul_(self.cap)
        grad_y = torch.randn(self.shape, generator=generator, device=device)
        return x.to(DTYPES[self.dtype]), grad_y


@dataclass(frozen=True)
class Plan:
    """How workloads are measured. configuration: the operator's block and warps, for the ceiling kernels."""

    device: str
    warmup: int
    repeat: int
    specs: tuple[str, ...]
    configuration: Callable[[int], tuple[int, int]]
    flush: Flush


@dataclass
class Results:
    """Rows as they go into results.json."""

    accuracy: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    small: list[dict[str, Any]] = field(default_factory=list)

    @property
    def refused(self) -> list[str]:
        """Contenders that were not timed for want of accuracy."""
        return sorted({row["contender"] for row in self.accuracy if not row["ok"]})


def run(workload: Workload, plan: Plan, results: Results) -> None:
    """Check everybody's accuracy, then time those that are accurate. Raises Inaccurate."""
    x, grad_y = workload.inputs(plan.device)
    accurate = _accurate(workload, plan, x, grad_y, results)
    by_contender = {one.name: calls(one, x, grad_y) for one in accurate}
    outputs = {row["contender"]: row["output_dtype"] for row in results.accuracy}
    medians: dict[str, float] = {}
    for pass_ in PASSES:
        timed = {name: of[pass_] for name, of in by_contender.items()}
        timed |= ceilings(pass_, x, grad_y, *plan.configuration(x.numel()))
        with _mode(pass_):
            _time_events(workload, plan, x, pass_, timed, outputs, medians, results)
            if x.numel() <= SMALL:
                _time_small(workload, pass_, timed, results)


def _accurate(workload: Workload, plan: Plan, x: Tensor, grad_y: Tensor, results: Results) -> list[Contender]:
    truths = Truths(x, grad_y, workload.cap)
    kept = []
    for contender in contenders(workload.cap, x.dtype, plan.device, plan.specs):
        found = check(contender, x, grad_y, truths)
        results.accuracy.append(workload.key | found)
        if found["ok"]:
            kept.append(contender)
        elif contender.required:
            raise Inaccurate(f"{contender.name} breaks the contract on {workload.key}: {found}")
    return kept


def _mode(pass_: str) -> contextlib.AbstractContextManager[object]:
    return torch.no_grad() if pass_ == "forward" else contextlib.nullcontext()


def _time_events(
    workload: Workload,
    plan: Plan,
    x: Tensor,
    pass_: str,
    timed: dict[str, Callable[[], object]],
    outputs: dict[str, str],
    medians: dict[str, float],
    results: Results,
) -> None:
    samples = event_times(timed, warmup=plan.warmup, repeat=plan.repeat, flush=plan.flush)
    found = {name: summary(values) for name, values in samples.items()}
    if KERNEL in found:
        medians[pass_] = found[KERNEL]["median"]
    ceiling = medians.get(pass_, sum(medians.values()))
    native = found[NATIVE]["median"]
    for name, values in samples.items():
        median = found[name]["median"]
        same_bytes = name in CEILINGS or outputs[name] == "float32"
        results.events.append(
            workload.key
            | {
                "pass": pass_,
                "contender": name,
                "median_ms": median,
                "stdev_ms": found[name]["stdev"],
                "native_over_this": native / median,
                "of_ceiling": ceiling / median if same_bytes else None,
                "bytes": bytes_moved(pass_, x) if same_bytes else None,
                "extra_peak_bytes": extra_peak_bytes(timed[name], plan.device),
                "samples_ms": [round(value, 6) for value in values],
            }
        )


def _time_small(
    workload: Workload, pass_: str, timed: dict[str, Callable[[], object]], results: Results
) -> None:
    gc.collect()
    gc.freeze()  # every capture collects garbage: 0.2 s each with a compiler loaded, and nothing once frozen
    host = host_times(timed)
    # A retained graph was recorded outside of a capture, on the stream of its forward: it has no graph timing.
    graph, refused = graph_times(timed if pass_ != "backward" else {})
    for name, values in host.items():
        row = workload.key | {"pass": pass_, "contender": name, "host_us": summary(values)["median"]}
        row |= {"host_samples_us": [round(value, 4) for value in values]}
        if name in graph:
            row |= {"graph_us": summary(graph[name])["median"]}
            row |= {"graph_samples_us": [round(value, 4) for value in graph[name]]}
        elif name in refused:
            row["graph_refused"] = refused[name]
        results.small.append(row)
