"""What a call must leave as it was: each setting of the process, one at a time."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from invariance.candidate import adapt
from invariance.checkers import load_laws
from invariance.checkers.settings import settings_of
from invariance.imported import loaded
from strategies.case import Case
from tests.checkers.faulty import softcap, verdict

load_laws()

ACTIONS = {
    "the default dtype": lambda: torch.set_default_dtype(torch.float64),
    "the thread count": lambda: torch.set_num_threads(3),
    "the grad mode": lambda: torch._C._set_grad_enabled(not torch.is_grad_enabled()),
    "deterministic mode": lambda: torch.set_deterministic_debug_mode(0),
    "the matmul precision": lambda: torch.set_float32_matmul_precision("medium"),
    "anomaly mode": lambda: torch.set_anomaly_enabled(False),
    "flushing of denormals": lambda: torch.set_flush_denormal(True),
    "Python's random numbers": random.random,
    "the random numbers of the CPU": lambda: torch.manual_seed(0x5EED),
    "autocast on cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "the autocast dtype on cpu": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "the autocast cache": lambda: torch.set_autocast_cache_enabled(False),
    "the default device": lambda: torch.set_default_device("meta"),
    "torch's print options": lambda: torch.set_printoptions(precision=7),
    "cudnn.benchmark": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cudnn.deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
    "cudnn.allow_tf32": lambda: setattr(torch.backends.cudnn, "allow_tf32", True),
    "the garbage collector": gc.disable,
    "the recursion limit": lambda: sys.setrecursionlimit(12345),
    "the warning filters": lambda: warnings.simplefilter("ignore"),
    "the environment": lambda: os.environ.update(SOFTCAP_TUNED="1"),
    "the import path": lambda: sys.path.append("/nowhere"),
    "the working directory": lambda: os.chdir("/"),
    "signal handlers": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "NumPy's random numbers": np.random.rand,
    "NumPy's error handling": lambda: np.seterr(all="raise"),
    "NumPy's print options": lambda: np.set_printoptions(precision=3),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_what_a_call_leaves_behind_is_found_and_put_right(name):
    def kernel(x, cap):
        y = softcap(x, cap)
        ACTIONS[name]()
        return y

    device = torch.device("cpu")
    before = settings_of(device)[name].read()
    found = verdict("process_left_alone", adapt("leaving", kernel), Case((4,), "fp32", 30), "inference")
    assert found.mismatch is not None
    assert found.mismatch.label.startswith(name)
    assert settings_of(device)[name].read() == before


@pytest.mark.parametrize("left", [None, "meta"])
def test_the_law_leaves_no_default_device_set(left):
    def kernel(x, cap):
        y = softcap(x, cap)
        if left is not None:
            torch.set_default_device(left)
        return y

    before = torch._C._len_torch_function_stack()  # a device that is set is a mode, which every call goes through
    found = verdict("process_left_alone", adapt("a kernel", kernel), Case((4,), "fp32", 30), "inference")
    assert (found.mismatch is None) == (left is None)
    assert torch._C._len_torch_function_stack() == before


@pytest.mark.parametrize("known", [True, False])
def test_what_an_earlier_call_left_hides_no_change_where_the_process_before_it_is_known(known):
    def kernel(x, cap):
        torch.set_printoptions(precision=7)
        return softcap(x, cap)

    name = "torch's print options"
    setting = settings_of(torch.device("cpu"))[name]
    before = setting.read()
    candidate = replace(adapt("leaving", kernel), settings={name: before} if known else {})
    try:
        kernel(torch.ones(2), 30.0)
        found = verdict("process_left_alone", candidate, Case((4,), "fp32", 30), "inference")
    finally:
        setting.write(before)
    assert (found.mismatch is not None) == known


def test_a_candidate_that_is_loaded_knows_the_process_before_its_first_call():
    candidate = loaded("native", "cpu")
    assert set(candidate.settings) == set(settings_of(torch.device("cpu")))
    assert candidate.settings["the working directory"] == os.getcwd()
