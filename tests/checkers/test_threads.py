"""Calls from several threads: what they share is noticed at whichever step, and a lock is left alone."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from invariance.candidate import PASSES, adapt
from invariance.checkers import NotApplicable, load_laws
from invariance.checkers.threads import _Steps
from strategies.case import Case
from tests.checkers.faulty import faulty, softcap, verdict
from tests.checkers.good import GOOD, Operator

load_laws()

CASE = Case((4,), "fp32", 17.3, seed=1)


@pytest.mark.parametrize("pass_", PASSES)
def test_good_kernels_pass(pass_: str) -> None:
    for candidate in GOOD:
        found = verdict("threads_at_once", candidate, CASE, pass_)
        assert found.mismatch is None, (candidate.name, found.mismatch)
        assert found.elements > 100


@pytest.mark.parametrize("pass_", PASSES)
def test_scratch_that_threads_share_is_noticed_whenever_it_is_looked_for(pass_: str) -> None:
    scratch = torch.empty(4)

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        if out.shape != (4,):
            return out
        scratch.copy_(out)
        return scratch.clone()

    for _ in range(20):
        found = verdict("threads_at_once", faulty(fault, pass_), CASE, pass_).mismatch
        assert found is not None
        assert found.label == "met at its steps by calls from another thread"


def test_scratch_within_one_line_is_noticed() -> None:
    scratch = torch.empty(4)

    def kernel(x: Tensor, cap: float) -> Tensor:
        if x.shape != (4,) or x.requires_grad:
            return softcap(x, cap)
        return torch.mul(torch.tanh(torch.div(x, cap, out=scratch)), cap)

    found = verdict("threads_at_once", adapt("one line", kernel), CASE, "inference").mismatch
    assert found is not None
    assert found.label == "met at its steps by calls from another thread"


def test_a_cap_that_threads_share_is_noticed() -> None:
    current: list[float] = []

    class Shared(Operator):
        def value(self, x: Tensor) -> Tensor:
            current[:] = [self.cap]
            x = x.float()
            return current[0] * torch.tanh(x / current[0])

    assert verdict("threads_at_once", adapt("shared", Shared), CASE, "inference").mismatch is not None


def test_a_result_that_is_another_call_s_is_noticed() -> None:
    busy: list[Tensor] = []

    def kernel(x: Tensor, cap: float) -> Tensor:
        if busy:  # a call on its way has the result already, or so this one thinks
            return softcap(busy[0], cap) if busy[0].shape == x.shape else softcap(x, cap)
        busy.append(x.detach())
        y = softcap(x, cap)
        busy.clear()
        return y

    found = verdict("threads_at_once", adapt("busy", kernel), CASE, "inference").mismatch
    assert found is not None
    assert found.label == "called from another thread between two steps of a call"


@pytest.mark.parametrize("lock", [threading.Lock, threading.RLock])
def test_a_lock_is_waited_for_and_passes(lock: Callable[[], Any]) -> None:
    scratch, held = torch.empty(4), lock()

    def kernel(x: Tensor, cap: float) -> Tensor:
        with held:
            if x.shape != (4,):
                return softcap(x, cap)
            scratch.copy_(x)
            return softcap(scratch, cap)

    found = verdict("threads_at_once", adapt("locked", kernel), CASE, "inference")
    assert found.mismatch is None


def test_steps_are_those_of_the_candidate_and_the_tracer_is_put_back() -> None:
    def kernel(x: Tensor, cap: float) -> Tensor:
        z = x / cap
        t = torch.tanh(z)
        return cap * t

    f = adapt("three lines", kernel).map(17.3, "inference")
    before = sys.gettrace(), sys.getprofile()
    result, steps = _Steps(f, (torch.ones(4),))()
    assert torch.equal(result, 17.3 * torch.tanh(torch.ones(4) / 17.3))
    # Three lines and the call of tanh, and one line of what hands a function its cap.
    assert 4 <= steps <= 6
    assert (sys.gettrace(), sys.getprofile()) == before


def test_what_runs_in_the_interpreter_is_outside_the_law() -> None:
    class Interpreted(Operator):
        substitutions = ("tanh",)

        def value(self, x: Tensor) -> Tensor:
            return softcap(x, self.cap)

    with pytest.raises(NotApplicable, match="one thread"):
        verdict("threads_at_once", adapt("interpreted", Interpreted), CASE, "inference")
