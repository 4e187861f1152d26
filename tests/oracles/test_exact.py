"""The exact oracle against Python's decimal module: a correctly rounded exponential that shares no code with it."""

from __future__ import annotations

import decimal
import math
import time
from fractions import Fraction

import pytest
import torch

from oracles import exact
from oracles.exact import Enclosure
from oracles.formats import FORMATS, format_of
from oracles.rounding import neighbour

Z = [
    1e-30,
    1e-9,
    2.0**-12 - 2.0**-40,
    2.0**-12,
    2.0**-12 + 2.0**-30,
    1e-3,
    0.1,
    0.5493061,
    1.0,
    2.5,
    9.0109,
    20.0,
    52.7,
    88.0,
    400.0,
]


def by_decimal(z: Fraction) -> tuple[Fraction, Fraction]:
    """tanh and sech² of z to hundreds of digits."""
    with decimal.localcontext() as context:
        context.prec, context.Emin, context.Emax = 900, -999999, 999999
        e = (-2 * decimal.Decimal(z.numerator) / decimal.Decimal(z.denominator)).exp()
        return Fraction((1 - e) / (1 + e)), Fraction(4 * e / (1 + e) ** 2)


def holds(enclosure: Enclosure, value: Fraction) -> bool:
    """decimal's own error, 1e-200 relative here, is far below the width asked for."""
    return enclosure.lo < value < enclosure.hi


@pytest.mark.parametrize("bits", [64, 128, 400])
@pytest.mark.parametrize("z", Z)
def test_enclosures_hold_the_value_that_decimal_finds(z: float, bits: int) -> None:
    for cap in (1.0, 30.0, 2.0**40):
        x = z * cap
        tanh, sech2 = by_decimal(Fraction(x) / Fraction(cap))
        y, dx = exact.forward(x, cap, bits), exact.gradient(x, -3.0, cap, bits)
        assert holds(y, tanh * Fraction(cap))
        assert holds(dx, -3 * sech2)
        assert y.hi - y.lo <= y.hi / (1 << bits)
        assert dx.hi - dx.lo <= -dx.lo / (1 << bits)
        assert exact.forward(-x, cap, bits) == y.times(Fraction(-1))
        assert exact.gradient(-x, -3.0, cap, bits) == dx


def test_more_bits_never_contradict() -> None:
    for z in Z:
        wide, narrow = exact.forward(z, 1.0, 96), exact.forward(z, 1.0, 1000)
        assert wide.lo <= narrow.lo < narrow.hi <= wide.hi


@pytest.mark.parametrize("z", Z)
def test_gradient_is_one_minus_tanh_squared(z: float) -> None:
    tanh, sech2 = exact.forward(z, 1.0, 2000), exact.gradient(z, 1.0, 1.0, 300)
    assert 1 - tanh.hi**2 < sech2.hi
    assert 1 - tanh.lo**2 > sech2.lo


def test_special_arguments() -> None:
    assert exact.forward(math.inf, 7.3) == Enclosure(*[Fraction(torch.tensor(7.3).item())] * 2)
    assert exact.forward(-math.inf, 30) == Enclosure(Fraction(-30), Fraction(-30))
    assert exact.forward(0.0, 30).is_exact
    assert exact.gradient(math.inf, 2.0, 30) == Enclosure(Fraction(0), Fraction(0))
    assert exact.gradient(0.0, 2.0, 30) == Enclosure(Fraction(2), Fraction(2))
    assert exact.gradient(5.0, 0.0, 30) == Enclosure(Fraction(0), Fraction(0))
    with pytest.raises(ValueError, match="NaN"):
        exact.forward(math.nan, 30)
    with pytest.raises(ValueError, match="NaN"):
        exact.gradient(math.nan, 1.0, 30)
    with pytest.raises(ValueError, match="upstream gradient"):
        exact.gradient(1.0, math.inf, 30)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("exponent", [20, 30, 60, 120])
