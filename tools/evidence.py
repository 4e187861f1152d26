"""Everything that is to be shown on a GPU, in one command: PYTHONPATH=. python3 tools/evidence.py --out DIR

Steps run one after another, each under a time limit, and go on after a failure. DIR receives summary.md,
evidence.log (what every step printed), the Markdown reports, and everything that the steps wrote as evidence.tar.gz.
The exit status is 0 when every step asked for passed, and 1 otherwise. Works on CUDA and on ROCm.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
SWEPT_CAPS = ("20", "30")
LARGER_SHAPES = ("1x1x1025", "1x1x262144", "1x16x262144", "1x64x262144", "4x64x262144")
LARGEST_FILE = 15 << 20  # bytes; a larger report stays in the archive only
MOST_REPORTS = 4
# One child leaves the device idle most of the time: laws are many small calls, driven by Python.
JOBS = str(min(8, os.cpu_count() or 1))

Command = list[str]


@dataclass(frozen=True)
class Step:
    """`commands(work)` are run in order, results under `work`; `seconds` is the limit of all of them together.

    `missing()` says what the step needs and does not find: it then counts as failed, for what is asked for and cannot
    be shown is no success.
    """

    name: str
    seconds: float
    commands: Callable[[Path], list[Command]]
    missing: Callable[[], str | None] = lambda: None
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """How a step ended."""

    name: str
    result: str
    seconds: float


def _environment(_: Path) -> list[Command]:
    show = (
        "import sys, torch, triton; p = torch.cuda.get_device_properties(0); "
        "print(sys.version); print('torch', torch.__version__, 'triton', triton.__version__, "
        "'CUDA', torch.version.cuda, 'HIP', torch.version.hip); print(p)"
    )
    tool = "rocm-smi" if shutil.which("rocm-smi") else "nvidia-smi"
    return [[PYTHON, "-c", show], *([[tool]] if shutil.which(tool) else [])]


def _check(work: Path) -> list[Command]:
    return [[PYTHON, "-m", "invariance", "check", "--candidate", "triton", "--device", "cuda", "--check-grad",
             "--jobs", JOBS, "--timeout", "120", "--report", str(work / "check")]]  # fmt: skip


def _specified(work: Path) -> list[Command]:
    # The specification's own shape; exploration is the step `check`'s.
    shape = ["--batch", "2", "--seq", "3", "--vocab", "262144", "--dtype", "bf16"]
    return [[PYTHON, "-m", "invariance", "check", "--candidate", "triton", "--device", "cuda", "--check-grad", *shape,
             "--profile", "quick", "--no-explore", "--jobs", JOBS, "--timeout", "120",
             "--report", str(work / "specified")]]  # fmt: skip


def _mutants(work: Path) -> list[Command]:
    # All tiers: without the others a score of the whole catalogue would count what was not run as survived.
    return [[PYTHON, "-m", "invariance", "mutants", "--jobs", str(os.cpu_count() or 1),
             "--report", str(work / "mutants")]]  # fmt: skip


def _fuzz(work: Path) -> list[Command]:
    return [[PYTHON, "-m", "invariance", "fuzz", "--candidate", "triton", "--device", "cuda", "--minutes", "10",
             "--report", str(work / "fuzz")]]  # fmt: skip


def _native(work: Path) -> list[Command]:
    return [[PYTHON, "-m", "invariance", "check", "--candidate", "native", "--device", "cuda", "--profile", "quick",
             "--no-explore", "--jobs", JOBS, "--timeout", "120", "--report", str(work / "native")]]  # fmt: skip


def _tests(work: Path) -> list[Command]:
    # The plan with its sweeps is the step `check`: pytest would run it a second time.
    elsewhere = [
        f"--deselect=tests/gpu/test_plan_on_device.py::{name}"
        for name in (
            "test_the_operator_passes_every_law_on_the_device",
            "test_every_input_is_right_at_caps_20_and_30",
        )
    ]
    options = ["-m", "gpu", "-p", "no:cacheprovider", "--durations=15", f"--junitxml={work / 'tests.xml'}"]
    return [[PYTHON, "-m", "pytest", *options, *elsewhere]]


def _benchmark(work: Path) -> list[Command]:
    script = str(ROOT / "benchmarks" / "benchmark_final_logit_softcap.py")
    return [[PYTHON, script, "--shapes", *LARGER_SHAPES, "--output-dir", str(work / "benchmark")]]


def _sweep(work: Path) -> list[Command]:
    return [[PYTHON, "-m", "invariance", "sweep", "--candidate", "triton", "--device", "cuda", "--softcap", *SWEPT_CAPS,
             "--report", str(work / "sweep")]]  # fmt: skip


def _sweep_speed(work: Path) -> list[Command]:
    script = str(ROOT / "reports" / "experiments" / "sweep_speed.py")
    return [[PYTHON, script, "--output", str(work / "sweep-speed")]]


def _sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def _sanitize(_: Path) -> list[Command]:
    script = str(ROOT / "tools" / "sanitized_calls.py")
    run = [_sanitizer() or "compute-sanitizer", "--error-exitcode", "9", "--print-limit", "20", "--tool"]
    # No --kernel-name for initcheck: it would not see PyTorch's kernels write the inputs, and call every read a fault.
    return [
        [*run, "memcheck", PYTHON, script],
        [*run, "initcheck", PYTHON, script],
    ]


STEPS = (
    Step("environment", 60, _environment),
    Step("check", 420, _check),
    Step("tests", 420, _tests, environment={"SOFTCAP_REQUIRE_GPU": "1"}),
    Step("benchmark", 420, _benchmark),
    Step("sweep", 180, _sweep),
    Step("sweep-speed", 120, _sweep_speed),
    Step("specified", 180, _specified),
    Step("mutants", 240, _mutants),
    Step("fuzz", 720, _fuzz),
    Step("native", 180, _native),
    Step(
        "sanitize",
        240,
        _sanitize,
        lambda: None if _sanitizer() else "there is no compute-sanitizer",
        environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    ),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps asked for and collect what they wrote."""
    options = _options(argv)
    names = [step.name for step in STEPS]
    asked = options.steps.split(",") if options.steps else names
    if unknown := sorted(set(asked) - set(names)):
        print(f"evidence: no step {', '.join(unknown)}: there are {', '.join(names)}", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + options.budget
    with tempfile.TemporaryDirectory() as folder, (options.out / "evidence.log").open("w") as log:
        work = Path(folder)
        done = [run(step, work, log.fileno(), deadline) for step in STEPS if step.name in asked]
        table = summary(done)
        (options.out / "summary.md").write_text(table, encoding="utf-8")
        collect(work, options.out)
    print(table)
    return 0 if all(one.result == "passed" for one in done) else 1


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument(
        "--steps", metavar="A,B", help=f"of {','.join(step.name for step in STEPS)} (default: all)"
    )
    parser.add_argument(
        "--budget", type=float, default=3600, metavar="S", help="seconds for all steps together"
    )
    return parser.parse_args(argv)


def run(step: Step, work: Path, log: int, deadline: float) -> Done:
    """One step, its output appended to the log; its commands share one time limit, and the first failure ends it."""
    print(f"== {step.name}", flush=True)
    started = time.monotonic()
    if reason := step.missing():
        os.write(log, f"== {step.name}: {reason}\n".encode())
        return Done(step.name, f"not run: {reason}", 0.0)
    end = min(started + step.seconds, deadline)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"} | step.environment
    result = "passed"
    for command in step.commands(work):
        os.write(log, f"\n== {step.name}: {' '.join(command)}\n".encode())
        result = _of_command(command, environment, log, end - time.monotonic())
        if result != "passed":
            break
    seconds = time.monotonic() - started
    print(f"   {result} after {seconds:.1f} s", flush=True)
    return Done(step.name, result, seconds)


def _of_command(command: Command, environment: dict[str, str], log: int, seconds: float) -> str:
    if seconds <= 0:
        return "not run: no time left"
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its own session: the children that it started go too
        process.wait()
        return f"stopped after {seconds:.0f} s"
    return "passed" if status == 0 else f"exit status {status}"


def summary(done: Sequence[Done]) -> str:
    """The table of steps."""
    rows = [f"| {one.name} | {one.result} | {one.seconds:.1f} |" for one in done]
    total = sum(one.seconds for one in done)
    return "\n".join(
        ["| step | result | seconds |", "| --- | --- | --- |", *rows, f"| all | | {total:.1f} |", ""]
    )


def collect(work: Path, out: Path) -> None:
    """The Markdown reports beside the summary, under flat names, and everything in one archive."""
    with tarfile.open(out / "evidence.tar.gz", "w:gz") as archive:
        for path in sorted(work.iterdir()):
            archive.add(path, arcname=path.name)
    reports = [path for path in sorted(work.glob("*/*.md")) if path.stat().st_size <= LARGEST_FILE]
    for path in reports[:MOST_REPORTS]:
        shutil.copyfile(path, out / f"{path.parent.name}-{path.name}")


if __name__ == "__main__":
    sys.exit(main())
