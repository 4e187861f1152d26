"""Acceptance: correct rounding passes for every 16-bit input, and what is wrong by a little is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from oracles.acceptance import RULES, Acceptance, accept
from oracles.rounding import from_bits, neighbour, round_once
from oracles.truth import Truth

CAPS = [1, 7.3, 20, 30, 50, 2.0**-60, 2.0**60]
SIXTEEN = [torch.float16, torch.bfloat16]
ALL = torch.arange(1 << 16)
GENERATOR = torch.Generator().manual_seed(31)


def upstream(kind: str) -> Tensor | None:
    if kind == "forward":
        return None
    return torch.ones(1 << 16) if kind == "ones" else torch.randn(1 << 16, generator=GENERATOR)


@pytest.mark.parametrize("kind", ["forward", "ones", "random"])
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_correct_rounding_is_accepted_for_every_input(dtype: torch.dtype, cap: float, kind: str) -> None:
    truth = Truth.of(from_bits(ALL, dtype), cap, upstream(kind))
    for out in {dtype, torch.float32} if kind == "forward" else {dtype}:
        got = truth.rounded(out)
        for rule in RULES:
            outcome = accept(rule, got, truth)
            assert outcome.all_ok
            assert not outcome.flushed.any()
        if kind == "forward":
            assert outcome.error.max() <= 0.5


@pytest.mark.parametrize("cap", CAPS)
def test_correct_rounding_is_accepted_in_fp32(cap: float) -> None:
    bits = torch.randint(-(2**31), 2**31, (1 << 15,), generator=GENERATOR)
    x, g = from_bits(bits, torch.float32), torch.randn(1 << 15, generator=GENERATOR)
    for truth in (Truth.of(x, cap), Truth.of(x, cap, g)):
        got = truth.rounded(torch.float32)
        assert all(accept(rule, got, truth).all_ok for rule in RULES)
        assert accept("ulp", got, truth).error.max() <= 1.0


@pytest.mark.parametrize("cap", [1, 7.3, 30])
@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_one_step_off_is_refused_in_16_bits(dtype: torch.dtype, cap: float) -> None:
    x = from_bits(ALL, dtype)
    truth = Truth.of(x, cap)
    right = truth.rounded(dtype)
    for steps in (-1, 1):
        outcome = accept("ulp", neighbour(right, steps), truth)
        wide = x.isfinite() & (
            x.double().abs() > 2.0**-12
        )  # far from the subnormals, where c * 2**-149 counts
        # a neighbour may be accepted only beside a midpoint: 6 FP32 ulp are 2**-13 or 2**-10 of half a spacing
        assert outcome.ok[wide].double().mean() < 0.01


def test_seven_ulp_are_refused_and_five_accepted_in_fp32() -> None:
    truth = Truth.of(torch.randn(2000, generator=GENERATOR) * 40, 30)
    right = truth.rounded(torch.float32)
    for steps in (-5, 5):
        assert accept("ulp", neighbour(right, steps), truth).all_ok
    inner = (truth.value.abs().log2() % 1 - 0.5).abs() < 0.49  # an ulp is another one across a power of two
    for steps in (-7, 7):
        assert not accept("ulp", neighbour(right, steps), truth).ok[inner].any()


def test_eight_units_are_refused_and_five_accepted_in_gradients() -> None:
    g = torch.randn(2000, generator=GENERATOR)
    truth = Truth.of(torch.randn(2000, generator=GENERATOR) * 40, 30, g)
    unit = 2.0**-24 * g.double().abs()
    for units, want in ((5, True), (-5, True), (8.1, False), (-8.1, False)):
        got = round_once(truth.value + units * unit, torch.float32)
        outcome = accept("ulp", got, truth)
        assert bool(outcome.ok.all()) is want
        assert want or not outcome.ok.any()
        assert ((outcome.error - abs(units)).abs() < 1.01).all()  # one rounding of got


def wrong(name: str, x: Tensor, cap: float) -> Tensor:
    z = x / cap
    if name == "identity":
        return x
    if name == "sigmoid":
        return cap * (2 * torch.sigmoid(2 * z) - 1)
    e = torch.exp(2 * z)
    return cap * (e - 1) / (e + 1)


@pytest.mark.parametrize("name", ["identity", "sigmoid", "quotient"])
def test_wrong_formulas_are_refused(name: str) -> None:
    x = torch.tensor([1e-4, 3e-3, 1.0, 1400.0])
    outcome = accept("ulp", wrong(name, x, 30.0), Truth.of(x, 30))
    assert not outcome.all_ok


def test_the_formula_itself_is_accepted() -> None:
    x = torch.randn(1 << 15, generator=GENERATOR) * torch.logspace(-12, 3, 1 << 15)
    g = torch.randn(1 << 15, generator=GENERATOR)
    t = torch.tanh(x / 30)
    assert accept("ulp", 30 * t, Truth.of(x, 30)).all_ok
    assert accept("ulp", g * (1 - t * t), Truth.of(x, 30, g)).all_ok
    assert accept("specification", (30 * t).half(), Truth.of(x, 30)).all_ok


@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_a_chain_of_roundings_is_its_own_contract(dtype: torch.dtype) -> None:
    x = from_bits(ALL, dtype)
    x = x[x.isfinite()]
    t = torch.tanh(x / 30)
    g = torch.ones_like(x)
    for got, truth in ((30 * t, Truth.of(x, 30)), (g * (1 - t * t), Truth.of(x, 30, g))):
        assert accept("chain", got, truth).all_ok
        assert not accept("ulp", got, truth).all_ok


def test_the_chain_in_fp32_is_the_ulp_rule() -> None:
    x, g = torch.randn(500, generator=GENERATOR) * 40, torch.randn(500, generator=GENERATOR)
    for truth in (Truth.of(x, 30), Truth.of(x, 30, g)):
        for steps in range(-8, 9):
            got = neighbour(truth.rounded(torch.float32), steps)
            assert torch.equal(accept("chain", got, truth).ok, accept("ulp", got, truth).ok)


def test_flushed_zeros_are_accepted_and_marked() -> None:
    x = torch.tensor([2.0**-130, 2.0**-124, 2.0**-121, 2.0**-121, 0.0])
    outcome = accept("ulp", torch.tensor([0.0, -0.0, 0.0, 2.0**-121, 0.0]), Truth.of(x, 30))
    assert outcome.ok.tolist() == [True, True, False, True, True]
    assert outcome.flushed.tolist() == [True, True, False, False, False]
    specification = accept("specification", torch.zeros(5), Truth.of(x, 30))
    assert specification.judged.tolist() == [False, False, True, True, True]


def test_flush_of_a_gradient_looks_at_the_gradient_alone() -> None:
    """x/c = 0 flushed or not leaves dx = g, so dx = 0 at x = 0 is wrong."""
    x, g = torch.tensor([0.0, 1e-44, 30 * 44.0]), torch.tensor([1.0, 1.0, 1.0])
    outcome = accept("ulp", torch.zeros(3), Truth.of(x, 30, g))
    assert outcome.ok.tolist() == [False, False, True]
    tiny = Truth.of(torch.ones(2), 30, torch.tensor([2.0**-127, 2.0**-120]))
    outcome = accept("ulp", torch.zeros(2), tiny, everywhere=True)
    assert outcome.flushed.tolist() == [True, False]
    assert outcome.ok.tolist() == [True, False]


def test_the_flush_limit_itself_is_decided_exactly() -> None:
    least = torch.tensor(2.0**-126)
    x = torch.stack([least, neighbour(least, 1)])
    outcome = accept("ulp", torch.zeros(2), Truth.of(x, 1.0), everywhere=True)
    assert outcome.flushed.tolist() == [True, False], "E is below x, and x/c decides only below 2**-126"
    assert outcome.escalated == 1


def test_the_tiny_floor_of_the_forward_rule() -> None:
    truth = Truth.of(torch.tensor([2.0**-149] * 3), 30)
    outcome = accept("ulp", torch.tensor([36 * 2.0**-149, 37 * 2.0**-149, 30 * 2.0**-149]), truth)
    assert outcome.ok.tolist() == [True, False, True], "6 + 30 spacings, and E itself is just below one"


def test_outside_the_judged_domain_nothing_is_judged_unless_asked() -> None:
    truth = Truth.of(torch.ones(2), 2.0**61)
    bad = torch.full((2,), 5.0)
    outcome = accept("ulp", bad, truth)
    assert outcome.all_ok
    assert not outcome.judged.any()
    asked = accept("ulp", bad, truth, everywhere=True)
    assert asked.judged.all()
    assert not asked.ok.any()


def test_the_chain_may_lose_a_subnormal() -> None:
    eta, zero = 2.0**-24, torch.zeros(1, dtype=torch.float16)
    gradient = Truth.of(zero, 30, torch.tensor([0.75 * eta]))
    outcomes = [accept("chain", zero + n * eta, gradient).all_ok for n in (0, 1, 2, 3)]
    assert outcomes == [True, True, True, False]
    forward = Truth.of(zero + 20 * eta, 30)
    assert [accept("chain", zero + n * eta, forward).all_ok for n in (0, 30, 53, 54)] == [
        True,
        True,
        True,
        False,
    ]


def test_below_a_power_of_two_the_ulp_is_the_smaller_one() -> None:
    """Saturated at c = 32, y lies just below 32: FP64 cannot tell, and 6 ulp there are 3 steps above 32."""
    truth = Truth.of(torch.full((1,), 3200.0), 32)
    thirty_two = torch.full((1,), 32.0)
    outcomes = [accept("ulp", neighbour(thirty_two, n), truth).all_ok for n in (-7, -6, 2, 3, 4)]
    assert outcomes == [False, True, True, True, False]


@pytest.mark.parametrize(("cap", "above"), [(2.0**30, False), (2.0**60, True)])
def test_a_bracket_that_ends_at_a_midpoint_is_decided_exactly(cap: float, above: bool) -> None:
    """E + tol is the midpoint less x * z² / 3 plus c * 2**-149: which of them is larger depends on the cap."""
    low, high, ulp = 1.0, 1.0 + 2.0**-7, 2.0**-23
    middle = low + 2.0**-8
    results = torch.tensor([low, high], dtype=torch.bfloat16)
    up = accept("ulp", results, Truth.of(torch.full((2,), middle - 6 * ulp), cap))
    assert up.ok.tolist() == [True, above]
    assert up.escalated == 1
    down = accept("ulp", results, Truth.of(torch.full((2,), middle + 6 * ulp), cap))
    assert down.ok.tolist() == [True, True]
    assert down.escalated == 1


def test_the_absolute_tolerance_of_gradients_grows_with_large_ones_only() -> None:
    x, g = torch.full((4,), 3.0), torch.tensor([0.001, 0.001, 100.0, 100.0])
    truth = Truth.of(x, 30, g)
    rtol = 1e-5 * truth.value
    off = torch.tensor([0.9e-5, 1.1e-5, 0.9e-3, 1.1e-3]).double()
    outcome = accept("specification", round_once(truth.value + rtol + off, torch.float32), truth)
    assert outcome.ok.tolist() == [True, False, True, False]


def test_the_specification_leaves_what_may_overflow() -> None:
    x, g = torch.zeros(2, dtype=torch.float16), torch.tensor([65519.99, 65000.0])
    outcome = accept(
        "specification", torch.tensor([65504.0, 65504.0], dtype=torch.float16), Truth.of(x, 30, g)
    )
    assert outcome.judged.tolist() == [False, True]


def test_error_is_in_ulp_of_the_result_and_in_gradient_units() -> None:
    x = torch.tensor([3.0])
    forward = Truth.of(x, 30)
    step = accept("ulp", neighbour(forward.rounded(torch.bfloat16), 3), forward).error.item()
    assert 2.5 <= step <= 3.5
    backward = Truth.of(x, 30, torch.tensor([4.0]))
    off = round_once(backward.value + 4 * 3 * 2.0**-24, torch.float32)
    assert accept("ulp", off, backward).error.item() == pytest.approx(3, abs=0.51)
    nothing = Truth.of(x, 30, torch.zeros(1))
    assert accept("ulp", torch.zeros(1), nothing).error.item() == 0.0
    assert accept("ulp", torch.ones(1), nothing).error.item() == torch.inf


def test_the_specification_is_against_the_value_rounded_once() -> None:
    x = torch.tensor([25.0], dtype=torch.bfloat16)
    truth = Truth.of(x, 30)
    right = truth.rounded(torch.bfloat16)
    assert [accept("specification", neighbour(right, n), truth).all_ok for n in (0, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not accept("specification", neighbour(right, 2).float(), truth).all_ok


@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_shapes_survive(shape: tuple[int, ...]) -> None:
    truth = Truth.of(torch.ones(shape), 30)
    for rule in RULES:
        outcome: Acceptance = accept(rule, truth.rounded(torch.float32), truth)
        parts = (outcome.ok, outcome.judged, outcome.flushed, outcome.error)
        assert [part.shape for part in parts] == [torch.Size(shape)] * 4
        assert outcome.all_ok


def test_a_strided_result_is_read_in_logical_order() -> None:
    x = torch.randn(3, 5, generator=GENERATOR) * 30
    truth = Truth.of(x.t(), 30)
    got = truth.rounded(torch.float32).t().contiguous().t()
    assert accept("ulp", got, truth).all_ok
    assert not accept("ulp", truth.rounded(torch.float32).reshape(3, 5).t(), truth).all_ok


def test_refusals() -> None:
    truth = Truth.of(torch.ones(2), 30)
    with pytest.raises(ValueError, match=r"allclose.*ulp, specification, chain"):
        accept("allclose", torch.ones(2), truth)
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        accept("ulp", torch.ones(3), truth)
    with pytest.raises(TypeError, match="float64"):
        accept("ulp", torch.ones(2, dtype=torch.float64), truth)
    with pytest.raises(ValueError, match="meta"):
        accept("ulp", torch.ones(2, device="meta"), truth)
