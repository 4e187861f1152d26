"""The benchmark without a device: what it refuses, what it records, how it counts, what its page says."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import accuracy, command, contenders, goals, measure, summary, workload
from benchmarks.ceilings import bytes_moved
from benchmarks.contenders import COMPILED, FORMULA, NARROW, NATIVE, OPERATOR, Contender

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "benchmark_final_logit_softcap.py"


def test_the_cpu_is_refused_in_one_line(tmp_path: Path) -> None:
    arguments = [sys.executable, str(SCRIPT), "--device", "cpu", "--output-dir", str(tmp_path / "out")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "--device cpu" in line
    assert "CUDA or ROCm" in line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--shapes", "1x0x4"], "'1x0x4' is not a shape"),
        (["--shapes", "big"], "'big' is not a shape"),
        (["--dtypes", "fp64"], "'fp64' is unknown: there are fp16, bf16, fp32"),
        (["--softcaps", "0"], "'0' is not a number"),
        (["--softcaps", "1e40"], "'1e40' is not a number"),
        (["--repeat", "0"], "at least 1"),
        (["--warmup", "-1"], "'-1' is not a whole number"),
        (["--repeat", "2.5"], "'2.5' is not a whole number"),
        (["--output-dir", str(SCRIPT)], "is a file"),
        (["--device", "tpu"], "'tpu' is not one of"),
        (["--rep", "3"], "--rep"),
    ],
)
def test_a_bad_request_is_refused_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    (line,) = error.splitlines()
    assert said in line


def test_the_defaults_are_the_specified_ones() -> None:
    options = command._parser().parse_args([])
    assert options.shapes == ["1x1x1025", "1x1x262144", "1x16x262144", "1x64x262144"]
    assert options.softcaps == ["20", "30"]
    assert options.dtypes == ["fp16", "bf16", "fp32"]


def test_bytes_are_those_of_a_read_and_a_write() -> None:
    x = torch.zeros(1000, dtype=torch.bfloat16)
    assert bytes_moved("forward", x) == 1000 * (2 + 4)
    assert bytes_moved("backward", x) == 1000 * (2 + 4 + 2)
    both = bytes_moved("forward", x) + bytes_moved("backward", x)
    assert bytes_moved("forward_backward", x) == both


def test_everybody_has_a_turn_in_every_round_and_the_first_changes() -> None:
    calls = {name: (lambda: None) for name in "abc"}
    order = [name for name, _ in measure._turns(calls, 4)]
    rounds = ["".join(order[i : i + 3]) for i in range(0, 12, 3)]
    assert rounds == ["abc", "bca", "cab", "abc"]
    assert list(measure._turns({}, 3)) == []


def test_a_summary_is_the_median_and_the_sample_deviation() -> None:
    assert measure.summary([1.0, 2.0, 6.0]) == {"median": 2.0, "stdev": pytest.approx(7.0**0.5)}
    assert measure.summary([3.0]) == {"median": 3.0, "stdev": 0.0}


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_the_reference_and_the_formulas_are_accurate(dtype: str) -> None:
    one = workload.Workload((3, 700), dtype, 30.0)
    x, grad_y = one.inputs("cpu")
    truths = accuracy.Truths(x, grad_y, one.cap)
    for contender in _everybody(30.0, x.dtype):
        found = accuracy.check(contender, x, grad_y, truths)
        assert found["ok"] == (contender.name != "wrong"), found
        assert found["elements"] == 2100


def test_an_inaccurate_gradient_is_not_timed() -> None:
    one = workload.Workload((1, 1, 64), "fp32", 30.0)
    x, grad_y = one.inputs("cpu")
    found = accuracy.check(
        Contender("identity", lambda t: t * 1.0, ("specification",)),
        x,
        grad_y,
        accuracy.Truths(x, grad_y, 30.0),
    )
    assert not found["ok"]


def test_both_ends_of_a_large_tensor_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accuracy, "LIMIT", 4)
    assert accuracy.ends(torch.arange(10).view(2, 5)).tolist() == [0, 1, 8, 9]
    assert accuracy.ends(torch.arange(4)).tolist() == [0, 1, 2, 3]


def _everybody(cap: float, dtype: torch.dtype, *_: Any) -> list[Contender]:
    """The contenders of a machine without a GPU: the reference stands in for the operator."""
    native = contenders.NativeFinalLogitSoftcapOp(cap).forward_fp32
    strict = ("specification", "ulp")
    found = [
        Contender(OPERATOR, native, strict, required=True),
        Contender(NATIVE, native, strict, required=True),
        Contender(FORMULA, lambda x: cap * torch.tanh(x.float() / cap), ("specification",)),
        Contender(COMPILED, native, ("specification",)),
    ]
    if dtype != torch.float32:
        found.append(Contender(NARROW, lambda x: cap * torch.tanh(x / cap), ("chain",)))
    return [*found, Contender("wrong", lambda x: x * 1.0, ("specification",))]


@pytest.fixture
def faked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timers that call once and give made-up numbers: the n-th contender takes n."""

    def times(calls: dict[str, Callable[[], object]], **_: Any) -> dict[str, list[float]]:
        for call in calls.values():
            call()
        return {name: [float(n), n + 0.5, n + 1.0] for n, name in enumerate(calls, 1)}

    def ceilings(pass_: str, *_: Any) -> dict[str, Callable[[], object]]:
        return {} if pass_ == "forward_backward" else {"memory copy": lambda: 0, "ceiling kernel": lambda: 0}

    monkeypatch.setattr(workload, "contenders", _everybody)
    monkeypatch.setattr(workload, "ceilings", ceilings)
    monkeypatch.setattr(workload, "event_times", times)
    monkeypatch.setattr(workload, "host_times", times)
    monkeypatch.setattr(workload, "graph_times", lambda calls: (times(calls), {}))
    monkeypatch.setattr(workload, "extra_peak_bytes", lambda *_: 1 << 20)


