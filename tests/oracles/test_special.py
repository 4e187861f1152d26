"""What NaN and infinite arguments must give."""

from __future__ import annotations

import pytest
import torch

from oracles.acceptance import accept
from oracles.truth import Truth

INF, NAN = torch.inf, torch.nan
FORWARD = [
    # x, accepted, refused, at cap 30
    (NAN, [NAN], [0.0, 30.0, INF]),
    (INF, [30.0], [INF, NAN, -30.0, 0.0]),
    (-INF, [-30.0], [-INF, NAN, 30.0]),
    (1.0, [0.99963], [NAN, INF, -INF]),
    (0.0, [0.0, -0.0], [NAN, 1e-3]),
]
BACKWARD = [
    # x, grad_y, accepted, refused, at cap 30
    (NAN, 1.0, [NAN], [0.0, 1.0, INF]),
    (1.0, NAN, [NAN], [0.0, 1.0, INF]),
    (INF, NAN, [NAN], [0.0, INF]),
    (NAN, 0.0, [NAN], [0.0]),
    (NAN, INF, [NAN], [INF]),
    (INF, 2.0, [0.0, -0.0], [2.0, NAN, 1e-40, INF]),
    (-INF, -2.0, [0.0, -0.0], [-2.0, NAN, 2e-8]),
    (INF, 0.0, [0.0, -0.0], [NAN, 1.0]),
    (INF, INF, [INF, -INF, NAN], [0.0, 3e38]),
    (1.0, INF, [INF], [-INF, NAN, 3e38, 0.0]),
    (-239.9, -INF, [-INF], [INF, NAN, 0.0]),
    (240.0, -INF, [-INF, INF, NAN], [0.0, -3e38]),
    (5.0, 0.0, [0.0, -0.0], [NAN, 1e-45, INF]),
    (5.0, 1.0, [], [NAN, INF, -INF]),
    (3e38, 1.0, [0.0, -0.0, 3e-7], [NAN, 4e-7]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("x", "accepted", "refused"), FORWARD)
def test_forward(x: float, accepted: list[float], refused: list[float], dtype: torch.dtype) -> None:
    for values, ok in ((accepted, True), (refused, False)):
        got = torch.tensor(values, dtype=torch.float64).to(dtype)
        truth = Truth.of(torch.full(got.shape, x), 30)
        got = truth.rounded(dtype) if ok and 0 < abs(x) < 2 else got
        outcome = accept("ulp", got, truth)
        assert outcome.ok.tolist() == [ok] * len(values)
        assert outcome.error.isfinite().tolist() == [ok or bool(v.isfinite() and x == x) for v in got]


@pytest.mark.parametrize(("x", "grad_y", "accepted", "refused"), BACKWARD)
def test_backward(x: float, grad_y: float, accepted: list[float], refused: list[float]) -> None:
    for values, ok in ((accepted, True), (refused, False)):
        got = torch.tensor(values)
        truth = Truth.of(torch.full(got.shape, x), 30, torch.full(got.shape, grad_y))
        outcome = accept("ulp", got, truth)
        assert outcome.ok.tolist() == [ok] * len(values)
        assert not outcome.error.isnan().any()


def test_the_specification_judges_nan_and_leaves_infinities() -> None:
    x, g = torch.tensor([NAN, NAN, 1.0, 1.0]), torch.tensor([1.0, 1.0, INF, INF])
    outcome = accept("specification", torch.tensor([NAN, 0.0, INF, -INF]), Truth.of(x, 30, g))
    assert outcome.ok.tolist() == [True, False, True, True]
    assert outcome.judged.tolist() == [True, True, False, False]


def test_overflow_of_an_fp16_gradient_is_right() -> None:
    x, g = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float16), torch.tensor([1e6, 65519.99, 1e6])
    outcome = accept("ulp", torch.tensor([INF, INF, 65504.0], dtype=torch.float16), Truth.of(x, 30, g))
    assert outcome.ok.tolist() == [True, True, False]
    assert outcome.error[:2].tolist() == [0.0, 0.0]
