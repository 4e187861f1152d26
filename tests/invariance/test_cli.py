"""The command: what it prints, what it refuses, how it exits."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from invariance import offered
from invariance.arguments import COMMANDS
from invariance.checkers import load_laws
from invariance.cli import main
from strategies.case import Case
from strategies.dtypes import DTYPES

LAW = "slicing"
ROOT = Path(__file__).parents[2]

GOOD = """
import torch

def softcap(x, cap):
    return cap * torch.tanh(x.float() / cap)
"""
BAD = """
import torch

def tail(x, cap):
    # The last partial block of 8 is one ulp too large.
    y = cap * torch.tanh(x.float() / cap)
    last = torch.arange(x.numel()).reshape(x.shape) >= x.numel() // 8 * 8
    return y + (torch.nextafter(y, torch.tensor(1e30)) - y).detach() * last

def crash(x, cap):
    if x.numel() > 3:
        import ctypes
        ctypes.string_at(0)
    return cap * torch.tanh(x.float() / cap)

def hang(x, cap):
    while x.numel() > 3:
        pass
    return cap * torch.tanh(x.float() / cap)
"""
ODD = """
import sys
import time
import torch

class Never:
    def __init__(self, softcap):
        raise RuntimeError("no licence\\nfor this machine")

class Leaves:
    def __init__(self, softcap):
        sys.exit()

class NotSeven:
    def __init__(self, softcap):
        if softcap == 7:
            raise RuntimeError("not seven")
        self.cap = softcap
    def __call__(self, x):
        return self.cap * torch.tanh(x.float() / self.cap)

class FloatsOnly(NotSeven):
    def __init__(self, softcap):
        if not isinstance(softcap, float):
            raise TypeError("softcap must be a float")
        super().__init__(softcap)

class Exits(NotSeven):
    def __call__(self, x):
        if x.numel() > 4:
            sys.exit("enough of this")
        return super().__call__(x)
