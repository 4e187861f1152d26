"""What is noticed of an operator as it is served, loaded and trained, and by which claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from invariance.candidate import adapt
from invariance.checkers import load_laws
from invariance.known_bad import modes, right
from invariance.run import Trial
from invariance.verdict import RAISED
from strategies.case import Case

CASE = Case((2, 3), "fp32", 17.3)
IN_THREADS = "the backward in another thread"


def label(make: Callable[[float], Any], law: str, pass_: str, mode: str | None = None) -> str | None:
    trial = Trial(adapt("it", make), load_laws()[law], pass_, "cpu")
    judged, reason = trial.judge(CASE.with_knobs(mode=mode))
    assert reason is None
    assert judged.elements > 0
    return None if judged.mismatch is None else judged.mismatch.label


FAULTS = [
    (modes.activation_overwritten, "inputs_unmodified", "forward", "the memory of x, an intermediate result"),
    (
        modes.result_always_with_a_graph,
        "result_form",
        "forward",
        "of an input that requires no grad, requires grad",
    ),
    (
        modes.other_gradient_with_a_graph,
        "double_backward",
        "backward",
        "the gradient, with create_graph=True",
    ),
    (modes.operator_known_weakly, "grad_mode", "backward", "of an operator that is gone"),
    (modes.cap_of_the_forward_thread, "process_state", "backward", IN_THREADS),
    (modes.cap_tensor_of_inference_mode, "first_call", "backward", RAISED),
    (modes.cap_on_the_default_device, "process_state", "inference", RAISED),
    (modes.cap_in_a_lost_buffer, "model_dtype", "forward", "built on meta, to_empty() and load_state_dict()"),
]


@pytest.mark.parametrize(("make", "law", "pass_", "what"), FAULTS)
def test_a_fault_is_noticed_where_it_is(make: Any, law: str, pass_: str, what: str) -> None:
    assert label(make, law, pass_) == what
    assert label(right.module_with_a_buffer, law, pass_) is None


SERVED = [
    (modes.output_buffer_in_eval, "no_aliasing", "eval"),
    (modes.cached_by_address_in_inference_mode, "repeat", "inference_mode"),
    (modes.inference_tensor_overwritten, "inputs_unmodified", "inference_mode"),
    (modes.input_kept_in_inference_mode, "memory_released", "inference_mode"),
    (modes.autocast_in_inference_mode, "process_state", "inference_mode"),
]


@pytest.mark.parametrize(("make", "law", "mode"), SERVED)
def test_a_fault_of_serving_is_noticed_there_and_nowhere_else(make: Any, law: str, mode: str) -> None:
    assert label(make, law, "inference", mode) is not None
    assert label(make, law, "inference") is None
    assert label(right.shared, law, "inference", mode) is None


class _Keeping:
    """Keeps the intermediate result that it was called with."""

    def __init__(self, softcap: float) -> None:
        self.kernel, self.last = right.shared(softcap), None

    def __call__(self, x: Any) -> Any:
        if x.requires_grad and not x.is_leaf:
            self.last = x.detach()
        return self.kernel(x)


class _Shared(_Keeping):
    """An intermediate result is the memory of its own result."""

    def __call__(self, x: Any) -> Any:
        y = self.kernel(x)
        if x.requires_grad and not x.is_leaf:
            y.data = x.data.copy_(y.detach())
        return y


def test_an_intermediate_result_is_released_and_is_not_the_result() -> None:
    kept = label(_Keeping, "memory_released", "backward")
    assert kept == "the memory of x, an intermediate result, after a call"
    assert (
        label(_Shared, "no_aliasing", "forward") == "the result shares memory with x, an intermediate result"
    )
