"""Masked lanes of a load hold anything, and a kernel that keeps them out of its result never shows it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from invariance.tiers.interpreter import interpreted
from invariance.tiers.undefined import anything

EVERY = (
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool,
)  # fmt: skip


@triton.jit
def copy_kernel(x, y, n, m, B: tl.constexpr):
    """Loads the first n, stores the first m."""
    at = tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < m)


@triton.jit
def gather_kernel(x, index, y, n, B: tl.constexpr):
    at = tl.arange(0, B)
    taken = tl.load(index + at, mask=at < n)
    tl.store(y + at, tl.load(x + 3 * taken, mask=at < n), mask=at < n)


@triton.jit
def most_kernel(x, y, n, OTHER: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at, mask=at < n, other=-1.0) if OTHER else tl.load(x + at, mask=at < n)
    tl.store(y, tl.max(value, axis=0))
    tl.store(y + 1, tl.min(value, axis=0))
    tl.store(y + 2, tl.sum(value, axis=0))


def copied(dtype: torch.dtype, n: int, m: int) -> torch.Tensor:
    y = torch.zeros(8, dtype=dtype)
    with interpreted():
        copy_kernel[(1,)](torch.zeros(8, dtype=dtype), y, n, m, B=8)
    return y


@pytest.mark.parametrize("dtype", EVERY, ids=str)
def test_a_lane_that_is_masked_off_is_no_zero(dtype):
    shown = copied(dtype, 3, 8).view(torch.uint8).view(8, -1)
    assert shown.any(dim=1).tolist() == [False] * 3 + [True] * 5
    assert not bool(copied(dtype, 3, 3).view(torch.uint8).any())
    assert not bool(copied(dtype, 8, 8).view(torch.uint8).any())


def test_neighbouring_lanes_differ_and_a_call_repeats():
    for dtype in (torch.float32, torch.int32):
        lanes = copied(dtype, 0, 8).view(torch.int32)
        assert bool((lanes[1:] != lanes[:-1]).all())
        assert torch.equal(lanes, copied(dtype, 0, 8).view(torch.int32))
    assert bool(copied(torch.float32, 0, 8).isnan().any())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8, torch.uint8], ids=str)
def test_an_index_that_is_undefined_may_make_an_address_that_is_masked_off(dtype):
    x, index, y = torch.arange(15.0), torch.tensor([4, 0, 3, 1, 2], dtype=dtype), torch.zeros(5)
    with interpreted():
        gather_kernel[(1,)](x, index, y, 5, B=16)
    assert y.tolist() == [12.0, 0.0, 9.0, 3.0, 6.0]


def test_a_reduction_shows_undefined_lanes_and_not_those_that_it_chose():
    x, y = torch.zeros(6), torch.zeros(3)
    with interpreted():
        most_kernel[(1,)](x, y, 3, OTHER=False, B=8)
    assert y[0] > 1e38
    assert y[1] < -1e38
    assert y[2] != 0
    with interpreted():
        most_kernel[(1,)](x, y, 3, OTHER=True, B=8)
    assert y.tolist() == [0.0, -1.0, -5.0]


def test_numbers_are_odd_and_the_same_in_every_process():
    assert anything(tl.int32, np.dtype(np.int32), (3,)).tolist() == [715827883, -715827883, 715827883]
    assert all(value % 2 for value in anything(tl.uint8, np.dtype(np.uint8), (2, 2)).ravel().tolist())
