"""Candidates of one command do not meet, a file sees its own neighbours, and an import leaves the process alone."""

from __future__ import annotations

import json

import pytest
import torch

from invariance import probing
from invariance.checkers.settings import settings_of
from invariance.cli import main
from invariance.imported import FREE_AT_IMPORT
from invariance.plan import Settings
from invariance.run import judge_cell, judge_text
from invariance.sweep import document
from invariance.sweep.api import sweep
from invariance.verdict import NOT_RUN, Cell
from strategies.case import Case

QUICK = ["--profile", "quick", "--no-explore", "--dtype", "fp32", "--softcap", "30", "--device", "cpu"]
RIGHT = """
import torch

def softcap(x, cap):
    return {factor}cap * torch.tanh(x.float() / cap)
"""


@pytest.fixture
def checkouts(tmp_path, monkeypatch):
    """Two folders with files of the same names; the kernel of v2 is wrong by a percent."""
    for folder, factor in (("v1", ""), ("v2", "1.01 * ")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "impl.py").write_text(RIGHT.format(factor=factor))
        (tmp_path / folder / "k.py").write_text("from impl import softcap\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def matrix(capsys: pytest.CaptureFixture[str], *candidates: str, law: str = "exact_value") -> dict:
    """The forward verdict of each candidate: of accuracy, or of invariance for a law of that."""
    capsys.readouterr()
    main(["check", "--candidate", *candidates, "--law", law, "--jobs", "1", "--json", *QUICK])
    rows = json.loads(capsys.readouterr().out)["matrix"]
    return {row["candidate"]: row["FA" if law == "exact_value" else "FI"] for row in rows}


@pytest.mark.parametrize("order", [("v1", "v2"), ("v2", "v1")])
def test_what_one_candidate_imports_does_not_serve_the_next(checkouts, capsys, order):
    found = matrix(capsys, *(f"{folder}/k.py:softcap" for folder in order))
    assert found == {"v1/k.py:softcap": "pass", "v2/k.py:softcap": "fail"}


def test_what_one_candidate_sets_or_patches_does_not_reach_the_next(checkouts, capsys):
    patch = "import torch\n_tanh = torch.tanh\ntorch.tanh = lambda x: 1.01 * _tanh(x)\n"
    (checkouts / "patches.py").write_text(patch + RIGHT.format(factor=""))
    (checkouts / "stops.py").write_text(
        "import torch\ntorch.set_grad_enabled(False)\n" + RIGHT.format(factor="")
    )
    found = matrix(capsys, "patches.py:softcap", "stops.py:softcap", "v1/k.py:softcap")
    assert found["v1/k.py:softcap"] == "pass"


def test_two_candidates_of_one_name_are_refused(checkouts, capsys, monkeypatch):
    monkeypatch.chdir(checkouts / "v1")
    specs = [str(checkouts / folder / "k.py:softcap") for folder in ("v1", "v2")]
    assert main(["check", "--candidate", *specs, *QUICK]) == 2
    assert "are both called 'k.py:softcap' in a report" in capsys.readouterr().err


def test_compare_runs_each_candidate_by_itself(checkouts, capsys):
    (checkouts / "wrong.py").write_text(RIGHT.format(factor="1.01 * "))
    for spec, name in (("native-fp32", "a"), (f"{checkouts}/wrong.py:softcap", "b")):
        document.write(sweep(spec, 30, "fp16", "forward"), checkouts / f"{name}.json")
    candidates = ("v1/k.py:softcap", "v2/k.py:softcap")
    assert main(["compare", "a.json", "b.json", "--device", "cpu", "--candidate", *candidates]) == 1
    assert "\n  x = " in capsys.readouterr().out


def test_a_neighbour_called_softcap_is_found_before_the_package(tmp_path, monkeypatch, capsys):
    (tmp_path / "softcap.py").write_text(RIGHT.format(factor=""))
    (tmp_path / "mine.py").write_text("from softcap import softcap as kernel\n")
    monkeypatch.chdir(tmp_path)
    found = matrix(capsys, "mine.py:kernel", "softcap.py:softcap", "native")
    assert found == dict.fromkeys(("mine.py:kernel", "softcap.py:softcap", "native"), "pass")


def test_a_neighbour_that_the_suite_hides_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "strategies.py").write_text(RIGHT.format(factor=""))
    (tmp_path / "mine.py").write_text("from strategies import softcap\n")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "--candidate", "mine.py:softcap", *QUICK]) == 2
    err = capsys.readouterr().err
    assert "strategies.py beside it is hidden by the suite's own package 'strategies': rename it" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("torch.manual_seed(0)", "the random numbers of the CPU"),
        ("import random; random.seed(0)", "Python's random numbers"),
        ("torch.set_default_dtype(torch.bfloat16)", "the default dtype: torch.float32 became torch.bfloat16"),
        ("torch.set_grad_enabled(False)", "the grad mode: True became False"),
        ("torch.set_num_threads(3)", "the thread count: 1 became 3"),
        ("torch.set_flush_denormal(True)", "flushing of denormals: False became True"),
        ("torch.use_deterministic_algorithms(True)", "deterministic mode"),
        ("torch.set_float32_matmul_precision('high')", "the matmul precision: highest became high"),
        ("old = torch.tanh; torch.tanh = lambda x: old(x)", "torch.tanh: replaced"),
    ],
)
def test_what_an_import_changes_fails_by_name(tmp_path, monkeypatch, capsys, line, named):
    (tmp_path / "mine.py").write_text(f"import torch\n{line}\n" + RIGHT.format(factor=""))
    monkeypatch.chdir(tmp_path)
    assert (
        main(["check", "--candidate", "mine.py:softcap", "--law", "process_left_alone", "--json", *QUICK])
        == 1
    )
    failures = json.loads(capsys.readouterr().out)["failures"]
    assert named in failures[0]["mismatch"]["got"]


