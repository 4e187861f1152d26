"""The states of a process under which `process_state` calls: each is left as it was found."""

from __future__ import annotations

import pytest
import torch

from invariance.candidate import PASSES, adapt
from invariance.checkers import load_laws
from invariance.checkers.states import STATES, flushes, flushing
from strategies.case import Case
from tests.checkers.faulty import softcap, verdict

load_laws()


def assert_left(state, now):
    """Inside the state `now()` is another, and after an error inside it is what it was."""

    def fail_inside():
        with state():
            assert now() != before
            raise KeyError

    before = now()
    with pytest.raises(KeyError):
        fail_inside()
    assert now() == before


@pytest.mark.parametrize("state", STATES)
def test_a_state_is_left_as_it_was_found_also_after_an_error(state):
    def now():
        return (
            torch.get_default_dtype(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_autocast_enabled("cpu"),
            torch.is_anomaly_enabled(),
            torch.is_anomaly_check_nan_enabled(),
            torch.get_float32_matmul_precision(),
            torch.default_generator.get_state().tolist(),
        )

    assert_left(lambda: STATES[state]("cpu"), now)


def test_flushing_is_left_as_it_was_found_also_after_an_error():
    before = flushes()
    assert_left(lambda: flushing(on=not before), flushes)


@pytest.mark.parametrize("pass_", PASSES)
def test_flushing_moves_subnormals_and_is_not_held_against_a_kernel(pass_):
    smallest = Case((4,), "fp32", 30.0, values=(1, 0x7FFFFF, 0x800000, 0x3F800000))
    assert verdict("process_state", adapt("softcap", softcap), smallest, pass_).mismatch is None
