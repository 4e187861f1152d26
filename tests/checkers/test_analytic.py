"""Theorems hold for every good kernel at every judged cap; each law catches a kernel made to break it alone."""

from __future__ import annotations

import pytest
import torch

from invariance.candidate import PASSES, adapt
from invariance.checkers import LAWS, load_laws
from strategies.case import Case
from strategies.upstream import UPSTREAM
from strategies.values import VALUES
from tests.checkers.faulty import bumped, faulty, softcap, verdict
from tests.checkers.good import GOOD

load_laws()

NAMES = (
    "oddness",
    "bound",
    "sign",
    "zeros",
    "saturation",
    "special_values",
    "cap_scaling",
    "gradient_linearity",
)
CAPS = (30, 17.3, 1, 2.0**-60, 2.0**60, 7e-5, 2**24 + 1)


def cases():
    values, upstream = sorted(VALUES), sorted(UPSTREAM)
    for number in range(20):
        dtype = ("fp16", "bf16", "fp32")[number % 3]
        knobs = (("grad_values", upstream[number % len(upstream)]),)
        layout = ("contiguous", "stepped")[number % 2]
        yield Case(
            (2, 17), dtype, CAPS[number % len(CAPS)], layout, values[number % len(values)], number, knobs
        )
    for number, shape in enumerate(((), (0,), (2, 0, 3))):
        yield Case(shape, "fp16", 30, seed=number)


def test_these_are_all_the_analytic_laws():
    files = ("invariance.checkers.analytic", "invariance.checkers.scaling")
    assert {name for name, law in LAWS.items() if law.check.__module__ in files} == set(NAMES)


@pytest.mark.parametrize("law", NAMES)
def test_good_kernels_pass(law):
    for pass_ in LAWS[law].passes:
        compared = 0
        for candidate in GOOD:
            for case in cases():
                found = verdict(law, candidate, case, pass_)
                assert found.mismatch is None, (candidate.name, pass_, case, found.mismatch)
                compared += found.elements
        assert compared > 0


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("cap", [30, 2.0**-60, 2.0**60])
@pytest.mark.parametrize("law", NAMES)
def test_ordinary_inputs_leave_no_law_without_a_claim(law, cap, dtype):
    case = Case((1025,), dtype, cap, seed=5)
    for pass_ in LAWS[law].passes:
        assert verdict(law, GOOD[0], case, pass_).elements > 0


def on(condition):
    """A fault that moves the elements where `condition(x)` holds by one bit pattern."""
    return lambda out, args: bumped(out, condition(args[0]))


def with_another_sign(out, args):
    return torch.where(args[-1] > 1.0, -out, out)


def above_the_cap(out, args):
    return bumped(out, args[0].abs() > 200.0)


def below_the_cap(out, args):
    return torch.where(args[0] > 300.0, out * (1 - 2.0**-23), out)


def unsigned_zero(out, args):
    return torch.where(out == 0, torch.zeros_like(out), out)


def no_nan(out, args):
    return torch.nan_to_num(out)


def flushed_subnormals(out, args):
    return torch.where(args[0].abs() < 2.0**-120, torch.full_like(out, 2.0**-100), out)


def absolute_noise(out, args):
    return out + 1e-6


def large_gradients(out, args):
    return torch.where(args[-1].abs() > 3.0, bumped(out), out)


FAULTS = [
    ("oddness", on(lambda x: x > 0), PASSES),
    ("bound", above_the_cap, ("forward", "inference")),
    ("sign", with_another_sign, PASSES),
    ("zeros", unsigned_zero, PASSES),
    ("saturation", below_the_cap, ("forward", "inference")),
    ("special_values", no_nan, PASSES),
    ("special_values", flushed_subnormals, ("forward", "inference")),
    ("cap_scaling", absolute_noise, ("forward", "inference")),
    ("cap_scaling", on(lambda x: x.abs() > 20.0), ("backward",)),
    ("gradient_linearity", large_gradients, ("backward",)),
]


@pytest.mark.parametrize(("law", "fault", "passes"), FAULTS)
def test_each_law_catches_its_fault_in_the_pass_that_has_it(law, fault, passes):
    case = Case((1025,), "fp32", 30, seed=3)
    for pass_ in passes:
        assert pass_ in LAWS[law].passes
        for judged in LAWS[law].passes:
            found = verdict(law, faulty(fault, pass_), case, judged)
            assert (found.mismatch is not None) == (judged == pass_), (pass_, judged, found.mismatch)


def test_every_analytic_law_has_a_fault_that_it_catches_in_each_of_its_passes():
    caught = {(law, pass_) for law, _, passes in FAULTS for pass_ in passes}
    assert caught == {(law, pass_) for law in NAMES for pass_ in LAWS[law].passes}


def test_a_saturated_value_beside_a_midpoint_of_16_bits_may_fall_either_way():
    cap = 1 + 2.0**-11  # half way between two FP16 numbers

    def either_way(out, args):
        return torch.where(args[0] > 0, torch.full_like(out, 1.0), torch.full_like(out, -1 - 2.0**-10))

    case = Case((8,), "fp16", cap, values="beyond")
    assert verdict("saturation", faulty(either_way, "inference"), case, "inference").mismatch is None


@pytest.mark.parametrize("result", ["scalar", "fp64"])
@pytest.mark.parametrize("law", ["bound", "sign", "saturation", "cap_scaling"])
def test_a_result_of_another_form_is_a_mismatch_and_no_accident(law, result):
    def kernel(x, cap):
        y = softcap(x, cap)
        return y.sum() if result == "scalar" else y.double()

    found = verdict(law, adapt("misshapen", kernel), Case((5,), "fp32", 30), "inference")
    assert found.mismatch is not None
    assert found.mismatch.label in ("the shape", "the dtype")


def test_an_instance_is_outside_the_law_that_changes_the_cap():
    assert "cap of its own" in (LAWS["cap_scaling"].applies("instance") or "")
    assert LAWS["cap_scaling"].applies("operator") is None
