"""Arguments of a launch that are more than a tensor or a number: tuples, and descriptors of tensors."""

from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from invariance.offered import ONE_A_VENDOR
from invariance.tiers.faults import OutOfBounds
from invariance.tiers.interpreter import interpreted
from invariance.tiers.strangers import code_of, launches_of

BLOCK = 16


@triton.jit
def described_kernel(x, y, cap, n, B: tl.constexpr):
    at = tl.program_id(0) * B
    lanes = at + tl.arange(0, B)
    tl.store(y + lanes, cap * x.load([at]), mask=lanes < n)


@triton.jit
def described_inside_kernel(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B
    from_x = tl.make_tensor_descriptor(x, [n], [1], [B])
    to_y = tl.make_tensor_descriptor(y, [n], [1], [B])
    to_y.store([at], from_x.load([at]))


@triton.jit
def tuple_kernel(both, cap, n, B: tl.constexpr):
    lanes = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(both[1] + lanes, cap * tl.load(both[0] + lanes, mask=lanes < n), mask=lanes < n)


class Described:
    """Scales by the cap, and has a descriptor among the arguments of its kernel."""

    def __init__(self, softcap):
        self.cap = softcap

    def __call__(self, x):
        y = torch.empty_like(x, dtype=torch.float32)
        self.launch(x.contiguous(), y, x.numel())
        return y

    def launch(self, x, y, n):
        described = TensorDescriptor(x, [n], [1], [BLOCK])
        described_kernel[(triton.cdiv(n, BLOCK),)](described, y, self.cap, n, B=BLOCK)


class InTuple(Described):
    """The same with a tuple."""

    def launch(self, x, y, n):
        tuple_kernel[(triton.cdiv(n, BLOCK),)]((x, y), self.cap, n, B=BLOCK)


@pytest.mark.parametrize("kind", [Described, InTuple])
def test_it_runs_and_is_told_what_it_is_compiled_to(kind):
    x = torch.arange(37.0)
    with interpreted(races=True):
        assert torch.equal(kind(2.0)(x), 2 * x)
    (launch,) = launches_of(kind)
    assert launch.compiled_as is not None
    assert next(iter(launch.compiled_as.signature.values())) in ("tensordesc<fp32[16]>", ("*fp32", "*fp32"))
    for target in ONE_A_VENDOR:
        (facts,) = code_of(kind, target)
        assert facts["spills"] == 0


def test_a_tensor_in_a_tuple_has_a_name_and_ends():
    with (
        interpreted(),
        pytest.raises(OutOfBounds, match=re.escape("outside both[0] (torch.float32, 20 elements)")),
    ):
        tuple_kernel[(2,)]((torch.zeros(64)[:20], torch.zeros(64)), 1.0, 64, B=BLOCK)


@pytest.mark.parametrize("outside", ["x", "y"])
def test_a_descriptor_that_claims_too_much_leaves_its_tensor(outside):
    lengths = {"x": 64, "y": 64, outside: 20}
    x, y = (torch.zeros(64)[: lengths[name]] for name in "xy")
    with (
        interpreted(),
        pytest.raises(OutOfBounds, match=f"outside {outside} .* offset 20 in program") as caught,
    ):
        described_inside_kernel[(2,)](x, y, 64, B=BLOCK)
    assert caught.value.lanes == 12


def test_a_descriptor_of_the_host_claims_too_much():
    x = torch.zeros(64)[:20]
    with interpreted(), pytest.raises(OutOfBounds, match=r"outside x .* offset 20 in program"):
        described_kernel[(2,)](TensorDescriptor(x, [64], [1], [BLOCK]), torch.zeros(64), 1.0, 64, B=BLOCK)


def test_what_lies_past_a_descriptor_is_zero_as_on_a_device():
    y = torch.ones(32)
    with interpreted():
        described_kernel[(2,)](TensorDescriptor(torch.ones(20), [20], [1], [BLOCK]), y, 3.0, 32, B=BLOCK)
    assert y.tolist() == [3.0] * 20 + [0.0] * 12
