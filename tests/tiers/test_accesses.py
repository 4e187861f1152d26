"""One access: each lane at a multiple of its width, and no two lanes of a store at odds over an element."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from invariance.known_bad import careless_kernels as kernels
from invariance.tiers.faults import Misaligned, Race
from invariance.tiers.interpreter import interpreted


@triton.jit
def cast_store_kernel(y, at):
    tl.store((y + at).to(tl.pointer_type(tl.int32)), 0x3F800000)


@triton.jit
def shared_kernel(y, MASKED: tl.constexpr, EQUAL: tl.constexpr, B: tl.constexpr):
    """Lanes two by two store to one element."""
    lane = tl.arange(0, B)
    value = lane // 2 if EQUAL else lane
    tl.store(y + lane // 2, value.to(tl.float32), mask=(lane % 2 == 0) | (not MASKED))


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("n", [1, 2, 3, 600, 601])
def test_pairs_are_right_where_they_begin_at_8_bytes(first, n):
    x, y = torch.linspace(-60, 60, n + first)[first:], torch.zeros(n)
    with interpreted():
        kernels.pairs(x, y, 30.0)
    assert torch.equal(y, 30 * torch.tanh(x / 30))


def test_a_lane_at_no_multiple_of_its_width_is_a_fault():
    x, y = torch.ones(601), torch.zeros(600)
    with (
        interpreted(),
        pytest.raises(Misaligned, match=r"lanes of 8 bytes, the first at element offset 0 of x ") as caught,
    ):
        kernels.pairs(x[1:], y, 30.0)
    assert (caught.value.what, caught.value.width, caught.value.program) == ("load", 8, (0, 0, 0))


def test_a_store_through_another_type_is_looked_at_too():
    y = torch.zeros(4, dtype=torch.float16)
    with interpreted():
        cast_store_kernel[(1,)](y, 2)
    assert y.view(torch.float32).tolist() == [0.0, 1.0]
    with interpreted(), pytest.raises(Misaligned, match="element offset 1 of y") as caught:
        cast_store_kernel[(1,)](y, 1)
    assert caught.value.what == "store"


@pytest.mark.parametrize(("masked", "equal"), [(True, False), (False, True), (True, True)])
def test_lanes_that_agree_or_are_masked_off_may_share_an_element(masked, equal):
    y = torch.zeros(4)
    with interpreted(races=True):
        shared_kernel[(1,)](y, MASKED=masked, EQUAL=equal, B=8)
    assert y.tolist() == ([0.0, 1.0, 2.0, 3.0] if equal else [0.0, 2.0, 4.0, 6.0])


def test_lanes_that_disagree_over_an_element_are_a_race():
    with (
        interpreted(races=True),
        pytest.raises(Race, match=r"give different values .* in y .* offset 0$") as caught,
    ):
        shared_kernel[(1,)](torch.zeros(4), MASKED=False, EQUAL=False, B=8)
    assert caught.value.other is None
    with interpreted():  # where nobody asks, the last lane stays, as it does in the catalogue's kernel
        x, y = torch.linspace(-9, 9, 300), torch.zeros(300)
        kernels.clamped(x, y, 30.0)
    assert torch.equal(y, 30 * torch.tanh(x / 30))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8, torch.int64])
def test_values_of_any_width_are_compared_by_their_bits(dtype):
    with interpreted(races=True), pytest.raises(Race, match="in y"):
        shared_kernel[(1,)](torch.zeros(4, dtype=dtype), MASKED=False, EQUAL=False, B=8)
    with interpreted(races=True):
        shared_kernel[(1,)](torch.zeros(4, dtype=dtype), MASKED=False, EQUAL=True, B=8)


@triton.jit
def nan_kernel(y, x, B: tl.constexpr):
    tl.store(y + tl.arange(0, B) // 2, tl.load(x + tl.arange(0, B)))


def test_a_nan_agrees_with_itself_and_zeros_of_two_signs_do_not():
    with interpreted(races=True):
        nan_kernel[(1,)](torch.zeros(2), torch.full((4,), float("nan")), B=4)
    with interpreted(races=True), pytest.raises(Race, match="different values"):
        nan_kernel[(1,)](torch.zeros(2), torch.tensor([0.0, -0.0, 1.0, 1.0]), B=4)
