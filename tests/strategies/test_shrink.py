"""The shrinker, against planted faults: what it ends with still fails, is small, and cost no more than allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.case import Case
from strategies.cases import cases
from strategies.dtypes import to_bits
from strategies.shrink import shrink

KNOBS = (("cut", 3), ("grad_layout", "transposed"), ("grad_values", "large"))
BIG = Case((4, 5, 100), "fp32", 30.0, layout="permuted", seed=7, knobs=KNOBS)


@dataclass
class Fault:
    """A planted fault that counts how often it was asked."""

    test: Callable[[Case], bool]
    asked: list[Case] = field(default_factory=list)

    def __call__(self, case: Case) -> bool:
        self.asked.append(case)
        return self.test(case)


def small(case: Case, test: Callable[[Case], bool], *, budget: int = 300, caps: bool = False) -> Case:
    """The shrunk case, after the checks that hold for every one of them."""
    fault = Fault(test)
    assert test(case)
    result = shrink(case, fault, budget=budget, caps=caps)
    assert test(result)
    assert len(fault.asked) <= budget
    assert len(set(fault.asked)) == len(fault.asked)
    assert shrink(case, test, budget=budget, caps=caps) == result
    assert Case.loads(result.dumps()) == result
    return result


def test_a_wrong_bit_pattern_ends_as_that_pattern_alone() -> None:
    pattern = int(to_bits(BIG.x()).reshape(-1)[1777])
    result = small(BIG, lambda case: bool((to_bits(case.x()) == pattern).any()))
    assert result == Case((1,), "fp32", 30.0, values=(pattern,))


def test_two_patterns_that_are_wrong_together() -> None:
    first, second = (int(to_bits(BIG.x()).reshape(-1)[place]) for place in (333, 1777))
    result = small(BIG, lambda case: {first, second} <= set(to_bits(case.x()).reshape(-1).tolist()))
    assert result == Case((2,), "fp32", 30.0, values=(first, second))


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
def test_large_values_end_as_a_power_of_two(dtype: str) -> None:
    result = small(BIG.replace(dtype=dtype), lambda case: bool((case.x().to(torch.float64) < -1000).any()))
    assert result.shape == (1,)
    assert result.knobs == ()
    assert result.x().item() in (-1024.0, -2048.0, -4096.0, -65536.0)


def test_any_value_at_all_ends_as_zero() -> None:
    assert small(BIG, lambda _: True) == Case((1,), "fp32", 30.0, values=(0,))


def test_a_size_is_found_to_the_element_without_thousands_of_literals() -> None:
    result = small(BIG, lambda case: case.numel > 1000)
    assert result == Case((1001,), "fp32", 30.0, values="constant")


def test_a_place_is_found_too() -> None:
    result = small(BIG, lambda case: case.numel > 1024 and case.x().reshape(-1)[1024].item() != 0)
    assert result == Case((1025,), "fp32", 30.0, values="constant")


def test_row_counts_are_kept_where_they_matter() -> None:
    case = Case((400, 7), "bf16", 30, layout="transposed", seed=3)
    result = small(case, lambda case: len(case.shape) == 2 and case.shape[0] > 255)
    assert result.shape == (256, 1)
    assert result.layout == "contiguous"


def test_a_nontrivial_stride_is_kept_where_it_matters() -> None:
    result = small(BIG, lambda case: not case.x().is_contiguous())
    assert result.numel == 2
    assert not result.x().is_contiguous()
    assert result.values == (0, 0)


def test_the_layout_of_the_gradient_is_kept_where_it_matters() -> None:
    result = small(BIG, lambda case: not case.grad_y(torch.float32).is_contiguous())
    assert result.layout == "contiguous"
    assert result.numel == 2
    assert dict(result.knobs)["grad_layout"] != "contiguous"


def test_the_gradient_s_bits_are_written_out_where_they_matter() -> None:
    def wrong(case: Case) -> bool:
        together = (case.grad_y(torch.bfloat16).abs() > 1e6) & (case.x().abs() > 10)
        return bool(together.any())

    result = small(BIG.replace(dtype="bf16"), wrong)
    assert result.shape == (1,)
    assert result.grad_y(torch.bfloat16).item() == 2.0**32
    assert result.x().item() == 16.0


def test_a_knob_is_kept_where_it_matters() -> None:
    result = small(BIG, lambda case: case.pick("cut", 0, 9) == 3)
    assert result.pick("cut", 0, 9) == 3
    assert result.numel == 1


def test_nan_ends_as_the_usual_nan_or_infinity() -> None:
    case = Case((900,), "bf16", 30, values="bits", seed=1)
    assert small(case, lambda case: bool(case.x().isnan().any())).values == (0x7FC0,)
    assert small(case, lambda case: not bool(case.x().isfinite().all())).values == (0x7F80,)


def test_caps_are_simpler_only_when_asked() -> None:
    case = Case((3,), "fp32", 30.123)
    assert small(case, lambda case: case.cap > 17).cap == 30.123
    assert small(case, lambda case: case.cap > 17, caps=True).cap == 30.0
    assert small(case, lambda case: case.cap > 30, caps=True).cap == 32.0
    assert small(case, lambda case: case.cap > 0, caps=True).cap == 1.0
    assert small(case, lambda case: case.cap == 30.123, caps=True).cap == 30.123


def test_a_shape_that_no_memory_holds_becomes_small() -> None:
    case = Case((1, 2, 10**13), "fp32", 30.0)
    assert shrink(case, lambda case: case.shape[1:] != (1, 1), budget=60).numel <= 4


def test_an_empty_case_stays_empty() -> None:
    result = small(Case((3, 0, 5), "bf16", 30, layout="stepped"), lambda case: case.numel == 0)
    assert result.shape == (0,)


def test_literal_cases_are_cut_in_any_rank() -> None:
    case = Case(
        (3, 4), "bf16", 30, values=tuple(range(0x3F80, 0x3F8C)), knobs=(("grad_bits", tuple(range(12))),)
    )
    result = small(case, lambda case: 0x3F86 in case.values and len(case.shape) == 2)
    assert len(result.shape) == 2
    assert 0x3F86 in result.values
    flat = small(case, lambda case: 0x3F86 in case.values and (6 in (case.knob("grad_bits", None) or ())))
    assert (flat.shape, flat.values, flat.knobs) == ((1,), (0x3F86,), (("grad_bits", (6,)),))


@pytest.mark.parametrize("budget", [0, 1, 5, 20])
def test_a_budget_is_kept_and_the_result_still_fails(budget: int) -> None:
    result = small(BIG, lambda case: bool((case.x() > 1000).any()), budget=budget)
    assert budget > 0 or result == BIG


def test_exceptions_of_the_predicate_propagate() -> None:
    def broken(case: Case) -> bool:
        raise KeyError(case.shape)

    with pytest.raises(KeyError):
        shrink(BIG, broken, budget=10)


@settings(deadline=None, max_examples=40)
@given(case=cases(max_elements=300), salt=st.integers(0, 5))
def test_whatever_the_fault_the_result_fails_and_is_no_larger(case: Case, salt: int) -> None:
    def fault(case: Case) -> bool:
        x = case.x()
        faults = (
            case.numel > 3, bool((x.abs() > 100).any()), not x.is_contiguous(), case.layout != "contiguous",
            bool(x.signbit().any()), bool(case.grad_y(torch.float32).lt(0).any()),
        )  # fmt: skip
        return faults[salt]

    if fault(case):
        result = small(case, fault, budget=50)
        assert result.numel <= case.numel


def test_a_suspect_is_tried_alone_before_anything_else() -> None:
    case = Case((65536,), "bf16", 30.0, values="domain", knobs=(("grad_values", "signed"),))
    tried = []

    def fails(smaller: Case) -> bool:
        tried.append(smaller)
        return 0x4110 in to_bits(smaller.x()).tolist()

    found = shrink(case, fails, budget=60, suspect=0x4110)
    assert found.values == (0x4110,)
    assert tried[0].numel == 1


def test_a_suspect_that_is_innocent_alone_costs_little() -> None:
    case = Case((64,), "fp32", 30.0, values="linear")
    found = shrink(case, lambda smaller: smaller.numel >= 9, budget=60, suspect=3)
    assert found.numel == 9


def test_a_suspect_keeps_the_choices_that_its_law_made_until_they_prove_idle() -> None:
    case = Case((1025,), "fp32", 30.0, values="mixed", seed=977)
    at = int(case.x().abs().argmax())

    def fails(smaller: Case) -> bool:
        return smaller.seed == 977 and bool((smaller.x().abs() == case.x().abs().max()).any())

    found = shrink(case, fails, budget=24, suspect=at)
    assert (found.numel, found.seed) == (1, 977)
