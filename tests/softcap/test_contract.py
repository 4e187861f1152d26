"""The cap is the FP32 value nearest to any real number, and nothing else is taken."""

from __future__ import annotations

import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from softcap.contract import check_cap, check_input

TWO = Fraction(2)
LARGEST = (2**24 - 1) * 2**104  # of the finite FP32 numbers


def to_fp32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


@pytest.mark.parametrize(
    ("given_value", "want"),
    [
        (30, 30.0),
        (30.0, 30.0),
        (np.float16(20), 20.0),
        (np.float32(7.3), float(np.float32(7.3))),
        (np.float64(7.3), float(np.float32(7.3))),
        (np.int64(50), 50.0),
        (np.uint8(1), 1.0),
        (Fraction(1, 3), 11184811 * 2.0**-25),
        (2**24 + 1, 2.0**24),
        (2**24 + 3, 2.0**24 + 4),
        (TWO**-149, 2.0**-149),
        (TWO**-150 * Fraction(3), 2.0**-148),
        (TWO**-150 + TWO**-400, 2.0**-149),
        (LARGEST, float(LARGEST)),
        (LARGEST + 2**103 - 1, float(LARGEST)),
    ],
)
def test_cap_is_rounded_once_to_nearest_even(given_value: object, want: float) -> None:
    got = check_cap(given_value)
    assert (type(got), got) == (float, want)


def test_longdouble_is_not_rounded_through_fp64() -> None:
    # Just above a tie of FP32 by less than FP64 can tell.
    value = np.longdouble(1) + np.ldexp(np.longdouble(1), -24) + np.ldexp(np.longdouble(1), -60)
    if float(value) == value:
        pytest.fail("this platform's long double is FP64: the test proves nothing here")
    assert check_cap(value) == 1 + 2.0**-23


@given(st.floats(min_value=2.0**-149, max_value=float(LARGEST)))
def test_float_caps_round_like_the_hardware(value: float) -> None:
    assert check_cap(value) == to_fp32(value)


@pytest.mark.parametrize(
    "value",
    [0, 0.0, -0.0, -1, -30.0, float("nan"), float("inf"), float("-inf"), 1e-60, TWO**-150, 1e39, LARGEST + 2**103,
     10**400, Fraction(-1, 3), np.float32("nan"), np.longdouble("inf"), np.float64(1e300)],
)  # fmt: skip
def test_numbers_that_are_no_cap_are_refused_with_the_value(value: object) -> None:
    with pytest.raises(ValueError, match="finite and positive") as caught:
        check_cap(value)
    assert repr(value)[:20] in str(caught.value)


@pytest.mark.parametrize(
    "value", [True, False, np.True_, None, "30", 1j, [30], np.ones(1), torch.tensor(30.0)]
)
def test_what_is_no_real_number_is_refused_with_the_value(value: object) -> None:
    with pytest.raises(ValueError, match="must be a real number") as caught:
        check_cap(value)
    assert repr(value) in str(caught.value)


def test_an_integer_too_long_to_print_is_refused() -> None:
    with pytest.raises(ValueError, match="rounds to infinity"):
        check_cap(10**5000)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool, torch.complex64])
def test_other_dtypes_are_refused_by_name(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=rf"{dtype}; accepted: torch.float16, torch.bfloat16, torch.float32"):
        check_input(torch.zeros(2, dtype=dtype))


@pytest.mark.parametrize("value", [3.0, None, np.zeros(2, np.float32)])
def test_what_is_no_tensor_is_refused_by_type(value: object) -> None:
    with pytest.raises(TypeError, match=f"got {type(value).__name__}"):
        check_input(value)
