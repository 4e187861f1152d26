"""Laws about what came before: good kernels pass, and each kind of memory between calls is noticed by its label."""

from __future__ import annotations

import functools
import gc
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from invariance.candidate import PASSES, CandidateRaised, adapt
from invariance.checkers import LAWS, NotApplicable, load_laws, memory
from invariance.checkers.history import wait_for_release
from strategies.case import Case
from tests.checkers.faulty import bumped, faulty, softcap, verdict
from tests.checkers.good import GOOD, Operator

load_laws()

NAMES = sorted(name for name, law in LAWS.items() if law.check.__module__.endswith(".history"))
CASE = Case((2, 3), "fp32", 30.0, seed=1)


def test_these_are_the_laws_about_what_came_before() -> None:
    assert NAMES == ["first_call", "many_calls", "memory_growth", "memory_released", "same_tensor"]


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
    assert found.elements == 7 * 6


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
def test_a_cap_that_a_fake_call_made_is_noticed(pass_: str) -> None:
    class Kept(Operator):
        def value(self, x: Tensor) -> Tensor:
            with torch.inference_mode(False):
                kept = vars(self).setdefault("kept", torch.tensor(self.cap))
            return kept * torch.tanh(x.float() / kept)

    with pytest.raises(CandidateRaised, match="FakeTensor"):
        verdict("first_call", adapt("kept", Kept), CASE, pass_)


@pytest.mark.parametrize("pass_", PASSES)
def test_a_fake_call_may_be_refused(pass_: str) -> None:
    refused: list[int] = []

    def kernel(x: Tensor, cap: float) -> Tensor:
        try:
            x.data_ptr()
        except RuntimeError:
            refused.append(x.numel())
            raise
        return softcap(x, cap)

    assert verdict("first_call", adapt("reads", kernel), CASE, pass_).mismatch is None
    assert refused == [6]


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
    assert found.elements == 3


@pytest.mark.parametrize(("patience", "gone"), [(0.0, False), (30.0, True)])
def test_another_thread_may_let_go_a_little_later(patience: float, gone: bool) -> None:
    """As the engine's does, in which a device's backward runs."""
    held, asked = [torch.zeros(3)], threading.Event()
    storage = StorageWeakRef(held[0].untyped_storage())  # type: ignore[no-untyped-call]  # torch's
    thread = threading.Thread(target=lambda: (asked.wait(0.1 if gone else None), held.clear()))
    thread.start()
    wait_for_release([storage], patience)
    assert storage.expired() == gone  # type: ignore[no-untyped-call]  # torch's
    asked.set()
    thread.join()


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("keep", [lambda t: t.clone(), lambda t: t.detach().float().numpy().copy()])
def test_what_every_call_leaves_is_noticed(keep: Callable[[Tensor], object], pass_: str) -> None:
    kept: list[object] = []

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        kept.append(keep(args[-1].detach()))
        return out

    found = verdict("memory_growth", faulty(fault, pass_), Case((4,), "fp32", 17.3, seed=1), pass_).mismatch
    assert found is not None
    assert (found.got, found.want) == ("grows", "as before")


def test_where_the_c_library_says_nothing_the_law_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_mallinfo", None)
    with pytest.raises(NotApplicable, match="does not say"):
        verdict("memory_growth", GOOD[0], CASE, "forward")


def test_a_graph_that_grows_in_one_object_is_noticed() -> None:
    total = [torch.zeros(())]

    def kernel(x: Tensor, cap: float) -> Tensor:
        y = cap * torch.tanh(x.float().clone() / cap)
        total[0] = total[0] + y.mean()
        return y

    found = verdict(
        "memory_growth", adapt("running mean", kernel), Case((4,), "fp32", 17.3), "forward"
    ).mismatch
    assert found is not None
    assert found.got == "grows"


class Scratch:
    """A buffer for each length."""

    def __init__(self, cap: float) -> None:
        self.cap, self.buffers = cap, dict[int, Tensor]()

    def __call__(self, x: Tensor) -> Tensor:
        self.buffers.setdefault(x.numel(), torch.empty(x.numel()))
        return softcap(x, self.cap)


registered: list[Scratch] = []


class Registered(Scratch):
    """One buffer, for as long as the process."""

    def __init__(self, cap: float) -> None:
        super().__init__(cap)
        self.buffer = torch.empty(1 << 14)
        registered.append(self)

    def __call__(self, x: Tensor) -> Tensor:
        return softcap(x, self.cap)


@pytest.mark.parametrize(
    ("kernel", "grows"),
    [(Scratch, "memory, with every length"), (Registered, "memory, with every operator")],
)
@pytest.mark.parametrize("pass_", PASSES)
def test_what_every_length_or_operator_leaves_is_noticed(
    kernel: type[Scratch], grows: str, pass_: str
) -> None:
    found = verdict("memory_growth", adapt("kept", kernel), Case((4,), "fp32", 17.3, seed=1), pass_).mismatch
    assert found is not None
    assert found.label == grows


def test_one_operator_a_cap_may_be_kept() -> None:
    candidate = adapt("kept", Registered)
    once = replace(candidate, factory=functools.cache(candidate.factory))
    found = verdict("memory_growth", once, Case((4,), "fp32", 17.3, seed=1), "forward")
    assert found.mismatch is None


def test_what_is_full_after_some_calls_does_not_grow() -> None:
    kept: list[Tensor] = []

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        kept.append(args[0].detach().clone())
        del kept[:-200]
        return out

    found = verdict("memory_growth", faulty(fault, "inference"), Case((4,), "bf16", 17.3), "inference")
    assert found.mismatch is None


def test_cycles_and_older_garbage_are_not_growth() -> None:
    for _ in range(1000):
        older: list[object] = []
        older.append(older)

    def fault(out: Tensor, args: tuple[Tensor, ...]) -> Tensor:
        cycle: list[object] = [args[0].detach().clone()]
        cycle.append(cycle)
        return out

    found = verdict("memory_growth", faulty(fault, "inference"), Case((4,), "bf16", 17.3), "inference")
    assert found.mismatch is None
