"""torch.func and forward-mode AD: an error or the right thing, and each wrong thing is noticed by its label."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from invariance.candidate import PASSES, Candidate, GraphLost, adapt
from invariance.checkers import LAWS, load_laws
from invariance.judge import Mismatch
from strategies.case import Case
from tests.checkers.faulty import bumped, softcap, verdict
from tests.checkers.good import GOOD

load_laws()

# As a cell is judged: a warning is no refusal, and torch 2.13 gives one where its rules for tangents are first loaded.
pytestmark = pytest.mark.filterwarnings("ignore")

CASE = Case((2, 3), "fp32", 17.3, seed=1)
LAW_NAMES = ("function_transforms", "transformed_derivatives")


class Ruled(torch.autograd.Function):
    """The right rules."""

    @staticmethod
    def forward(x: Tensor, cap: float) -> Tensor:
        return cap * torch.tanh(x.float() / cap)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.cap = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return (grad_y * slope(x, ctx.cap)).to(x.dtype), None

    @staticmethod
    def jvp(ctx: Any, v: Tensor, _: None) -> Tensor:
        (x,) = ctx.saved_tensors
        return v.float() * slope(x, ctx.cap)

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, x: Tensor, cap: float) -> Any:
        return cls.apply(x, cap), in_dims[0]


def slope(x: Tensor, cap: float) -> Tensor:
    t = torch.tanh(x.float() / cap)
    return 1 - t * t


def ruled(**rules: Any) -> Candidate:
    function = type("Changed", (Ruled,), rules)
    return adapt("ruled", lambda x, cap: function.apply(x, float(cap)))


def found(law: str, candidate: Candidate, pass_: str, case: Case = CASE) -> Mismatch | None:
    return verdict(law, candidate, case, pass_).mismatch


@pytest.mark.parametrize("shape", [(2, 3), (), (257,), (2, 3, 5)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_good_kernels_pass(dtype: str, shape: tuple[int, ...]) -> None:
    for candidate in (*GOOD, ruled()):
        for law in LAW_NAMES:
            for pass_ in LAWS[law].passes:
                judged = verdict(law, candidate, Case(shape, dtype, 17.3, seed=2), pass_)
                assert judged.mismatch is None, (candidate.name, law, pass_, judged.mismatch)
                assert judged.elements > 0


def test_a_function_without_rules_refuses_and_passes() -> None:
    candidate = adapt("softcap", softcap)
    for law in LAW_NAMES:
        for pass_ in LAWS[law].passes:
            assert found(law, candidate, pass_) is None


@pytest.mark.parametrize("pass_", ["forward", "inference"])
def test_a_batch_taken_for_the_first_dimension_is_noticed(pass_: str) -> None:
    rule = classmethod(lambda cls, info, in_dims, x, cap: (cls.apply(x, cap), 0))
    mismatch = found("function_transforms", ruled(vmap=rule), pass_)
    assert mismatch is not None
    assert mismatch.label == "vmap over the last dimension"


@pytest.mark.parametrize("pass_", PASSES)
def test_another_rounding_in_a_batch_is_noticed(pass_: str) -> None:
    rule = classmethod(lambda cls, info, in_dims, x, cap: (bumped(cls.apply(x, cap)), in_dims[0]))
    assert (found("function_transforms", ruled(vmap=rule), pass_) is None) == (pass_ == "backward")


def test_a_gradient_that_is_lost_under_torch_func_is_noticed() -> None:
    def kernel(x: Tensor, cap: float) -> Tensor:
        transformed = torch._C._are_functorch_transforms_active()
        return cap * torch.tanh((x.detach() if transformed else x).float() / cap)

    mismatch = found("function_transforms", adapt("lost", kernel), "backward")
    assert mismatch is not None
    assert mismatch.label == "torch.func.grad"


def test_a_batch_of_gradients_for_one_input_is_noticed() -> None:
    class Gradient(torch.autograd.Function):
        @staticmethod
        def forward(x: Tensor, grad_y: Tensor, cap: float) -> Tensor:
            return (grad_y * slope(x, cap)).to(x.dtype)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Tensor, grad_y: Tensor, cap: float) -> Any:
            return Gradient.apply(x.flip(-1) if in_dims[0] is None else x, grad_y, cap), 0

    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        return Gradient.apply(ctx.saved_tensors[0], grad_y, ctx.cap), None

    mismatch = found("function_transforms", ruled(backward=staticmethod(backward)), "backward")
    assert mismatch is not None
    assert mismatch.label == "vmap of what torch.func.vjp gives"


def test_a_batch_of_gradients_of_autograd_is_noticed() -> None:
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        batched = torch._C._functorch.is_legacy_batchedtensor(grad_y)
        return (grad_y.abs() if batched else grad_y) * slope(ctx.saved_tensors[0], ctx.cap), None

    mismatch = found("function_transforms", ruled(backward=staticmethod(backward)), "backward")
    assert mismatch is not None
    assert mismatch.label == "torch.autograd.grad of a batch"


@pytest.mark.parametrize(
    ("rule", "what"),
    [
        (lambda ctx, v, _: torch.zeros_like(v.float()), "break the ulp rule"),
        (lambda ctx, v, _: v.float(), "break the ulp rule"),
        (
            lambda ctx, v, _: v.float() * slope(ctx.saved_tensors[0], ctx.cap) * (1 + 2.0**-20),
            "break the ulp rule",
        ),
    ],
)
def test_a_wrong_tangent_is_noticed(rule: Callable[..., Tensor], what: str) -> None:
    mismatch = found("transformed_derivatives", ruled(jvp=staticmethod(rule)), "backward")
    assert mismatch is not None
    assert (mismatch.label, mismatch.what) == ("the tangent of torch.func.jvp", what)


def test_a_tangent_dropped_from_a_dual_number_is_noticed() -> None:
    def kernel(x: Tensor, cap: float) -> Tensor:
        if torch._C._are_functorch_transforms_active():
            raise RuntimeError("not under torch.func")
        return softcap(x, cap) if x.requires_grad else softcap(x.detach(), cap)

    mismatch = found("transformed_derivatives", adapt("dropped", kernel), "backward")
    assert mismatch is not None
    assert (mismatch.label, mismatch.got) == ("the tangent of a dual number", "lost")


def test_another_value_beside_a_tangent_is_noticed() -> None:
    def kernel(x: Tensor, cap: float) -> Tensor:
        y = cap * torch.tanh(x.float() / cap)
        dual = torch.autograd.forward_ad._current_level >= 0
        return y + y.detach() * 2.0**-22 if dual else y

    mismatch = found("transformed_derivatives", adapt("beside", kernel), "backward")
    assert mismatch is not None
    assert mismatch.label == "y, of torch.func.jvp"


def test_a_graph_lost_in_a_batch_is_noticed() -> None:
    def kernel(x: Tensor, cap: float) -> Tensor:
        return softcap(x, cap) if x.requires_grad else cap * torch.tanh(x.float() / cap).detach()

    def refusing(x: Tensor, cap: float) -> Tensor:
        if torch.autograd.forward_ad._current_level >= 0:
            raise RuntimeError("no tangents")
        return kernel(x, cap)

    with pytest.raises(GraphLost):
        found("transformed_derivatives", adapt("batches lose it", refusing), "backward")


def test_a_backward_that_is_refused_in_a_batch_passes() -> None:
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, cap: float) -> Tensor:
            ctx.save_for_backward(x)
            ctx.cap = cap
            return cap * torch.tanh(x.float() / cap)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
            (x,) = ctx.saved_tensors
            return (grad_y * slope(x, ctx.cap)).to(x.dtype), None

    assert found("transformed_derivatives", adapt("once", Once.apply), "backward") is None