def test_what_packages_set_when_they_are_imported_is_no_failure(tmp_path, monkeypatch, capsys):
    more = "import os, warnings\nwarnings.simplefilter('ignore')\nos.environ['MINE'] = '1'\n"
    packages = "import numpy, torch._inductor, torch.distributed, torch.utils.cpp_extension\n"
    (tmp_path / "mine.py").write_text(more + packages + RIGHT.format(factor=""))
    monkeypatch.chdir(tmp_path)
    assert matrix(capsys, "mine.py:softcap", law="process_left_alone") == {"mine.py:softcap": "pass"}


def test_what_is_free_at_import_is_watched_in_a_call():
    assert set(settings_of(torch.device("cpu"))) >= FREE_AT_IMPORT


def test_a_case_without_memory_is_not_judged(monkeypatch):
    def full(self, device="cpu"):
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
        )

    monkeypatch.setattr(Case, "x", full)
    cell = Cell("native", "slicing", "inference", "fp32", 30)
    judged = judge_cell("native", cell, Settings((30,), ("fp32",), "cpu", "quick"))
    replayed = judge_text("native", "slicing", "inference", Case((5,), "fp32", 30).dumps(), "cpu")
    assert judged.status == replayed.status == NOT_RUN
    assert replayed.reason.startswith("no memory for a case of shape 5: RuntimeError")


def test_a_replay_of_a_shape_that_fits_in_no_memory_is_not_judged(capsys):
    recipe = {"candidate": "native", "law": "slicing", "pass": "forward", "device": "cpu"}
    recipe["case"] = {"shape": [10**9, 10**6], "dtype": "fp32", "cap": 30}
    assert main(["replay", json.dumps(recipe)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not judged: the shape 1000000000x1000000 is too large" in printed.err


def test_an_import_that_hangs_is_told_and_ends(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probing, "LEAST_FOR_IMPORT", 2.0)
    monkeypatch.setattr(probing, "SILENT", 0.5)
    assert main(["check", "--candidate", "mine.py:softcap", "--timeout", "1", *QUICK]) == 2
    told, refused = capsys.readouterr().err.splitlines()
    assert told == "softcap-verify: importing mine.py:softcap: 1 s so far, 2 s at most"
    assert "importing it failed: no result within 2 s (twice --timeout, from 30 to 120 s)" in refused