"""
FEW = ["--law", LAW, "--profile", "quick", "--no-explore", "--softcap", "30", "--dtype", "bf16"]
FEW += ["--device", "cpu", "--jobs", "1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)
    (tmp_path / "odd.py").write_text(ODD)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "--candidate", "nonsense"], "neither"),
        (["check", "--candidate", "no.such.module:Op"], "No module named 'no'"),
        (["check", "--candidate", "absent.py:Op"], "does not exist"),
        (["check", "--candidate", "good.py:absent"], "has no 'absent'; it has softcap"),
        (["check", "--candidate", "triton", "--device", "cpu"], "interpreted:triton, which judges the launches"),
        (["check", "--softcap", "0"], "--softcap '0'"),
        (["check", "--softcap", "-1"], "--softcap '-1'"),
        (["check", "--softcap", "nan"], "finite and positive"),
        (["check", "--softcap", "1e-60"], "finite and positive"),
        (["check", "--softcap", "1e39"], "finite and positive"),
        (["check", "--softcap", "thirty"], "--softcap 'thirty'"),
        (["check", "--dtype", "fp64"], "fp16, bf16, fp32"),
        (["check", "--device", "tpu"], "auto, cpu, cuda"),
        (["check", "--device", "cuda:99"], "missing"),
        (["check", "--law", "nonsense"], "slicing"),
        (["check", "--profile", "slow"], "quick, default, thorough"),
        (["check", "--timeout", "0"], "--timeout '0'"),
        (["check", "--timeout", "soon"], "--timeout 'soon'"),
        (["check", "--seed", "x"], "--seed 'x'"),
        (["check", "--jobs", "0"], "--jobs '0'"),
        (["check", "--op", "relu"], "final_logit_softcap"),
        (["check", "--batch", "2"], "go together"),
        (["check", "--batch", "2", "--seq", "0", "--vocab", "5"], "--seq '0'"),
        (["check", "--batch", "2", "--seq", "3", "--vocab", "9" * 22], f"--vocab '{'9' * 22}' is too large"),
        (
            ["check", "--batch", "1", "--seq", "1", "--vocab", "1" + "0" * 15],
            "1x1x1000000000000000 is too large: the exact values take 7,450,581 GiB in FP64, and cpu has",
        ),
        (
            ["check", "--batch", "2", "--seq", "3", "--vocab", "5", "--law", "zeros", "bad_dtypes"],
            "none of the laws asked for takes a shape, so 2x3x5 is not judged",
        ),
        (["check", "--report", "good.py"], "is a file"),
        (["check", "--check-grad", "--no-check-grad"], "not allowed with"),
        (["check", "--nonsense"], "--nonsense"),
        (["nonsense"], "nonsense"),
        ([], "COMMAND"),
        (["check", "--candidate", "odd.py:Never"], "cap 20, 30: it raised RuntimeError: no licence"),
        (
            ["check", "--candidate", "odd.py:Leaves"],
            "cannot be constructed at cap 20, 30: it raised SystemExit",
        ),
        (["sweep", "--candidate", "odd.py:Never", "--softcap", "7.5"], "cap 7.5, 30: it raised RuntimeError"),
        (["replay", "not json"], "not a case, and no file is called so"),
        (["replay", "."], ". is a folder; give a file of cases"),
        (["replay", "bytes"], "bytes is no file of cases"),
        (["replay", "{}", "--timeout", "nan"], "--timeout 'nan'"),
        (["compare", "a.json", "b.json", "--timeout", "0"], "--timeout '0'"),
        (["fuzz", "--report", "good.py"], "--report good.py is a file, not a folder"),
        (["fuzz", "--campaign", "all"], "mixed, bf16xbf16"),
        (["mutants", "--report", "good.py"], "--report good.py is a file, not a folder"),
        (["mutants", "--tier", "x"], "plan, interpreter, codegen, device, all"),
        (["replay", "{}"], "lacks"),
        (["replay", '{"candidate":"native","law":"no","pass":"forward","case":{}}'], "law 'no'"),
        (["replay", f'{{"candidate":"native","law":"{LAW}","pass":"up","case":{{}}}}'], "pass 'up'"),
        (["replay", f'{{"candidate":"native","law":"{LAW}","pass":"forward","case":{{}}}}'], "shape"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_bad_request_is_one_line_and_status_2(folder, capsys, arguments, says):
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.strip().splitlines()) == 1


def test_a_good_kernel_passes_and_the_report_counts(folder, capsys):
    assert main(["check", "--candidate", "good.py:softcap", *FEW, "--report", "out", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((folder / "out" / "report.json").read_text())
    assert report["verdict"] == "pass"
    assert [row["pass"] for row in report["laws"]] == ["backward", "forward", "inference"]
    assert all(row["elements"] > 0 for row in report["laws"])
    assert "PASS" in (folder / "out" / "report.md").read_text()


def test_two_runs_differ_only_in_environment_and_explored(folder, capsys):
    reports = []
    for _ in range(2):
        assert main(["check", "--candidate", "good.py:softcap", *FEW, "--json", "--seed", "3"]) == 0
        reports.append(json.loads(capsys.readouterr().out))
    for report in reports:
        del report["environment"], report["explored"]
    assert reports[0] == reports[1]


def test_a_wrong_kernel_fails_with_a_small_case_that_replays(folder, capsys):
    assert main(["check", "--candidate", "bad.py:tail", *FEW, "--json"]) == 1
    failures = json.loads(capsys.readouterr().out)["failures"]
    assert failures
    case = failures[0]["case"]
    assert Case.loads(json.dumps(case)).numel <= 9
    recipe = {key: failures[0][key] for key in ("candidate", "law", "pass", "case")}
    assert main(["replay", json.dumps(recipe)]) == 1
    assert f"{LAW} · " in capsys.readouterr().out
    assert main(["replay", json.dumps(recipe), "--candidate", "good.py:softcap"]) == 0


@pytest.mark.parametrize(("kernel", "says"), [("crash", "SIGSEGV"), ("hang", "no result within")])
def test_a_kernel_that_kills_or_holds_its_process_is_a_verdict(folder, capsys, kernel, says):
    status = main(
        ["check", "--candidate", f"bad.py:{kernel}", *FEW, "--no-check-grad", "--timeout", "1", "--json"]
    )
    report = json.loads(capsys.readouterr().out)
    assert status == 1
    assert report["complete"]
    assert {row["pass"] for row in report["failures"]} == {"forward", "inference"}
    for failure in report["failures"]:
        assert says in failure["reason"]
        assert Case.loads(json.dumps(failure["case"])).numel <= 8


def test_several_values_follow_one_flag_or_repeat_it(folder, capsys):
    few = ["--law", LAW, "--profile", "quick", "--no-explore", "--device", "cpu", "--no-check-grad", "--json"]
    asked = ["--softcap", "20", "17.5", "--softcap", "1", "--dtype", "bf16", "--dtype", "fp32"]
    assert main(["check", "--candidate", "good.py:softcap", *few, *asked]) == 0
    rows = json.loads(capsys.readouterr().out)["matrix"]
    assert {(row["dtype"], row["cap"]) for row in rows} == {
        (d, c) for d in ("bf16", "fp32") for c in (20, 17.5, 1)
    }


def test_a_candidate_without_a_gradient_is_not_applicable_and_fails_when_it_was_asked_for(folder, capsys):
    (folder / "plain.py").write_text(GOOD.replace("return", "return (lambda y: y.detach())(") + ")\n")
    assert main(["check", "--candidate", "plain.py:softcap", *FEW, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["reason"] for row in report["not_run"]] == [
        "the candidate has no gradient (asked of four elements)"
    ]
    assert main(["check", "--candidate", "plain.py:softcap", *FEW, "--check-grad", "--json"]) == 1


def test_laws_are_listed_with_what_they_state(capsys):
    assert main(["laws", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {LAW, "padding", "grad_mode"} <= {row["law"] for row in rows}
    assert all(row["states"].endswith(".") for row in rows)


def test_a_law_asked_for_by_name_that_says_nothing_here_is_refused(folder, capsys):
    assert main(["check", "--candidate", "good.py:softcap", "--law", "table", "--dtype", "fp32"]) == 2
    assert "law table is stated for fp16, bf16, not for fp32" in capsys.readouterr().err
    assert main(["check", "--candidate", "good.py:softcap", "--law", "graph_replay", "--device", "cpu"]) == 2
    assert "needs an accelerator" in capsys.readouterr().err


def test_what_is_known_of_laws_without_torch_is_what_they_state():
    narrow = {name: law.dtypes for name, law in load_laws().items() if law.dtypes != offered.DTYPES}
    assert narrow == offered.NARROW_LAWS


def test_a_law_and_a_dtype_that_do_not_agree_are_refused_before_torch_is_there():
    code = (
        "import sys; from invariance.cli import main; "
        "status = main(['check', '--law', 'table', '--dtype', 'fp32']); print(status, 'torch' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["2", "False"]


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_each_dtype_can_be_judged_and_explored_alone(folder, capsys, dtype):
    few = [
        "--softcap",
        "30",
        "--profile",
        "quick",
        "--device",
        "cpu",
        "--json",
        "--law",
        "slicing",
        "oddness",
    ]
    assert main(["check", "--candidate", "good.py:softcap", *few, "--dtype", dtype]) == 0
    assert json.loads(capsys.readouterr().out)["explored"]


def test_a_copy_that_a_candidate_forks_answers_for_nobody(folder, capsys):
    forking = "import os\n" + GOOD.replace(
        "    return", "    if x.numel() >= 1000:\n        os.fork()\n    return"
    )
    (folder / "forking.py").write_text(forking)
    assert main(["check", "--candidate", "forking.py:softcap", *FEW, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["pass"] for row in report["laws"]] == ["backward", "forward", "inference"]


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--help"], 0, "mutants"),
        (["--version"], 0, "softcap-verify"),
        (["check", "--help"], 0, "quick, default, thorough"),
        (["check", "--softcap", "0"], 2, "is not a cap"),
        (["sweep", "--shard", "3/2"], 2, "--shard '3/2'"),
        (["nonsense"], 2, "invalid choice"),
    ],
)
def test_help_and_mistakes_do_not_wait_for_torch(arguments, status, says):
    code = f"""
