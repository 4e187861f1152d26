"""What torch.compile sees of a candidate, and the law that a traced call keeps its bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from invariance.candidate import GraphLost, adapt
from invariance.checkers import NotApplicable, load_laws
from invariance.checkers.tracing import formula_seen
from strategies.case import Case
from tests.checkers.faulty import GOOD, Fault, bumped, softcap, verdict

load_laws()

CASE = Case((64,), "bf16", 17.3, seed=1)
TRACED = ("inference", "backward")


@torch.library.custom_op("softcap_tests::opaque", mutates_args=())
def opaque(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


@opaque.register_fake
def _(x: Tensor, _: float) -> Tensor:
    return torch.empty_like(x)


@torch.compiler.disable
def hidden(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


@pytest.mark.parametrize(
    ("function", "seen"),
    [
        (lambda x, cap: cap * torch.tanh(x / cap), True),
        (lambda x, cap: torch.ops.aten.tanh(x) * cap, True),
        (lambda x, cap: x.tanh_().mul_(cap), True),
        (lambda x, cap: opaque(x.contiguous(), cap).view(x.shape), False),
        (torch.ops.softcap_tests.opaque, False),
        (hidden, False),
        (lambda x, cap: opaque(x, cap) * 2, True),
    ],
)
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_a_formula_is_told_from_a_kernel(function: object, seen: bool) -> None:
    f = adapt("f", function).map(30.0, "inference")
    assert formula_seen(f, (torch.ones(4),)) is seen


@pytest.mark.parametrize("pass_", TRACED)
def test_good_kernels_keep_their_bits(pass_: str) -> None:
    for function in (*GOOD, hidden):
        found = verdict("traced", adapt("good", function), CASE, pass_)
        assert found.mismatch is None, (function, found.mismatch)
        promised = 1 + (2 if pass_ == "inference" else 0)  # the form, and two dtypes that a cast follows in
        assert found.elements == 64 + 64 + 62 + promised


@pytest.mark.parametrize("pass_", TRACED)
def test_a_branch_for_the_compiler_is_entered(pass_: str) -> None:
    def call(x: Tensor, cap: float) -> Tensor:
        fault: Fault | None = (lambda t, _: bumped(t)) if torch.compiler.is_compiling() else None
        return softcap(x, cap, fault, pass_)

    found = verdict("traced", adapt("branch", call), CASE, pass_).mismatch
    assert found is not None
    assert found.label == "traced at cap 17.3, 64 elements"


def test_a_graph_that_ends_where_it_is_traced_is_a_failure() -> None:
    def call(x: Tensor, cap: float) -> Tensor:
        return softcap(x.detach() if torch.compiler.is_compiling() else x, cap)

    with pytest.raises(GraphLost, match="the output does not require grad"):
        verdict("traced", adapt("ends", call), CASE, "backward")


def test_a_size_that_became_a_constant_is_noticed() -> None:
    first: list[int] = []

    @torch.compiler.assume_constant_result
    def known(size: int) -> int:
        first.append(size)
        return first[0]

    def call(x: Tensor, cap: float) -> Tensor:
        wrong = torch.compiler.is_compiling() and known(x.numel()) != x.numel()
        return bumped(hidden(x, cap)) if wrong else hidden(x, cap)

    found = verdict("traced", adapt("sizes", call), CASE, "inference").mismatch
    assert found is not None
    assert "62 elements" in found.label


@pytest.mark.parametrize("pass_", TRACED)
def test_a_branch_for_three_dimensions_is_entered(pass_: str) -> None:
    def call(x: Tensor, cap: float) -> Tensor:
        wrong = torch.compiler.is_compiling() and x.dim() > 2
        return softcap(x, cap, (lambda t, _: bumped(t)) if wrong else None, pass_)

    found = verdict("traced", adapt("three", call), CASE, pass_).mismatch
    assert found is not None
    assert found.label == "traced at cap 17.3, 64 elements"


@torch.library.custom_op("softcap_tests::contiguous", mutates_args=())
def contiguous(x: Tensor, cap: float) -> Tensor:
    return (cap * torch.tanh(x / cap)).contiguous()


@contiguous.register_fake
def _(x: Tensor, _: float) -> Tensor:
    return torch.empty_like(x)


def test_strides_that_a_fake_promises_are_kept() -> None:
    assert verdict("traced", adapt("opaque", opaque), CASE, "inference").mismatch is None
    found = verdict("traced", adapt("contiguous", contiguous), CASE, "inference").mismatch
    assert found is not None
    assert found.label == "the form that a fake tensor promises"
    assert (found.got, found.want) == (
        "(2, 31) of torch.bfloat16, strides [31, 1]",
        "(2, 31) of torch.bfloat16, strides [1, 2]",
    )


def test_what_refuses_fakes_promises_nothing() -> None:
    def call(x: Tensor, cap: float) -> Tensor:
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) and not torch.compiler.is_compiling():
            raise TypeError("a tensor without numbers")
        return softcap(x, cap)

    assert verdict("traced", adapt("refuses", call), CASE, "inference").mismatch is None


@torch.library.custom_op("softcap_tests::without_a_fake", mutates_args=())
def without_a_fake(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap)


def test_what_cannot_be_traced_says_so_and_is_outside_the_law() -> None:
    with pytest.raises(NotApplicable, match="cannot trace the candidate"):
        verdict("traced", adapt("no fake", without_a_fake), CASE, "inference")


def in_numpy(x: Tensor, cap: float) -> Tensor:
    return torch.from_numpy(np.float32(cap) * np.tanh(x.float().numpy() / np.float32(cap)))


def test_numpy_is_not_written_anew(capfd: pytest.CaptureFixture[str]) -> None:
    found = verdict("traced", adapt("numpy", in_numpy), Case((1 << 12,), "fp32", 17.3), "inference")
    assert found.mismatch is None, found.mismatch
    assert capfd.readouterr().err == ""  # a graph that is left is nobody's news
