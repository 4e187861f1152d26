"""The formats: one rounding, against exact rational arithmetic and against torch's own FP32 cast."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.dtypes import DTYPES, FORMATS, TORCH, encode, from_bits, name, ordinal, to_bits


def value_of(bits: int, dtype: str) -> Fraction:
    """The number that a finite magnitude pattern stands for, from the definition of the format."""
    form = FORMATS[dtype]
    exponent, fraction = divmod(bits, form.smallest_normal)
    significand = fraction + (form.smallest_normal if exponent else 0)
    return Fraction(significand) * Fraction(2) ** (max(exponent, 1) - 1 + form.emin - form.digits + 1)


def nearest(value: float, dtype: str) -> int:
    """The magnitude pattern nearest to a positive number, ties to the even pattern: by search, not by shifts."""
    form = FORMATS[dtype]
    low, high = 0, form.infinity  # as if infinity were the next number of the format: IEEE's overflow rule
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if value_of(middle, dtype) <= Fraction(value) else (low, middle)
    below, above = Fraction(value) - value_of(low, dtype), value_of(high, dtype) - Fraction(value)
    return low if below < above or (below == above and low % 2 == 0) else high


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_encode_rounds_once_to_nearest_even(dtype: str, data: st.DataObject) -> None:
    bits = data.draw(st.integers(0, FORMATS[dtype].largest))
    beside = data.draw(st.sampled_from([0, 1, -1])) * Fraction(1, 2**20)
    middle = (value_of(bits, dtype) + value_of(bits + 1, dtype)) / 2
    value = data.draw(st.just(abs(float(middle * (1 + beside)))) | st.floats(0.0, 1e39))
    assert ordinal(value, dtype) == nearest(value, dtype)
    assert ordinal(-value, dtype) == nearest(value, dtype) + FORMATS[dtype].sign


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_16_bit_number_and_a_walk_over_fp32_encode_to_themselves(dtype: str) -> None:
    bits = torch.arange(0, FORMATS[dtype].infinity, 1 if FORMATS[dtype].width == 16 else 999_983)
    exact = from_bits(bits, dtype).to(torch.float64)
    assert torch.equal(encode(exact, dtype), bits)
    assert torch.equal(encode(-exact, dtype), bits + FORMATS[dtype].sign)


def test_encode_to_fp32_agrees_with_the_cast_of_torch() -> None:
    words = torch.arange(-200_000, 200_000) * 46_116_860_184_273
    exact = words.view(torch.float64)
    exact = exact[exact.isfinite()]
    assert torch.equal(encode(exact, "fp32"), to_bits(exact.to(torch.float32)))


def test_a_tie_that_a_detour_through_fp32_gets_wrong() -> None:
    above_the_tie = 1.0 + 2.0**-8 + 2.0**-40  # FP32 drops the last term, and the tie then goes to even: 1.0
    assert ordinal(above_the_tie, "bf16") == ordinal(1.0, "bf16") + 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_overflow_and_underflow(dtype: str) -> None:
    form = FORMATS[dtype]
    assert ordinal(math.inf, dtype) == form.infinity
    assert ordinal(1e300, dtype) == form.infinity
    assert ordinal(5e-324, dtype) == 0
    assert ordinal(-0.0, dtype) == form.sign
    assert from_bits(torch.tensor([form.largest]), dtype).item() == torch.finfo(TORCH[dtype]).max
    assert from_bits(torch.tensor([1]), dtype).item() == torch.finfo(TORCH[dtype]).smallest_normal * 2.0 ** (
        1 - form.digits
    )
    assert bool(from_bits(torch.tensor([form.quiet_nan]), dtype).isnan().all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_survive_the_way_there_and_back(dtype: str) -> None:
    top = (1 << FORMATS[dtype].width) - 1
    bits = torch.arange(0, top + 1, 1 if top < 1 << 16 else 7_654_321)
    assert torch.equal(to_bits(from_bits(bits, dtype)), bits)
    assert to_bits(from_bits(torch.tensor([[top]]), dtype)).tolist() == [[top]]


def test_names() -> None:
    assert {name(dtype): dtype for dtype in TORCH.values()} == TORCH
    with pytest.raises(ValueError, match=r"torch\.float64: accepted are torch\.float16"):
        name(torch.float64)
