"""What FP64 leaves open is asked of the exact oracle, and both give the answer of the definition."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from oracles.intervals import Band, exactly_below, exactly_within, possibly_within, surely_within
from oracles.margins import Margin, margin_of
from oracles.rounding import neighbour, round_exact
from oracles.tolerances import load_contract
from oracles.truth import Truth
from oracles.ulp import spacing

GENERATOR = torch.Generator().manual_seed(21)


def by_definition(
    truth: Truth, index: int, got: float, dtype: torch.dtype, margin: Margin, direct: bool
) -> bool:
    """The rule in plain rational arithmetic on 1,000 bits of the exact value."""
    value = truth.exact(index, 1000).lo
    floor = margin.floor.expand(truth.x.shape)[index].item()
    width = Fraction(floor)
    for units, kind in margin.spacings:
        width += Fraction(units) * Fraction(
            spacing(torch.tensor(float(value), dtype=torch.float64), kind).item()
        )
    if direct:
        return abs(Fraction(got) - value) <= width
    return round_exact(value - width, dtype) <= got <= round_exact(value + width, dtype)


@pytest.mark.parametrize("rule", ["ulp", "chain"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_all_ways_agree_with_the_definition(rule: str, backward: bool, dtype: torch.dtype) -> None:
    x = (torch.randn(12, generator=GENERATOR) * 40).to(dtype)
    truth = Truth.of(x, 30, torch.randn(12, generator=GENERATOR) if backward else None)
    margin, direct = margin_of(rule, truth, load_contract()), not backward and dtype == torch.float32
    band = Band.around(truth.value, truth.error, margin, margin.floor.expand(12))
    for steps in range(-9, 10):
        got = neighbour(truth.rounded(dtype), steps)
        surely, possibly = surely_within(got, band, direct), possibly_within(got, band, direct)
        for i, value in enumerate(got.tolist()):
            want = by_definition(truth, i, value, dtype, margin, direct)
            floor = margin.floor.expand(12)[i].item()
            assert exactly_within(truth, i, value, dtype, margin, floor, direct) == want
            assert surely[i] <= want <= possibly[i]


def test_an_edge_that_only_the_exact_oracle_can_tell() -> None:
    """Saturated, y lies below c by less than any FP64: c - 6 ulp is accepted, c + 6 ulp is not once that is near."""
    truth = Truth.of(torch.tensor([1200.0, 1500.0, 1560.0]), 30)
    margin = margin_of("ulp", truth, load_contract())
    band = Band.around(truth.value, truth.error, margin, margin.floor.expand(3))
    for steps, want in ((-6, [True] * 3), (6, [False, False, True])):
        got = neighbour(torch.full((3,), 30.0), steps)
        assert not surely_within(got, band, True).any()
        assert possibly_within(got, band, True).all()
        floor = margin.floor.item()
        assert [
            exactly_within(truth, i, got[i].item(), got.dtype, margin, floor, True) for i in range(3)
        ] == want


def test_below_a_limit() -> None:
    truth = Truth.of(torch.tensor([2.0**-126, neighbour(torch.tensor(2.0**-126), 1).item(), 0.0]), 2.0**20)
    assert [exactly_below(truth, i, 2.0**-126) for i in range(3)] == [True, False, True]
