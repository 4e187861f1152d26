"""Tiles from a counter: on a far tensor the first ones are handed out, then the last."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from invariance.known_bad import stranger_kernels as kernels
from invariance.tiers.faults import OutOfBounds
from invariance.tiers.interpreter import interpreted

FAR = 2**31 + 66535
LAUNCHES = [kernels.queue, kernels.tickets]


@triton.jit
def by_elements_kernel(y, counter, n, B: tl.constexpr):
    """The counter counts elements, and begins at B."""
    start = tl.atomic_add(counter, B) - B
    while start < n:
        at = start.to(tl.int64) + tl.arange(0, B)
        tl.store(y + at, 1.0, mask=at < n)
        start = tl.atomic_add(counter, B) - B


@triton.jit
def last_one_kernel(y, counter, n, B: tl.constexpr):
    """One block a program, and the program that ends last does something more."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    tl.store(y + at, 1.0, mask=at < n)
    if tl.atomic_add(counter, 1) == tl.num_programs(0) - 1:
        tl.store(counter, -7)


def launched(launch, *, n: int = FAR, wide: bool = True):
    """The last element of a launch on a far tensor, and its session."""
    with interpreted(far=True, order="ends") as session:
        x = session.tensor((n,), (1,), torch.bfloat16)
        x[-1] = 4.0
        y = torch.empty_like(x, dtype=torch.float32)
        launch(x, y, 30.0, wide=wide)
        return float(y[-1]), session


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("n", [FAR, 2**31 + 2**20, 2**32 + 1])
def test_the_last_tile_is_among_those_that_are_taken(launch, n):
    last, session = launched(launch, n=n)
    assert last == float(30 * torch.tanh(torch.tensor(4.0) / 30))
    assert session.far.missing() is None
    assert not session.far.computed


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_ticket_times_a_block_in_32_bits_leaves_the_tensor(launch):
    with pytest.raises(OutOfBounds, match="offset -2147"):
        launched(launch, wide=False)


def test_a_counter_may_count_in_steps_and_begin_anywhere():
    with interpreted(far=True, order="ends") as session:
        y = session.tensor((FAR,), (1,), torch.float32)
        by_elements_kernel[(4,)](y, torch.full((1,), 256, dtype=torch.int64), FAR, B=256)
        assert float(y[-1]) == 1.0


def test_the_program_that_ends_last_is_so_though_few_are_run():
    counter = torch.zeros(1, dtype=torch.int32)
    with interpreted(far=True, order="ends") as session:
        y = session.tensor((FAR,), (1,), torch.float32)
        last_one_kernel[(triton.cdiv(FAR, 256),)](y, counter, FAR, B=256)
    assert counter.item() == -7


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("order", ["in_order", "backwards", "hashed"])
def test_near_tensors_are_taken_whole(launch, order):
    x, y = torch.linspace(-9, 9, 2000), torch.zeros(2000)
    with interpreted(order=order, races=True):
        launch(x, y, 30.0)
    assert torch.equal(y, 30 * torch.tanh(x / 30))
