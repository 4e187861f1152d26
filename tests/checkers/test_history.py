"""Laws about what came before: good kernels pass, and each kind of memory between calls is noticed by its label."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from invariance.candidate import PASSES, adapt
from invariance.checkers import LAWS, load_laws
from strategies.case import Case
from tests.checkers.faulty import bumped, faulty, softcap, verdict
from tests.checkers.good import GOOD, Operator

load_laws()

NAMES = sorted(name for name, law in LAWS.items() if law.check.__module__.endswith(".history"))
CASE = Case((2, 3), "fp32", 30.0, seed=1)


def test_these_are_the_laws_about_what_came_before() -> None:
    assert NAMES == ["first_call", "many_calls", "memory_released", "same_tensor"]


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("law", NAMES)
def test_good_kernels_pass(law: str, pass_: str) -> None:
    for number, candidate in enumerate(GOOD):
        for shape in ((2, 3), (), (0,)):
            found = verdict(law, candidate, Case(shape, ("fp16", "bf16", "fp32")[number % 3], 17.3), pass_)
            assert found.mismatch is None, (candidate.name, shape, found.mismatch)
            assert found.elements > 0


def test_a_kernel_of_one_dtype_only_is_not_asked_for_others() -> None:
    class OnlyFp32(Operator):
        def value(self, x: Tensor) -> Tensor:
            if x.dtype != torch.float32:
                raise TypeError(x.dtype)
            return self.cap * torch.tanh(x / self.cap)

    found = verdict("first_call", adapt("fp32 only", OnlyFp32), CASE, "inference")
    assert found.mismatch is None
    assert found.elements == 6 * 6


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize(
    ("key", "label"),
    [
        (lambda x: x.dtype == torch.bfloat16, "torch.bfloat16"),
        (lambda x: x.numel() > 4096, "16,385 elements"),
        (lambda x: x.numel() == 0, "no elements"),
        (lambda x: x.dim() == 0, "one element"),
        (lambda x: bool(x.isnan().all()) and x.numel() > 0, "NaN"),
        (lambda x: not x.is_contiguous(), "every second element"),
    ],
)
def test_what_the_first_call_decides_is_named(key: Callable[[Tensor], bool], label: str, pass_: str) -> None:
    def kernel(cap: float) -> Callable[[Tensor], Tensor]:
        first: list[bool] = []

        def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
            first.extend([] if first else [key(args[0])])
            return bumped(out, first[0])

        return lambda x: softcap(x, cap, fault, pass_)

    found = verdict("first_call", adapt("sticky", kernel), CASE, pass_).mismatch
    assert found is not None
    assert found.label == f"first called with {label}"


@pytest.mark.parametrize("pass_", PASSES)
def test_a_rounding_that_changes_late_is_noticed(pass_: str) -> None:
    calls: list[int] = []

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        calls.append(0)
        return bumped(out, len(calls) > 400)

    found = verdict("many_calls", faulty(fault, pass_), CASE, pass_).mismatch
    assert found is not None
    assert found.label == "again, after 512 more calls"


@pytest.mark.parametrize("pass_", PASSES)
def test_a_ring_of_buffers_is_noticed(pass_: str) -> None:
    ring: list[Tensor] = []

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        ring.append(ring.pop(0).copy_(out) if len(ring) == 500 else out.detach())
        return ring[-1].view_as(out)

    found = verdict("many_calls", faulty(fault, pass_), CASE, pass_).mismatch
    assert found is not None
    assert "returns the memory of the first result" in found.label


def _by_version(t: Any) -> object:
    return t._version


@pytest.mark.parametrize(
    ("key", "label"),
    [(id, "the same x, changed in place"), (_by_version, "the same x, changed through .data")],
)
@pytest.mark.parametrize("pass_", ["forward", "inference"])
def test_a_result_kept_on_its_tensor_is_noticed(
    key: Callable[[Tensor], object], label: str, pass_: str
) -> None:
    def kernel(x: Any, cap: float) -> Tensor:
        kept = vars(x).setdefault("kept", {})
        if key(x) not in kept:
            kept[key(x)] = softcap(x, cap)
        return kept[key(x)].clone()

    found = verdict("same_tensor", adapt("kept", kernel), CASE, pass_).mismatch
    assert found is not None
    assert found.label == label


def test_a_gradient_kept_for_its_tensors_is_noticed() -> None:
    kept: dict[object, Tensor] = {}

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        x, grad_y = args
        return kept.setdefault((x.data_ptr(), float(x.sum()), grad_y.data_ptr()), out.clone()).clone()

    found = verdict("same_tensor", faulty(fault, "backward"), CASE, "backward").mismatch
    assert found is not None
    assert found.label == "the same grad_y, changed in place"


@pytest.mark.parametrize(("kept", "name"), [("x", "x"), ("grad_y", "grad_y"), ("out", "the result")])
def test_memory_that_is_kept_is_noticed(kept: str, name: str) -> None:
    last: list[Tensor] = []

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        last[:] = [{"x": args[0], "grad_y": args[1], "out": out}[kept].detach()]
        return out

    found = verdict("memory_released", faulty(fault, "backward"), CASE, "backward").mismatch
    assert found is not None
    assert (found.label, found.got) == (f"the memory of {name}, after a call", "kept")


def test_a_cycle_is_left_to_the_collector() -> None:
    class Cyclic(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, cap: float) -> Tensor:
            ctx.y = y = cap * torch.tanh(x / cap)  # the output holds its context, and that the output
            return y

        @staticmethod
        def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
            return grad_y, None

    gc.collect()
    found = verdict("memory_released", adapt("cyclic", Cyclic.apply), CASE, "forward")
    assert found.mismatch is None
    assert found.elements == 2


def test_scratch_that_two_threads_share_is_noticed() -> None:
    scratch = torch.empty(2, 3)

    def kernel(x: Tensor, cap: float) -> Tensor:
        if x.shape != (2, 3) or x.dtype != torch.float32 or x.requires_grad:
            return softcap(x, cap)
        scratch.copy_(x)
        time.sleep(1e-3)
        return softcap(scratch.clone(), cap)

    found = verdict("process_state", adapt("scratch", kernel), CASE, "inference").mismatch
    assert found is not None
    assert found.label == "called from two threads at once"
