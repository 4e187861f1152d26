"""Caps of a campaign: in their range, the same again, of every family; and the simple ones that stand for them."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from strategies.campaign import (
    CAMPAIGN,
    CapRange,
    bf16_caps,
    cap_of_bits,
    draw,
    near,
    near_round,
    numbered,
    spread,
)
from strategies.caps import HIGHEST, LOWEST, Cap, as_fp32, fp32_bits
from strategies.cases import caps, drawn
from strategies.simplest import near_cap, read_spelled, simplest_cap, spell
from strategies.stratified import stratified

RANGES = [
    CapRange(),
    CapRange(1.0, 100.0),
    CapRange(2.0**-80, 2.0**-70),
    CapRange(30.0, 30.0),
    CapRange(1.5, 1.75),
]


@pytest.mark.parametrize("within", RANGES, ids=str)
def test_draws_stay_in_their_range_and_come_again(within: CapRange) -> None:
    first = [draw(within, 7, number) for number in range(200)]
    assert first == [draw(within, 7, number) for number in range(200)]
    assert all(cap in within for _, cap in first)
    assert all(near(cap, within, 7, number) in within for number, (_, cap) in enumerate(first))
    assert {name for name, _ in first} <= set(CAMPAIGN)


def test_each_family_gets_its_turn_and_is_what_it_says() -> None:
    seen: dict[str, list[Cap]] = {}
    for number in range(400):
        name, cap = draw(CapRange(), 1, number)
        seen.setdefault(name, []).append(cap)
    assert set(seen) == set(CAMPAIGN)
    assert all(type(cap) is int and 1 <= cap <= 2**24 for cap in seen["integers"])
    assert min(seen["integers"]) < 16
    assert max(seen["integers"]) > 2**20
    assert all(math.frexp(cap)[0] == 0.5 for cap in seen["powers_of_two"])
    for cap in seen["unrepresentable"]:
        kept = torch.tensor(cap, dtype=torch.float32)
        assert fp32_bits(cap) & 1
        assert kept.to(torch.bfloat16).float() != kept
        assert kept.to(torch.float16).float() != kept
    assert max(seen["tiny"]) < 2.0**-19
    assert min(seen["huge"]) > 2.0**19
    assert all(float(f"{as_fp32(cap):.4g}") == cap for cap in seen["decimals"])
    assert all("breaks" in str(family.__doc__) for family in CAMPAIGN.values())


def test_ranges_are_fp32_numbers_in_order() -> None:
    for low, high in ((2.0, 1.0), (0.1, 1.0), (0.0, 1.0), (1.0, math.inf)):
        with pytest.raises(ValueError, match="cap"):
            CapRange(low, high)


def test_every_bf16_cap_is_listed() -> None:
    listed = bf16_caps(CapRange())
    assert len(listed) == 120 * 128 + 1
    assert (listed[0], listed[-1]) == (LOWEST, HIGHEST)
    kept = torch.tensor(listed, dtype=torch.float64)
    assert torch.equal(kept.to(torch.bfloat16).double(), kept)
    assert bf16_caps(CapRange(1.0, 1.0)) == [1.0]


def test_hypothesis_draws_a_list() -> None:
    some = drawn(caps(min_value=1.0, max_value=64.0), examples=30, seed=5)
    assert 10 < len(some) <= 30
    assert all(1 <= cap <= 64 for cap in some)
    assert len({(type(cap), cap) for cap in some}) == len(some)


@pytest.mark.parametrize(
    ("cap", "name"),
    [(30.0, "30"), (30, "30"), (as_fp32(17.3), "17.3"), (2.0**-41, "2^-41"), (2**24, "2^24"), (2**24 + 1, "16777217"),
     (as_fp32(1000.3), "1000.3"), (2.0**40, "2^40"), (cap_of_bits(fp32_bits(2.0**40) + 1), "2^40+step"),
     (math.nextafter(30.0, 31.0), "30.000000000000004")],
)  # fmt: skip
def test_names_are_the_shortest(cap: Cap, name: str) -> None:
    assert spell(cap) == name


@pytest.mark.parametrize(
    ("cap", "fails", "want"),
    [
        (3.3e-15, lambda c: c < 2.0**-40, 2.0**-41),
        (2.0**33, lambda c: math.frexp(c)[0] == 0.5, 1.0),
        (123457, lambda c: isinstance(c, int) and c > 2048, 2049),
        (123457, lambda c: c > 2048, 2049.0),
        (30.7, lambda c: 30 < c < 31, 30.1),
        (83886.3, lambda c: c > 1000 and bool(fp32_bits(c) & 1), 1000.3),
        (12.345, lambda c: False, 12.345),
    ],
)
def test_the_simplest_cap_that_fails(cap: Cap, fails, want: Cap) -> None:  # type: ignore[no-untyped-def]
    start = as_fp32(cap) if isinstance(cap, float) else cap
    calls: list[Cap] = []

    def counted(other: Cap) -> bool:
        calls.append(other)
        return bool(fails(other))

    found = simplest_cap(start, counted, CapRange(), budget=150)
    assert found == as_fp32(want)
    assert len(calls) <= 150
    assert all(other in CapRange() for other in calls)


def test_a_dear_predicate_is_called_seldom() -> None:
    calls: list[Cap] = []

    def fails(cap: Cap) -> bool:
        calls.append(cap)
        return cap > 2.0**30

    assert near_cap(7.0e16, fails, CapRange(), budget=16) == 2.0**31
    assert len(calls) <= 16
    assert near_cap(12.3456, lambda cap: 12.3 < cap < 12.4, CapRange(), budget=16) == as_fp32(12.3)
    assert near_cap(12.3456, lambda cap: False, CapRange(), budget=4) == 12.3456


@pytest.mark.parametrize("cap", [1.0, 2.0**-100, 2.0**100])
def test_a_stratified_sample_leaves_no_binade_out(cap: float) -> None:
    some = stratified(cap, 3, 1 << 14)
    assert torch.equal(some, some.sort().values)
    assert some.unique().numel() == some.numel() >= 1 << 14
    finite = some[some < 0x7F800000]
    assert set((finite >> 23).unique().tolist()) == set(range(255))
    assert not torch.equal(some, stratified(cap, 4, 1 << 14))


def test_the_parts_of_a_campaign_share_the_numbers_and_each_has_every_family() -> None:
    for of in (1, 2, 10):
        parts = [[numbered(n, mine, of) for n in range(40)] for mine in range(1, of + 1)]
        assert sorted(n for part in parts for n in part) == list(range(40 * of))
        for part in parts:
            assert {n % len(CAMPAIGN) for n in part} == set(range(len(CAMPAIGN)))


@pytest.mark.parametrize("size", [0, 1, 2, 3, 33, 1000])
def test_each_beginning_of_a_spread_order_is_spread_over_all(size: int) -> None:
    order = spread(range(size))
    assert sorted(order) == list(range(size))
    for length in (length for length in (4, 16, 64, 256) if length <= size):
        ends = [-1, *sorted(order[:length]), size]
        assert max(b - a for a, b in pairwise(ends)) <= 4 * size / length


def test_values_that_people_use_come_first_and_then_their_neighbours() -> None:
    everywhere = CapRange()
    first = [near_round(everywhere, 3, number) for number in range(0, 512, 2)]
    assert set(first) == {n / 2 for n in range(1, 257)}
    assert {1.0, 16.0, 20.0, 30.0, 48.0, 50.0, 100.0} <= set(first[:40])
    later = [near_round(everywhere, 3, number) for number in range(512, 8192, 2)]
    assert all(abs(cap / value - 1) <= 0.0101 for cap, value in zip(later, first * 15, strict=True))
    assert sum(47.9 <= cap <= 48.1 for cap in later) > 2
    beside = [near_round(everywhere, 3, number) for number in range(1, 33, 2)]
    everyday = (1, 10, 100, 30, 50, 20, 1000, 0.1, 25, 5, 2, 15, 0.01, 0.5, 10000, 0.001)
    assert all(0 < abs(cap / value - 1) <= 0.0101 for cap, value in zip(beside, everyday, strict=True))
    soon = [near_round(everywhere, seed, number) for seed in range(20) for number in range(1, 201, 2)]
    assert sum(0.1 < cap < 0.1001 for cap in soon) >= 20  # of 20 campaigns
    assert near_round(CapRange(200.0, 300.0), 3, 0) is None


@pytest.mark.parametrize("within", RANGES, ids=str)
def test_each_spelling_is_read_again(within: CapRange) -> None:
    for number in range(300):
        cap = as_fp32(draw(within, 5, number)[1])
        assert read_spelled(spell(cap)) == cap


@pytest.mark.parametrize(
    ("text", "value"),
    [("2^-60", 2.0**-60), ("2^60", 2.0**60), ("2^10+step", 1024.0 + 2.0**-13), ("2^10-step", 1024.0 - 2.0**-14),
     ("0x1.8p3", 12.0), ("1e-3", as_fp32(1e-3)), ("30", 30.0), ("2^-149", 2.0**-149)],
)  # fmt: skip
def test_how_a_cap_may_be_spelled(text: str, value: float) -> None:
    assert read_spelled(text) == value


@pytest.mark.parametrize(
    "text",
    ["2^128", "2^999", "2^-150", "2^", "2^1.5", "3^2", "2^3step", "", " 1", "1_0", "nan", "-1", "2^0x1"],
)
def test_what_spells_no_cap(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_spelled(text)