def test_a_midpoint_input_rounds_toward_zero_at_any_cap(dtype: torch.dtype, exponent: int) -> None:
    """y = x * (1 - z² / 3 + ...) lies below the midpoint x by a relative 2**(-2 * exponent): up to 240 bits down."""
    step = 2.0 ** (1 - format_of(dtype).precision)
    for start in (1.0, 1.0 + step):
        middle = start + step / 2
        assert exact.round_forward(middle, 2.0**exponent, dtype) == start
        assert exact.round_forward(-middle, 2.0**exponent, dtype) == -start
        assert exact.round_gradient(1e-3, middle, 2.0**exponent, dtype) == start


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("x", [100.0, 1e6, 1e30, 3e38])
def test_a_midpoint_cap_rounds_down_when_saturated(dtype: torch.dtype, x: float) -> None:
    step = 2.0 ** (1 - format_of(dtype).precision)
    for start in (1.0, 1.0 + step):
        assert exact.round_forward(x, start + step / 2, dtype) == start
        assert exact.round_forward(math.inf, start + step / 2, dtype) == (
            start if start == 1.0 else start + step
        )


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_nothing_hangs_far_out_or_close_in(dtype: torch.dtype) -> None:
    began = time.perf_counter()
    for x, cap in ((1e30, 1e-30), (3e38, 2.0**-60), (2.0**-149, 2.0**120), (1e-40, 1.0), (3e38, 1.0)):
        y = exact.round_forward(x, cap, dtype)
        assert abs(y) <= max(cap * 1.01, format_of(dtype).smallest)
        assert 0.0 <= exact.round_gradient(x, 1.0, cap, dtype) <= 1.0
        assert exact.describe(x, cap)
        assert exact.describe(x, cap, 1.0)
    assert time.perf_counter() - began < 2.0


def test_zeros_keep_their_sign() -> None:
    assert math.copysign(1, exact.round_forward(-0.0, 30, torch.float32)) == -1
    assert math.copysign(1, exact.round_forward(-(2.0**-149), 30, torch.float16)) == -1
    assert math.copysign(1, exact.round_gradient(math.inf, -1.0, 30, torch.float32)) == -1


def test_rounding_is_the_nearest_of_three() -> None:
    for x in (0.3, 1.7, 29.0, 61.0, 250.0):
        y = exact.forward(x, 30.0, 200)
        got = exact.round_forward(x, 30.0, torch.float32)
        beside = [neighbour(torch.tensor(got), step).item() for step in (-1, 1)]
        assert all(abs(y.lo - Fraction(got)) < abs(y.lo - Fraction(other)) for other in beside)


def test_an_unanswerable_question_ends() -> None:
    with pytest.raises(ArithmeticError, match="undecided"):
        exact.decide(lambda bits: Enclosure(Fraction(0), Fraction(1, bits)), lambda value: None)


def test_enclosure_questions() -> None:
    just_below_two = Enclosure(Fraction(3, 2), Fraction(2))
    assert just_below_two.binade() == 0
    assert Enclosure(Fraction(-2), Fraction(-3, 2)).binade() == 0
    assert Enclosure(Fraction(3, 2), Fraction(5, 2)).binade() is None
    assert Enclosure(Fraction(2), Fraction(2)).binade() == 1
    assert Enclosure(Fraction(0), Fraction(1)).binade() is None
    assert [just_below_two.below(Fraction(n)) for n in (1, 2)] == [False, True]
    assert just_below_two.below(Fraction(7, 4)) is None
    assert Enclosure(Fraction(2), Fraction(2)).below(Fraction(2)) is False


def test_decimals_agree_with_known_digits() -> None:
    assert exact.decimal(1.0, 1.0) == "0.76159415595576488812"
    assert exact.decimal(-1.0, 1.0) == "-0.76159415595576488812"
    assert exact.decimal(1.0, 1.0, 1.0) == "0.41997434161402606939"
    assert exact.decimal(1.0, 1.0, digits=5) == "0.76159"
    assert exact.decimal(1e9, 30.0) == "30.000000000000000000"
    assert exact.decimal(0.0, 30.0) == "0"
    assert exact.decimal(math.nan, 30.0) == "nan"
    assert exact.decimal(1.0, 30.0, math.inf) == "inf"
    assert exact.decimal(1e9, 1.0, 1.0) == "0 (below 2^-8000 of grad_y)"


def test_a_saturated_cap_on_a_decimal_tie_rounds_down() -> None:
    assert Fraction(2) ** -30 == Fraction("9.31322574615478515625e-10")
    assert exact.decimal(1e30, 2.0**-30) == "9.3132257461547851562e-10"


def test_describe_adds_the_nearest_fp64() -> None:
    text = exact.describe(1.0, 1.0)
    assert text == f"0.76159415595576488812 ({float(Fraction('0.76159415595576488812')).hex()})"