@pytest.fixture
def data(faked: None) -> dict[str, Any]:
    plan = workload.Plan("cpu", 1, 3, (), lambda n: (1024, 8), lambda: None)  # type: ignore[arg-type]  # nothing to flush
    results = workload.Results()
    for dtype in ("bf16", "fp32"):
        workload.run(workload.Workload((1, 1, 1025), dtype, 30.0), plan, results)
    options = Namespace(shapes=["1x1x1025"], dtypes=["bf16", "fp32"], softcaps=["30"])
    found = command.record(results, plan, options, 1.5)
    return found | {"refused": results.refused}


def test_rows_keep_raw_samples_and_name_the_workload(data: dict[str, Any]) -> None:
    row = data["events"][0]
    assert (row["shape"], row["dtype"], row["cap"], row["pass"]) == ("1x1x1025", "bf16", 30.0, "forward")
    assert row["samples_ms"] == [1.0, 1.5, 2.0]
    assert (row["median_ms"], row["stdev_ms"]) == (1.5, 0.5)
    assert row["native_over_this"] == 2.5 / 1.5
    passes = {(r["dtype"], r["pass"]) for r in data["events"]}
    assert len(passes) == 6
    assert json.loads(json.dumps(data)) == data


def test_a_wrong_contender_is_recorded_and_not_timed(data: dict[str, Any]) -> None:
    assert data["refused"] == ["wrong"]
    assert "wrong" in {row["contender"] for row in data["accuracy"]}
    assert "wrong" not in {row["contender"] for row in data["events"] + data["small"]}


def test_shares_are_of_the_ceiling_kernel_and_of_the_sum_of_both(data: dict[str, Any]) -> None:
    rows = {(r["dtype"], r["pass"], r["contender"]): r for r in data["events"]}
    kernel = rows["fp32", "forward", "ceiling kernel"]["median_ms"]
    assert rows["fp32", "forward", OPERATOR]["of_ceiling"] == kernel / 1.5
    assert rows["fp32", "forward_backward", OPERATOR]["of_ceiling"] == 2 * kernel / 1.5
    assert rows["bf16", "forward", NARROW]["of_ceiling"] is None


def test_a_wrong_operator_stops_everything(faked: None, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Contender(OPERATOR, lambda x: x * 1.0, ("ulp",), required=True)
    monkeypatch.setattr(workload, "contenders", lambda *_: [wrong])
    plan = workload.Plan("cpu", 1, 3, (), lambda n: (1024, 8), lambda: None)  # type: ignore[arg-type]  # nothing to flush
    results = workload.Results()
    with pytest.raises(workload.Inaccurate, match="triton breaks the contract"):
        workload.run(workload.Workload((9,), "fp32", 30.0), plan, results)
    assert results.events == []


def test_goals_compare_within_the_run_and_can_be_missed(data: dict[str, Any]) -> None:
    found = {(g["dtype"], g["pass"], g["what"]): g for g in data["goals"]}
    host = found["fp32", "forward", "host time over the eager formula"]
    assert host["value"] == 1.5 / 3.5
    assert host["holds"]
    large = [
        {"shape": "1x64x262144", "dtype": "fp32", "cap": 30.0, "pass": "forward", "contender": name}
        | {"median_ms": ms, "of_ceiling": share}
        for name, ms, share in ((OPERATOR, 1.1, 0.9), (COMPILED, 1.0, 1.0))
    ]
    share, ratio = goals.goals(large, [])
    assert (share["value"], share["holds"]) == (0.9, False)
    assert (ratio["value"], ratio["holds"]) == (pytest.approx(1.1), False)


def test_the_hosts_ratio_is_taken_within_rounds() -> None:
    """The host's clock halves in the third round of one contender and in the fourth of the other: 0.5 throughout."""
    key = {"shape": "1x1x1025", "dtype": "fp32", "cap": 30.0, "pass": "forward_backward"}
    rounds = {OPERATOR: [50.0, 50.0, 100.0, 100.0, 100.0], FORMULA: [100.0, 100.0, 100.0, 200.0, 200.0]}
    rows = [
        key | {"contender": name, "host_us": statistics.median(times), "host_samples_us": times}
        for name, times in rounds.items()
    ]
    (ratio,) = goals.goals([], rows)
    assert (ratio["value"], ratio["holds"]) == (0.5, True)


def test_the_page_shows_every_row_and_is_written_beside_the_data(
    data: dict[str, Any], tmp_path: Path
) -> None:
    command.write(data, tmp_path / "run")
    page = (tmp_path / "run" / "report.md").read_text()
    stored = json.loads((tmp_path / "run" / "results.json").read_text())
    assert summary.render(stored) == page
    tables = [line for line in page.splitlines() if line.startswith("| 1x1x1025")]
    assert len(tables) == sum(len(data[part]) for part in ("events", "small", "accuracy"))
    assert "Promised ratios" in page
    assert "no: not timed" in page
    assert str(tmp_path) not in page
