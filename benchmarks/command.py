"""The benchmark's command line."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch._functorch import config as functorch

from benchmarks.goals import goals
from benchmarks.measure import Flush
from benchmarks.summary import render
from benchmarks.workload import DTYPES, SIZES, Inaccurate, Plan, Results, Workload, run
from invariance.candidate import CandidateNotLoadable, load
from invariance.environment import NoSuchDevice, describe, resolve_device
from softcap.contract import check_cap
from softcap.registry import load_path

SHAPES = ("1x1x1025", "1x1x262144", "1x16x262144", "1x64x262144")
CAPS = ("20", "30")
SEED = 0


class Usage(Exception):
    """A request that cannot be carried out; exit status 2."""


class Parser(argparse.ArgumentParser):
    """argparse with one line for a mistake."""

    def error(self, message: str) -> NoReturn:
        """Raise Usage."""
        raise Usage(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and write results.json and report.md; 0, 1 for a contender outside the contract, 2 for a bad request."""
    try:
        options = _parser().parse_args(argv)
        workloads, plan = read(options)
    except Usage as error:
        print(f"benchmark_final_logit_softcap: {error}", file=sys.stderr)
        return 2
    return _measured(workloads, plan, options)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="benchmark_final_logit_softcap", description=__doc__, allow_abbrev=False)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), metavar="AxBxC")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), metavar="DTYPE", help="fp16, bf16, fp32")
    parser.add_argument("--softcaps", nargs="+", default=list(CAPS), metavar="C")
    parser.add_argument(
        "--warmup", default="10", metavar="N", help="calls before the first sample (default: 10)"
    )
    parser.add_argument("--repeat", default="50", metavar="N", help="samples of each figure (default: 50)")
    parser.add_argument("--device", default="auto", help="cuda or cuda:i; ROCm devices are cuda too")
    parser.add_argument(
        "--output-dir", type=Path, default=Path("artifacts/benchmarks/final-logit-softcap"), metavar="DIR"
    )
    parser.add_argument(
        "--candidate", action="append", default=[], metavar="SPEC", help="one more contender; may be repeated"
    )
    return parser


def read(options: argparse.Namespace) -> tuple[list[Workload], Plan]:
    """What the options ask for; raises Usage."""
    workloads = [
        Workload(shape, dtype, cap, SEED)
        for shape in [_shape(text) for text in options.shapes]
        for dtype in [_dtype(text) for text in options.dtypes]
        for cap in [_cap(text) for text in options.softcaps]
    ]
    warmup, repeat = _whole("--warmup", options.warmup, 0), _whole("--repeat", options.repeat, 1)
    if options.output_dir.exists() and not options.output_dir.is_dir():
        raise Usage(f"--output-dir {options.output_dir} is a file, not a folder")
    device = _accelerator(options.device)
    operator = _operator()
    try:
        for spec in options.candidate:
            load(spec, device)
    except CandidateNotLoadable as error:
        raise Usage(f"--candidate: {error}") from error
    torch.cuda.set_device(device)
    specs = tuple(options.candidate)
    return workloads, Plan(device, warmup, repeat, specs, operator.configuration, Flush(device))


def _accelerator(name: str) -> str:
    try:
        device = resolve_device(name)
    except NoSuchDevice as error:
        raise Usage(f"--{error}") from error
    if device == "cpu":
        raise Usage(
            f"--device {name} means the CPU here, and this benchmark times a CUDA or ROCm device: "
            "run it on a machine that has one"
        )
    return device


def _operator() -> Any:
    """The module of the Triton operator: without Triton there is nothing to measure."""
    try:
        op = load_path("softcap.triton_op:TritonFinalLogitSoftcapOp")
    except ImportError as error:
        raise Usage(f"the Triton operator cannot be imported: {error}") from error
    return sys.modules[op.__module__]


def _measured(workloads: list[Workload], plan: Plan, options: argparse.Namespace) -> int:
    # Otherwise compiled code frees what a backward on a retained graph needs again, and refuses to run.
    functorch.donated_buffer = False
    results, start = Results(), time.monotonic()
    failure = None
    for number, workload in enumerate(workloads, 1):
        done = f"{number}/{len(workloads)} after {time.monotonic() - start:.0f} s"
        print(f"{done}: {workload.key}", file=sys.stderr, flush=True)
        try:
            run(workload, plan, results)
        except Inaccurate as error:
            failure = str(error)
            break
    data = record(results, plan, options, time.monotonic() - start)
    write(data, options.output_dir)
    if failure is not None:
        print(f"benchmark_final_logit_softcap: {failure}", file=sys.stderr)
    refused = set(results.refused) & {load(spec, plan.device).name for spec in plan.specs}
    for name in sorted(refused):
        print(
            f"benchmark_final_logit_softcap: {name} is outside the contract and was not timed",
            file=sys.stderr,
        )
    print(options.output_dir / "report.md")
    return 1 if failure is not None or refused else 0


def record(results: Results, plan: Plan, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """The content of results.json."""
    fusion = load_path("softcap.triton_op:ENABLE_FP_FUSION")
    launches = {
        size: dict(zip(("block", "num_warps"), plan.configuration(n), strict=True))
        for size, n in SIZES.items()
    }
    return {
        "schema_version": 1,
        "settings": {
            "shapes": options.shapes,
            "dtypes": options.dtypes,
            "softcaps": options.softcaps,
            "warmup": plan.warmup,
            "repeat": plan.repeat,
            "seed": SEED,
            "candidates": list(plan.specs),
        },
        "environment": describe(plan.device, SEED, {}),
        "kernel": {**launches, "enable_fp_fusion": fusion},
        "seconds": seconds,
        "goals": goals(results.events, results.small),
        "accuracy": results.accuracy,
        "events": results.events,
        "small": results.small,
    }


def write(data: dict[str, Any], folder: Path) -> None:
    """results.json and report.md in `folder`, which is made where it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    (folder / "report.md").write_text(render(data), encoding="utf-8")


def _shape(text: str) -> tuple[int, ...]:
    parts = text.split("x")
    if not all(part.isascii() and part.isdigit() and int(part) > 0 for part in parts):
        raise Usage(f"--shapes {text!r} is not a shape such as 1x16x262144, with sizes of at least 1")
    return tuple(map(int, parts))


def _dtype(text: str) -> str:
    if text not in DTYPES:
        raise Usage(f"--dtypes {text!r} is unknown: there are {', '.join(DTYPES)}")
    return text


def _cap(text: str) -> float:
    try:
        return check_cap(float(text))
    except ValueError:
        raise Usage(f"--softcaps {text!r} is not a number that is finite and positive in FP32") from None


def _whole(flag: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise Usage(f"{flag} {text!r} is not a whole number of at least {least}")
    return int(text)
