"""The plan under pytest: the command's report with any number of workers, and from another repository."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from invariance.cli import main

ROOT = Path(__file__).parents[2]
BAD = """
import torch

def in_no_grad(x, cap):
    # Another path where no gradient is wanted: one ulp off.
    y = cap * torch.tanh(x.float() / cap)
    return y if torch.is_grad_enabled() and x.requires_grad else torch.nextafter(y, torch.full_like(y, 1e30))
"""
ELSEWHERE = """
from invariance.testing import law_tests

test_good = law_tests("native", softcap=[17.5], dtype=["bf16"], law=["grad_mode"], device="cpu")
test_bad = law_tests("bad.py:in_no_grad", softcap=[17.5], dtype=["bf16"], law=["grad_mode"], device="cpu")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "bad.py").write_text(BAD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


def run_pytest(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def compared(path: Path) -> dict[str, object]:
    report = json.loads((path / "report.json").read_text())
    return {key: value for key, value in report.items() if key not in ("environment", "explored")}


def test_the_report_is_the_same_under_pytest_and_the_command(folder):
    plan = ["-c", str(ROOT / "pyproject.toml"), str(ROOT / "tests" / "test_plan.py"), "-q"]
    asked = ["--candidate", "bad.py:in_no_grad", "--softcap", "17.5", "--softcap-law", "grad_mode"]
    asked += ["--softcap-device", "cpu"]
    for workers in ("0", "2"):
        done = run_pytest(*plan, *asked, "-n", workers, "--report", str(folder / workers), cwd=folder)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "FAIL FI grad_mode" in done.stdout
    command = [
        "--softcap",
        "17.5",
        "--law",
        "grad_mode",
        "--device",
        "cpu",
        "--no-explore",
        "--report",
        "command",
    ]
    assert main(["check", "--candidate", "bad.py:in_no_grad", *command]) == 1
    assert compared(folder / "0") == compared(folder / "2") == compared(folder / "command")
    assert compared(folder / "0")["failures"]


def test_two_lines_put_a_kernel_under_the_pytest_of_another_repository(folder):
    (folder / "test_softcap.py").write_text(ELSEWHERE)
    done = run_pytest("-q", "test_softcap.py", cwd=folder)
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--candidate", "absent.py:Op"], "does not exist"),
        (["--softcap", "0"], "--softcap '0'"),
        (["--softcap-profile", "slow"], "quick, default, thorough"),
        (["--softcap-law", "nonsense"], "slicing"),
        (["--softcap-device", "cuda:99"], "missing"),
    ],
)
def test_a_bad_request_is_an_error_and_no_traceback(folder, arguments, says):
    plan = ["-c", str(ROOT / "pyproject.toml"), str(ROOT / "tests" / "test_plan.py"), "-q", "-x"]
    done = run_pytest(*plan, *arguments, cwd=folder)
    assert done.returncode not in (0, 1)
    assert says in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("softcap=[]", "nothing to judge"),
        ('dtype=["bfloat16"]', "no dtype bfloat16"),
        ('dtype=["fp32"], law=["table"]', "law table is stated for fp16, bf16"),
        ('law=["graph_replay"]', "needs an accelerator"),
        ('profile="slow"', "no profile 'slow'"),
    ],
)
def test_a_request_with_nothing_to_judge_is_no_green_test(folder, asked, says):
    text = f'from invariance.testing import law_tests\ntest_it = law_tests("native", device="cpu", {asked})\n'
    (folder / "test_softcap.py").write_text(text)
    done = run_pytest("-q", "test_softcap.py", cwd=folder)
    assert done.returncode not in (0, 1)
    assert says in done.stdout + done.stderr


def test_a_configured_instance_is_judged_at_its_own_cap(folder):
    (folder / "own.py").write_text(
        BAD + "\nclass Op:\n    softcap = 17.0\n    def __call__(self, x):\n        "
        "return 17.0 * torch.tanh(x.float() / 17.0)\n\nop = Op()\n"
    )
    text = 'from invariance.testing import law_tests\ntest_it = law_tests("own.py:op", device="cpu", law=["bound"])\n'
    (folder / "test_softcap.py").write_text(text)
    done = run_pytest("-q", "test_softcap.py", cwd=folder)
    assert "6 passed" in done.stdout, done.stdout


def test_a_report_that_cannot_be_written_is_refused_before_anything_is_judged(folder):
    plan = ["-c", str(ROOT / "pyproject.toml"), str(ROOT / "tests" / "test_plan.py"), "--collect-only"]
    done = run_pytest(*plan, "--report", "bad.py", cwd=folder)
    assert done.returncode not in (0, 1)
    assert "--report bad.py is a file, not a folder" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_the_names_of_law_tests_are_ascii(folder):
    (folder / "test_softcap.py").write_text(ELSEWHERE)
    done = run_pytest("--collect-only", "-q", "test_softcap.py", cwd=folder)
    assert "test_softcap.py::test_good[grad_mode-forward-bf16-17.5]" in done.stdout
    assert done.stdout.isascii()


def test_a_part_of_the_plan_is_no_complete_report(folder):
    plan = ["-c", str(ROOT / "pyproject.toml"), str(ROOT / "tests" / "test_plan.py"), "-q", "-k", "forward"]
    asked = ["--candidate", "bad.py:in_no_grad", "--softcap", "17.5", "--softcap-law", "result_form"]
    done = run_pytest(*plan, *asked, "--softcap-device", "cpu", "--report", str(folder / "part"), cwd=folder)
    assert done.returncode == 0, done.stdout
    report = json.loads((folder / "part" / "report.json").read_text())
    assert (report["verdict"], report["complete"]) == ("incomplete", False)