import sys
import time
from invariance.cli import main
try:
    status = main({arguments!r})
except SystemExit as end:
    status = end.code
assert not {{"torch", "numpy", "hypothesis"}} & set(sys.modules)
sys.exit(status)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    assert says in done.stdout + done.stderr


def test_every_command_runs_and_is_offered_what_exists():
    for name in COMMANDS:
        assert callable(importlib.import_module(f"invariance.commands.{name}").run)
    assert offered.DTYPES == DTYPES
    assert offered.CAMPAIGNS == ("mixed", "bf16xbf16")
    assert offered.TIERS == ("plan", "interpreter", "codegen", "device")


def test_a_cap_that_the_candidate_refuses_is_one_failure_and_says_in_which_laws(folder, capsys):
    few = [
        "--law",
        "slicing",
        "padding",
        "--profile",
        "quick",
        "--no-explore",
        "--dtype",
        "bf16",
        "--device",
        "cpu",
    ]
    assert main(["check", "--candidate", "odd.py:NotSeven", *few, "--softcap", "7", "30"]) == 1
    out = capsys.readouterr().out
    assert "cap 7 " in out
    assert "cap 30 " in out
    assert out.count("the candidate gave no result") == 1
    assert "RuntimeError: not seven" in out
    assert "in laws  padding, slicing" in out


