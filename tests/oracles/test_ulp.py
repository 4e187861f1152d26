"""Spacings and distances."""

from __future__ import annotations

import math

import pytest
import torch

from oracles.formats import FORMATS, format_of
from oracles.rounding import from_bits, neighbour
from oracles.ulp import distance, spacing


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_spacing_is_the_gap_to_the_next_value(dtype: torch.dtype) -> None:
    top = torch.finfo(dtype).max
    bits = torch.arange(0x7C00) if dtype == torch.float16 else torch.arange(0x7F80)
    values = from_bits(bits if dtype != torch.float32 else bits << 16, dtype)
    above = neighbour(values, 1)
    gap = (above.double() - values.double())[values.double() < top]
    assert torch.equal(spacing(values.double(), dtype)[values.double() < top], gap)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_spacing_below_the_normals_and_beyond_the_end(dtype: torch.dtype) -> None:
    fmt = format_of(dtype)
    small = torch.tensor([0.0, -0.0, 1e-300, fmt.smallest / 3, 2.0 ** (fmt.emin - 1)], dtype=torch.float64)
    assert spacing(small, dtype).tolist() == [fmt.smallest] * 5
    ends = spacing(torch.tensor([math.inf, math.nan, 1e300], dtype=torch.float64), dtype)
    assert ends.isfinite().all()


def test_spacing_changes_at_a_power_of_two() -> None:
    value = torch.tensor([math.nextafter(1.0, 0.0), 1.0], dtype=torch.float64)
    assert spacing(value, torch.float32).tolist() == [2.0**-24, 2.0**-23]


def test_distance_counts_ulps_of_the_exact_value() -> None:
    exact = torch.tensor([1.0, 1.0, -3.0], dtype=torch.float64)
    got = torch.tensor([1.0 + 2.0**-23, 1.0, -3.0 - 2.0**-20])
    assert distance(got, exact).tolist() == [1.0, 0.0, 4.0]
    assert distance(got, exact, torch.bfloat16)[0] == 2.0**-16


def test_distance_of_special_values() -> None:
    got = torch.tensor([math.nan, math.inf, math.nan, 1.0, math.inf, -math.inf])
    exact = torch.tensor([math.nan, math.inf, 1.0, math.nan, 1.0, math.inf], dtype=torch.float64)
    assert distance(got, exact).tolist() == [0.0, 0.0, math.inf, math.inf, math.inf, math.inf]


def test_an_exact_value_is_fp64() -> None:
    with pytest.raises(TypeError, match="float32"):
        spacing(torch.ones(1), torch.float16)
