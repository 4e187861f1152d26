"""Children die, hang and raise; the parent hears of it and goes on."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from invariance import process
from invariance.plan import Settings, cells
from invariance.process import Child, Job, run_job, run_jobs
from invariance.run import judge_cell


def announcing_then(what):
    """A job: say what comes, then do it."""
    process.announce(f"about to {what}")
    {"crash": os.abort, "hang": lambda: time.sleep(60), "leave": lambda: os._exit(3)}[what]()


def keeping_then(what):
    """A job that has a value before it ends."""
    process.keep("found")
    announcing_then(what)


def nested():
    """A job: a fresh process from within a child."""
    return os.getpid(), process.fresh("os:getpid")


def printing():
    """A job that writes to standard output."""
    print("noise")
    return "quiet"


def imported_meanwhile(spec, cell, settings):
    """A job: what judging a cell imports, and how much the collector would look through."""
    before = set(sys.modules)
    judge_cell(spec, cell, settings)
    return sorted(set(sys.modules) - before), gc.get_freeze_count(), len(gc.get_objects())


@pytest.fixture
def target(tmp_path, monkeypatch):
    """Import path of this file's functions in a child: a copy, since tests are no package."""
    (tmp_path / "process_jobs.py").write_text(Path(__file__).read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: f"process_jobs:{name}"


@pytest.mark.parametrize(
    ("what", "kind", "says"),
    [("crash", "crashed", "SIGABRT"), ("leave", "crashed", "status 3"), ("hang", "timed out", "0.5 s")],
)
def test_a_lost_child_is_an_outcome_with_what_it_announced(target, what, kind, says):
    outcome = run_job(
        Job(target("announcing_then"), {"what": what}, timeout=20 if kind == "crashed" else 0.5)
    )
    assert outcome.kind == kind
    assert says in outcome.failure
    assert outcome.announced == f"about to {what}"


def test_what_was_found_stands_where_the_time_ends_and_not_where_the_child_dies(target):
    found = run_job(Job(target("keeping_then"), {"what": "hang"}, timeout=0.5))
    assert (found.kind, found.value) == ("done", "found")
    assert run_job(Job(target("keeping_then"), {"what": "crash"}, timeout=20)).kind == "crashed"


def test_the_other_jobs_go_on(target):
    jobs = [Job("os:getpid", {}, 20, key=0), Job("os:abort", {}, 20, key=1), Job("os:getpid", {}, 20, key=2)]
    outcomes = {outcome.job.key: outcome.kind for outcome in run_jobs(jobs, workers=2)}
    assert outcomes == {0: "done", 1: "crashed", 2: "done"}


def test_a_job_that_raises_gives_its_traceback():
    outcome = run_job(Job("os:listdir", {"path": "/no/such/folder"}, 20))
    assert outcome.kind == "raised"
    assert "FileNotFoundError" in outcome.failure


def test_a_fresh_process_is_another_one(target):
    child, grandchild = run_job(Job(target("nested"), {}, 20)).value
    assert len({os.getpid(), child, grandchild}) == 3


def test_one_child_serves_many_jobs_and_is_replaced_after_a_crash():
    child = Child()
    first, second = (child.run(Job("os:getpid", {}, 20)).value for _ in range(2))
    assert first == second
    assert child.run(Job("os:abort", {}, 20)).kind == "crashed"
    assert child.run(Job("os:getpid", {}, 20)).value != first
    child.close()


def told(spec):
    """A job of a candidate: its process."""
    return os.getpid()


def test_no_child_serves_two_candidates(target):
    jobs = [Job(target("told"), {"spec": spec}, 20, key=spec) for spec in ("a", "a", "b", "a")]
    pids = [outcome.value for outcome in run_jobs(jobs, workers=1)]
    assert pids[0] == pids[1]
    assert len(set(pids)) == 3
    child = Child()
    assert len({child.run(job).value for job in jobs}) == 3
    child.close()


def test_a_candidates_prints_stay_out_of_standard_output(target, capfd):
    assert run_job(Job(target("printing"), {}, 20)).value == "quiet"
    assert capfd.readouterr().out == ""


def on_a_device(answers):
    """A job: fail on a device that answers, or does not."""

    def synchronize(device=None):
        if not answers:
            raise RuntimeError("CUDA error: misaligned address")

    torch.cuda.is_initialized, torch.cuda.synchronize = (lambda: True), synchronize
    raise ValueError("the first word of it")


def test_a_child_whose_device_answers_no_more_leaves_and_the_next_job_has_another(target):
    child = Child()
    before = child.run(Job("os:getpid", {}, 20)).value
    lost = child.run(Job(target("on_a_device"), {"answers": False}, 20))
    assert (lost.kind, "lost its device" in lost.failure) == ("crashed", True)
    assert child.run(Job("os:getpid", {}, 20)).value != before
    child.close()


def test_a_failure_on_a_device_that_answers_costs_no_child(target):
    child = Child()
    before = child.run(Job("os:getpid", {}, 20)).value
    assert child.run(Job(target("on_a_device"), {"answers": True}, 20)).kind == "raised"
    assert child.run(Job("os:getpid", {}, 20)).value == before
    child.close()


def test_the_suite_itself_never_leaves(monkeypatch):
    left = []
    monkeypatch.setattr(os, "_exit", left.append)
    process.leave_a_lost_device("cuda:0")
    assert left == []


def test_what_is_said_of_an_exception_names_no_address():
    error = ValueError(f"cannot take {object()} of 0x41f00000")
    assert process.in_one_line(error) == "ValueError: cannot take <object object> of 0x41f00000"


def test_a_child_has_imported_what_laws_need_and_its_collector_skips_it(target):
    """An autograd function, a checkpoint and a jvp each import for a tenth of a second and more, in every child."""
    settings = Settings(dtypes=("fp32",), laws=("checkpointing", "transformed_derivatives", "double_backward"))
    for cell in cells("native", settings):
        kwargs = {"spec": "native", "cell": cell, "settings": settings}
        imported, frozen, looked_through = run_job(Job(target("imported_meanwhile"), kwargs, 60)).value
        assert not [name for name in imported if name.startswith(("torch", "invariance", "strategies"))]
        assert frozen > 20 * looked_through


def test_a_server_that_ends_says_nothing():
    """nanobind takes what the collector never frees for leaks, and lists them."""
    code = "from invariance.process import Job, run_job; print(run_job(Job('os:getpid', {}, 60)).kind)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("done\n", "")