def test_a_kernel_that_refuses_whole_caps_as_ints_is_judged(folder, capsys):
    assert main(["check", "--candidate", "odd.py:FloatsOnly", *FEW]) == 1
    assert "TypeError: softcap must be a float" in capsys.readouterr().out


def test_exploring_leaves_nothing_in_the_current_folder(folder, capsys):
    before = {path.name for path in folder.iterdir()} | {"__pycache__"}
    asked = [argument for argument in FEW if argument != "--no-explore"]
    assert main(["check", "--candidate", "good.py:softcap", *asked, "--json"]) == 0
    assert sum(row["examples"] for row in json.loads(capsys.readouterr().out)["explored"]) > 0
    assert {path.name for path in folder.iterdir()} <= before


def test_what_is_no_exception_stands_in_the_report_and_not_on_the_terminal(folder, capfd):
    assert main(["check", "--candidate", "odd.py:Exits", *FEW, "--json"]) == 1
    printed = capfd.readouterr()
    failures = json.loads(printed.out)["failures"]
    assert {failure["reason"] for failure in failures} == {"SystemExit: enough of this"}
    assert "Traceback" not in printed.err
    assert all(Case.loads(json.dumps(failure["case"])).numel <= 9 for failure in failures)


def test_no_folder_is_made_for_a_candidate_that_is_not_there(tmp_path, capsys):
    """A report's folder comes with the report."""
    folder = tmp_path / "report"
    assert main(["check", "--candidate", "no_such_module:Op", "--report", str(folder)]) == 2
    assert "no_such_module" in capsys.readouterr().err
    assert not folder.exists()


def test_a_time_limit_that_ends_a_run_leaves_its_report(folder):
    """Job schedulers and `timeout` send SIGTERM."""
    asked = ["--candidate", "native", "--device", "cpu", "--report", "out"]
    command = [sys.executable, "-m", "invariance", "check", *asked]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as run:
        assert run.stderr.readline()  # progress: judging has begun
        run.terminate()
        assert run.wait(60) == 130
    assert json.loads((folder / "out" / "report.json").read_text())["complete"] is False


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="which signals a process takes is read there")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_the_first_imports_is_an_interrupt(folder, number):
    program = (  # a shell's background is deaf to SIGINT
        "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "runpy.run_module('invariance', run_name='__main__', alter_sys=True)"
    )
    command = [sys.executable, "-c", program, "check", "--candidate", "native", "--device", "cpu"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE) as run:
        status, until = Path(f"/proc/{run.pid}/status"), time.monotonic() + 30
        while time.monotonic() < until:
            taken = int(status.read_text().partition("SigCgt:")[2].split()[0], 16)
            if taken >> (signal.SIGTERM - 1) & 1:
                break
        run.send_signal(number)
        assert run.wait(60) == 130
        assert run.stderr.read() == b"softcap-verify: interrupted\n"
