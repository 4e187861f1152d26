"""The FP64 oracle against the exact one, with which it shares no code."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from oracles import exact, fp64

CAPS = [1.0, 7.3, 30.0, 2.0**-60, 2.0**60]
SEAMS = [
    2.0**-149,
    1e-30,
    2.0**-12,
    2.1e-4,
    0.1,
    0.549,
    1.0,
    4.0,
    9.01,
    17.0,
    19.1,
    40.0,
    88.8,
    299.99,
    300.01,
    355.0,
    711.0,
]


def points(cap: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    z = torch.cat(
        [torch.tensor(SEAMS, dtype=torch.float64), 6 * torch.rand(120, generator=generator).double()]
    )
    x = (z * cap).float()
    return torch.cat([x, -x, torch.tensor([3e38])])


@pytest.mark.parametrize("cap", CAPS)
def test_forward_bound_holds_and_is_widened(cap: float) -> None:
    x = points(cap)
    value = fp64.forward(x, cap)
    bound = fp64.forward_bound(x, value)
    for i, (element, got, room) in enumerate(zip(x.tolist(), value.tolist(), bound.tolist(), strict=True)):
        truth = exact.forward(element, cap, 160)
        off = max(abs(truth.lo - Fraction(got)), abs(truth.hi - Fraction(got)))
        assert off * 64 <= Fraction(room), f"element {i}: x={element!r}"


@pytest.mark.parametrize("cap", CAPS)
def test_gradient_bound_holds_and_is_widened(cap: float) -> None:
    x = points(cap)
    g = torch.randn(x.shape, generator=torch.Generator().manual_seed(6))
    g[:4] = torch.tensor([2.0**-149, 2.0**-100, 2.0**100, 3.4e38])
    value = fp64.gradient(x, g, cap)
    bound = fp64.gradient_bound(x, g, cap, value)
    near = (fp64.scaled(x, cap).abs() < fp64.FAR).tolist()
    for i, (element, upstream) in enumerate(zip(x.tolist(), g.tolist(), strict=True)):
        truth = exact.gradient(element, upstream, cap, 160)
        off = max(abs(truth.lo - Fraction(value[i].item())), abs(truth.hi - Fraction(value[i].item())))
        assert off * (64 if near[i] else 1) <= Fraction(bound[i].item()), (
            f"element {i}: x={element!r} g={upstream!r}"
        )


def test_an_oracle_that_is_off_by_more_than_its_bound_is_seen() -> None:
    x, cap = points(30.0), 30.0
    value = fp64.forward(x, cap)
    bound = fp64.forward_bound(x, value)
    wrong = value + 2 * bound
    outside = [
        abs(exact.forward(e, cap, 160).lo - Fraction(w)) > Fraction(b)
        for e, w, b in zip(x.tolist(), wrong.tolist(), bound.tolist(), strict=True)
    ]
    assert all(outside)


def test_one_minus_tanh_squared_is_no_oracle() -> None:
    x = torch.tensor([15.0, 19.1])
    naive = 1 - fp64.forward(x, 1.0).square()
    assert ((naive - fp64.sech2(x, 1.0)).abs() > 1e-4 * fp64.sech2(x, 1.0)).all()


def test_special_values() -> None:
    x = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan])
    y = fp64.forward(x, 7.3)
    cap = torch.tensor(7.3).item()
    assert y[:4].tolist() == [0.0, -0.0, cap, -cap]
    assert y.signbit()[:2].tolist() == [False, True]
    assert y[4].isnan()
    dx = fp64.gradient(x, torch.ones(5), 7.3)
    assert dx[:4].tolist() == [1.0, 1.0, 0.0, 0.0]
    assert dx[4].isnan()


def test_far_out_is_zero_without_a_warning_or_a_nan() -> None:
    x = torch.tensor([299.0, 300.0, 355.0, 720.0, 3e38])
    got = fp64.sech2(x, 1.0)
    assert got[0] > 0
    assert got[1:].tolist() == [0.0] * 4


def test_the_cap_is_rounded_to_fp32_first() -> None:
    x = torch.tensor([5.0])
    assert torch.equal(fp64.forward(x, 7.3), fp64.forward(x, torch.tensor(7.3).item()))
    assert not torch.equal(fp64.forward(x, 7.3), 7.3 * torch.tanh(x.double() / 7.3))
