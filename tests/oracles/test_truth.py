"""The truth about whole tensors."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from oracles import exact
from oracles.rounding import from_bits, to_bits
from oracles.truth import Truth

GENERATOR = torch.Generator().manual_seed(11)


def test_value_and_error_hold_the_exact_value() -> None:
    x = torch.randn(40, generator=GENERATOR) * 60
    for grad_y in (None, torch.randn(40, generator=GENERATOR)):
        truth = Truth.of(x, 30, grad_y)
        for i in range(40):
            value, error = Fraction(truth.value[i].item()), Fraction(truth.error[i].item())
            inside = truth.exact(i)
            assert value - error <= inside.lo <= inside.hi <= value + error


def test_special_values() -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, 1.0, 100.0, torch.inf, torch.nan])
    g = torch.tensor([1.0, -2.0, 2.0, torch.inf, torch.nan, -torch.inf, torch.inf, torch.inf])
    forward, backward = Truth.of(x, 7.3), Truth.of(x, 7.3, g)
    cap = torch.tensor(7.3).item()
    assert forward.value[1:3].tolist() == [cap, -cap]
    assert forward.is_nan.tolist() == [True] + [False] * 6 + [True]
    assert backward.is_nan.tolist() == [True, False, False, False, True, False, False, True]
    assert backward.value[1:4].tolist() == [0.0, 0.0, torch.inf]
    assert backward.value[5:7].tolist() == [-torch.inf, torch.inf]
    assert torch.equal(backward.value.isnan(), backward.is_nan)
    assert not forward.error.isnan().any()
    assert not backward.error.isnan().any()


def test_the_truth_does_not_move_with_its_arguments() -> None:
    x, g = torch.ones(3), torch.ones(3)
    truth = Truth.of(x, 30, g)
    x.zero_()
    g.zero_()
    assert truth.arguments(1) == (1.0, 1.0)


def test_flat_indices_are_logical() -> None:
    x = torch.arange(6.0).reshape(2, 3).t()
    truth = Truth.of(x, 30)
    assert [truth.arguments(i)[0] for i in range(6)] == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    assert float(truth.exact(3).lo) == pytest.approx(truth.value.reshape(-1)[3].item())


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_empty_and_scalar(shape: tuple[int, ...]) -> None:
    truth = Truth.of(torch.ones(shape), 30, torch.ones(shape))
    assert truth.value.shape == truth.error.shape == torch.Size(shape)
    assert truth.rounded(torch.bfloat16).shape == torch.Size(shape)


def test_rounded_escalates_what_fp64_cannot_decide() -> None:
    """Midpoints of BF16 with a huge cap: FP64 sees the tie itself, the truth lies just below it."""
    middle = from_bits((torch.arange(0x3F80, 0x4000) << 16) + 0x8000, torch.float32)
    truth = Truth.of(middle, 2.0**60)
    assert truth.undecided(torch.bfloat16).all()
    below = to_bits(middle) >> 16
    assert torch.equal(to_bits(truth.rounded(torch.bfloat16)).int(), below)
    assert not torch.equal(to_bits(middle.bfloat16()).int(), below)


def test_rounded_agrees_with_the_exact_oracle() -> None:
    x = (torch.randn(60, generator=GENERATOR) * 40).half()
    g = torch.randn(60, generator=GENERATOR)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        forward = [exact.round_forward(v, 20, dtype) for v in x.tolist()]
        backward = [
            exact.round_gradient(v, u, 20, dtype) for v, u in zip(x.tolist(), g.tolist(), strict=True)
        ]
        assert Truth.of(x, 20).rounded(dtype).tolist() == forward
        assert Truth.of(x, 20, g).rounded(dtype).tolist() == backward


def test_explain_is_the_description() -> None:
    truth = Truth.of(torch.tensor([1.0, 2.0]), 30, torch.tensor([1.0, 3.0]))
    assert truth.explain(1) == exact.describe(2.0, 30, 3.0)


def test_refusals() -> None:
    with pytest.raises(TypeError, match="float64"):
        Truth.of(torch.ones(2, dtype=torch.float64), 30)
    with pytest.raises(TypeError, match="int32"):
        Truth.of(torch.ones(2), 30, torch.ones(2, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        Truth.of(torch.ones(2), 30, torch.ones(3))
    with pytest.raises(ValueError, match="finite and positive"):
        Truth.of(torch.ones(2), -1)
