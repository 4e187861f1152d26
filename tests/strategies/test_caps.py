"""The cap families: judged, deterministic, and what each claims."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.caps import (
    BAD_CAPS,
    CAPS,
    HIGHEST,
    LOWEST,
    Cap,
    as_fp32,
    bad_numbers,
    cap_text,
    fp32_bits,
)

NUMBERS = range(60)


def family(name: str) -> list[Cap]:
    return [CAPS[name](5, number) for number in NUMBERS]


@pytest.mark.parametrize("name", CAPS)
def test_caps_are_judged_plain_and_the_same_again(name: str) -> None:
    caps = family(name)
    assert caps == family(name)
    assert all(LOWEST <= as_fp32(cap) <= HIGHEST for cap in caps)
    assert all(type(cap) in (int, float) for cap in caps)
    assert len(set(caps)) >= 8
    assert CAPS[name].__doc__ is not None
    assert "breaks" in str(CAPS[name].__doc__)


def test_each_family_is_what_its_name_says() -> None:
    assert {20.0, 30.0, 50.0, 1.0} <= set(family("models"))
    assert {2**24, 2**24 + 1, 30} <= set(family("integers"))
    assert all(type(cap) is int for cap in family("integers"))
    assert all(math.frexp(cap)[0] == 0.5 for cap in family("powers_of_two"))
    for cap in family("neighbours"):
        assert any(math.frexp(np.nextafter(np.float32(cap), np.float32(to)))[0] == 0.5 for to in (0, np.inf))
    for cap in [*family("unrepresentable"), *family("all_digits"), *family("odd_last_bit")]:
        kept = torch.tensor(cap, dtype=torch.float32)
        assert kept.to(torch.bfloat16).to(torch.float32) != kept
        assert kept.to(torch.float16).to(torch.float32) != kept
    assert all(fp32_bits(cap) & 1 and cap > 1000 for cap in family("odd_last_bit"))
    assert all(as_fp32(cap) != cap for cap in family("doubles"))
    assert min(family("tiny")) < 2.0**-50
    assert max(family("huge")) > 2.0**50
    assert CAPS["tiny"](9, 0) == LOWEST
    assert CAPS["huge"](9, 0) == HIGHEST
    exponents = [math.frexp(cap)[1] for cap in family("log_uniform")]
    assert min(exponents) < -30
    assert max(exponents) > 30


@settings(deadline=None, max_examples=300)
@given(
    st.integers(1, 2**127) | st.integers(2**53, 2**60) | st.integers(1, 2**40).map(lambda n: (n << 60) | 1)
)
def test_an_integer_is_rounded_once(cap: int) -> None:
    got = Fraction(as_fp32(cap))
    below = np.nextafter(np.float32(as_fp32(cap)), np.float32(0))
    above = np.nextafter(np.float32(as_fp32(cap)), np.float32(np.inf))
    assert abs(got - cap) <= min(abs(Fraction(float(below)) - cap), abs(Fraction(float(above)) - cap))


def test_an_integer_that_two_roundings_get_wrong() -> None:
    cap = 2**60 + 2**36 + 1  # FP64 drops the 1, and the tie then goes to even: 2^60
    assert as_fp32(cap) == 2.0**60 + 2.0**37
    assert as_fp32(float(cap)) == 2.0**60


@pytest.mark.parametrize(
    "cap", [cap for cap in BAD_CAPS if isinstance(cap, (int, float))], ids=lambda c: str(c)[:8]
)
def test_bad_numbers_are_refused_with_the_value(cap: Cap) -> None:
    with pytest.raises(ValueError, match="cap is"):
        as_fp32(cap)


def test_bad_caps_cover_every_kind() -> None:
    kinds = {type(cap) for cap in BAD_CAPS}
    assert kinds >= {int, float, bool, type(None), str, list, torch.Tensor, np.ndarray}
    numbers = [cap for cap in BAD_CAPS if type(cap) in (int, float)]
    assert {0, -1, 1e-60, 1e39, math.inf, -math.inf} <= set(numbers)
    assert any(math.isnan(cap) for cap in numbers if isinstance(cap, float))


@pytest.mark.parametrize(
    ("cap", "text"),
    [
        (30, "30"),
        (30.0, "30"),
        (30.1, "30.1"),
        (1e16, "1e+16"),
        (2**60, str(2**60)),
        (2.0**-60, repr(2.0**-60)),
    ],
)
def test_a_cap_is_written_in_one_way_and_reads_back(cap: Cap, text: str) -> None:
    assert cap_text(cap) == text
    assert float(cap_text(cap)) == float(cap)


@pytest.mark.parametrize("seed", [0, 7])
def test_bad_numbers_lie_in_every_binade_and_none_is_a_cap(seed: int) -> None:
    numbers = bad_numbers(seed)
    negative = [math.frexp(-number)[1] for number in numbers if number < 0]
    assert negative == list(range(-148, 129))
    assert all(number > 0 for number in numbers[len(negative) :])
    for number in numbers:
        with pytest.raises(ValueError, match="finite and positive"):
            as_fp32(number)
    assert bad_numbers(seed) == numbers != bad_numbers(seed + 1)
