"""The formats, and the cap as FP32."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from oracles.formats import FORMATS, cap_as_fp32, floor_log2, format_of


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_format_agrees_with_finfo(dtype: torch.dtype) -> None:
    fmt, info = format_of(dtype), torch.finfo(dtype)
    assert 2.0 ** (1 - fmt.precision) == info.eps
    assert 2.0**fmt.emin == info.tiny
    assert (
        fmt.smallest
        == torch.tensor(1, dtype=torch.int32 if info.bits == 32 else torch.int16).view(dtype).item()
    )
    assert fmt.overflow == Fraction(info.max) + Fraction(2) ** (fmt.emax + 1 - fmt.precision)


def test_unknown_dtype_is_named() -> None:
    with pytest.raises(TypeError, match=r"torch\.float64.*torch\.bfloat16"):
        format_of(torch.float64)


@pytest.mark.parametrize("cap", [1, 30, 7.3, 0.1, 2**60 + 1, 16777217, 16777219, 2.0**-149, 3.4e38])
def test_cap_is_the_nearest_fp32(cap: float) -> None:
    want = torch.tensor(cap, dtype=torch.float64).to(torch.float32).item()
    assert cap_as_fp32(cap) == want


def test_integer_cap_is_rounded_once() -> None:
    just_above_a_tie = 2**60 + 2**36 + 1  # through FP64 this is the tie itself, which goes to even, down
    assert cap_as_fp32(just_above_a_tie) == 2.0**60 + 2.0**37


@pytest.mark.parametrize("cap", [0, -1, 0.0, math.nan, math.inf, -math.inf, 1e-60, 1e39, 10**400])
def test_impossible_cap_is_shown(cap: float) -> None:
    with pytest.raises(ValueError, match="finite and positive") as error:
        cap_as_fp32(cap)
    assert repr(cap) in str(error.value)


@pytest.mark.parametrize(
    ("value", "want"),
    [(Fraction(1), 0), (Fraction(3, 2), 0), (Fraction(2), 1), (Fraction(1, 3), -2), (Fraction(7, 8), -1)],
)
def test_floor_log2(value: Fraction, want: int) -> None:
    assert floor_log2(value) == want
    assert floor_log2(value * Fraction(2) ** -700) == want - 700
