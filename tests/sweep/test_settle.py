"""Errors rounded once, and the contenders that no rounding can hide."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
import torch

from invariance.sweep.domain import encode
from invariance.sweep.settle import ERROR, Contender, Front, Question, leading, round_errors, rounding_range
from oracles.formats import round_to_format

FORWARD = Question(30.0, "forward", torch.float32, torch.float32, 2.0**-24)
BACKWARD = Question(30.0, "backward", torch.float32, torch.float32, 2.0**-24)


@pytest.mark.parametrize("x", [0.75, 3.0, 29.0, 100.0, 250.0, -8.5])
@pytest.mark.parametrize("steps", [0, 1, -3, 1000])
def test_a_forward_error_is_mpmaths_at_200_bits(x: float, steps: int) -> None:
    mpmath.mp.prec = 200
    exact = 30 * mpmath.tanh(mpmath.mpf(x) / 30)
    got = encode(float(torch.tensor(float(exact)).float()), torch.float32) + steps
    ulp = mpmath.mpf(2) ** (mpmath.floor(mpmath.log(abs(exact), 2)) - 23)
    y = torch.tensor(got - ((got >> 31) << 32), dtype=torch.int32).view(torch.float32).item()
    want = float(abs(mpmath.mpf(y) - exact) / ulp)
    assert abs(FORWARD.error(encode(x, torch.float32), got) - want) <= max(2.0**-33, want * 2.0**-40)


@pytest.mark.parametrize("x", [0.75, 29.0, 250.0, 3000.0])
def test_a_gradient_error_is_in_units_of_the_upstream_gradient(x: float) -> None:
    mpmath.mp.prec = 200
    exact = 1 / mpmath.cosh(mpmath.mpf(x) / 30) ** 2
    assert BACKWARD.error(encode(x, torch.float32), 0) == pytest.approx(
        float(exact * 2**24), rel=2.0**-40, abs=2.0**-33
    )


def test_an_error_that_is_not_finite() -> None:
    assert FORWARD.error(encode(1.0, torch.float32), encode(math.inf, torch.float32)) == math.inf
    assert FORWARD.error(encode(1.0, torch.float32), 0x7FC00000) == math.inf


def test_a_saturated_result_has_error_zero_and_is_correctly_rounded() -> None:
    cap = encode(30.0, torch.float32)
    assert FORWARD.error(encode(1e30, torch.float32), cap) == 0.0
    assert FORWARD.correctly_rounded(encode(1e30, torch.float32), cap)
    assert not FORWARD.correctly_rounded(encode(1e30, torch.float32), cap - 1)


def test_zeros_are_rounded_with_their_sign() -> None:
    assert FORWARD.correctly_rounded(0, 0)
    assert not FORWARD.correctly_rounded(0, 1 << 31)
    assert FORWARD.correctly_rounded(1 << 31, 1 << 31)


def test_rounding_of_tensors_and_of_rationals_agree() -> None:
    generator = torch.Generator().manual_seed(1)
    errors = torch.rand(2000, generator=generator, dtype=torch.float64) * 2.0 ** torch.randint(
        -40, 90, (2000,)
    )
    want = [round_to_format(Fraction(error), ERROR) for error in errors.tolist()]
    assert round_errors(errors).tolist() == want
    assert [
        rounding_range(error, 0.0)[0] <= w <= rounding_range(error, 0.0)[1]
        for error, w in zip(errors.tolist(), want, strict=True)
    ] == [True] * 2000


@pytest.mark.parametrize("bound", [2.0**-20, 2.0**-39, 2.0**-46])
@pytest.mark.parametrize("seed", range(4))
def test_the_worst_is_among_the_leading_whatever_the_errors_of_fp64(bound: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    truth = (
        torch.rand(3000, generator=generator, dtype=torch.float64) * (bound * 8 if seed % 2 else 1.0) + 0.25
    )
    seen = truth + (torch.rand(3000, generator=generator, dtype=torch.float64) * 2 - 1) * bound
    index, low, high = leading(seen, bound, -1.0)
    rounded = round_errors(truth)
    assert int((rounded == rounded.max()).nonzero()[0]) in index.tolist()
    assert bool(((low <= rounded[index]) & (rounded[index] <= high)).all())


def test_a_plateau_gives_its_first_element_only_and_loses_a_tie_with_what_came_before() -> None:
    plateau = torch.full((1000,), 0.5, dtype=torch.float64)
    plateau[:10] = 0.25
    assert leading(plateau, 2.0**-46, -1.0)[0].tolist() == [10]
    assert leading(plateau, 2.0**-46, 0.5)[0].tolist() == []


def test_infinite_errors_lead() -> None:
    errors = torch.tensor([1.0, math.inf, 3.0, math.inf], dtype=torch.float64)
    index, low, high = leading(errors, 2.0**-20, 7.0)
    assert (index.tolist(), low.tolist(), high.tolist()) == ([1], [math.inf], [math.inf])


def test_a_front_settles_by_the_exact_errors_and_ties_go_to_the_smallest_magnitude() -> None:
    front, cap = Front(FORWARD), encode(30.0, torch.float32)
    places = [encode(x, torch.float32) for x in (1e30, 1e20, 1e10)]
    for pattern in places:
        front.add(Contender(0.0, 3.0, pattern, cap - 2))
    front.add(Contender(0.0, 3.0, encode(1e25, torch.float32), cap - 1))
    front.add(Contender(0.0, 3.0, places[2] | 1 << 31, cap - 2 | 1 << 31))
    worst = front.settled()
    assert worst is not None
    assert (worst.error, worst.pattern, worst.got) == (2.0, places[2], cap - 2)
