"""The fast path says what the oracles' rule says of every element, for right results and for wrong ones."""

from __future__ import annotations

import math

import pytest
import torch

from invariance.candidate import CandidateRaised, adapt
from invariance.fuzz.grid import Grid, grids, sample, whole
from invariance.fuzz.scan import LAW, MODE_LAW, scan
from oracles.acceptance import accept
from oracles.tolerances import load_contract
from oracles.truth import Truth

CAPS = (30.0, 7.3, 1.9 * 2.0**-60, 1.1 * 2.0**59, 1.0, 0.1)
PASSES = ("forward", "inference", "backward")


class Softcap(torch.autograd.Function):
    """c tanh(x / c) and its gradient, both with a relative error of `off`; FP32 out where `wide`."""

    @staticmethod
    def forward(ctx, x, cap, off, wide):
        ctx.save_for_backward(x)
        ctx.cap, ctx.off = cap, off
        y = cap * torch.tanh(x.float() / cap) * (1 + off)
        return y if wide else y.to(x.dtype)

    @staticmethod
    def backward(ctx, grad_y):
        (x,) = ctx.saved_tensors
        t = torch.tanh(x.float() / ctx.cap)
        return (grad_y.float() * (1 - t * t) * (1 + ctx.off)).to(x.dtype), None, None, None


def parts(cap, off=0.0, wide=False, grid=None, passes=PASSES):
    candidate = adapt("softcap", lambda x, cap: Softcap.apply(x, cap, off, wide))
    return scan(candidate.map(cap, "forward"), grid, load_contract(), passes=passes, grads="hashed")


def assert_says(wrong, ok):
    """What the rule refuses; where much is doubtful not all of it, but never nothing, and nothing else."""
    refused = (~ok).nonzero().flatten().tolist()
    assert set(wrong.tolist()) <= set(refused)
    assert bool(wrong.numel()) == bool(refused)
    assert wrong.tolist() == sorted(set(wrong.tolist()))
    assert len(refused) <= 200 or wrong.numel() > 100


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("off", [0.0, 4 * 2.0**-24, 14 * 2.0**-24, 2.0**-10])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_what_the_fast_path_refuses_is_what_the_rule_refuses(dtype, off, wide):
    grid = whole(dtype, "cpu")
    for cap in CAPS[:: 1 if off else 2]:
        forward, inference, backward = parts(cap, off, wide, grid)
        ruled = accept("ulp", forward.got, Truth.of(grid.both, cap), everywhere=True)
        assert_says(forward.wrong, ruled.ok)
        assert forward.flushed == int(ruled.flushed.sum()) or not ruled.all_ok
        gradient = accept("ulp", backward.got, Truth.of(grid.both, cap, backward.grad_y), everywhere=True)
        assert_says(backward.wrong, gradient.ok)
        assert (inference.law, inference.wrong.numel()) == (MODE_LAW, 0)
        assert {p.elements for p in (forward, inference, backward)} == {65536}


def test_a_broken_law_does_not_ask_the_exact_oracle_about_everything():
    # At cap 1 the saturated results, 1 + 2^-21, are 8 ulps of the binade below 1 off: only many digits tell.
    (forward,) = parts(1.0, 7 * 2.0**-24, True, whole("fp16", "cpu"), ("forward",))
    assert forward.escalated <= 1024
    assert forward.wrong.numel() > 100


@pytest.mark.parametrize("where", [0x7C00, 0xFC00, 0x7E01, 0x8000, 0x3C00, 0xBC00, 0x0001])
def test_one_wrong_element_is_seen_whatever_it_is(where):
    def kernel(x, cap):
        y = cap * torch.tanh(x.float() / cap)
        return torch.where((x.view(torch.int16).int() & 0xFFFF) == where, 40.0, y)

    f = adapt("one", kernel).map(30.0, "forward")
    (part,) = scan(f, whole("fp16", "cpu"), load_contract(), passes=("forward",), grads="ones")
    assert [whole("fp16", "cpu").pattern(i) for i in part.wrong.tolist()] == [where]


def test_errors_are_measured_before_the_last_rounding():
    grid = whole("fp16", "cpu")
    for off in (0.0, 3 * 2.0**-24):
        (wide,) = parts(30.0, off, True, grid, ("forward",))
        (narrow,) = parts(30.0, off, False, grid, ("forward",))
        value = Truth.of(grid.both, 30.0).value
        exponent = torch.floor(torch.log2(value[wide.at].abs()))
        seen = (wide.got[wide.at].double() - value[wide.at]).abs() / 2.0 ** (exponent - 23)
        assert math.isclose(wide.error, float(seen), rel_tol=1e-9)
        assert 0 <= narrow.error <= wide.error + 1e-6


def test_inference_of_other_bits_is_seen():
    def kernel(x, cap):
        y = cap * torch.tanh(x.float() / cap)
        return y if torch.is_grad_enabled() else torch.where(x == 2, y + 2.0**-20, y)

    f = adapt("modes", kernel).map(30.0, "forward")
    found = scan(f, whole("bf16", "cpu"), load_contract(), passes=PASSES[:2], grads="ones")
    assert [(part.law, part.wrong.numel()) for part in found] == [(LAW, 0), (MODE_LAW, 1)]


@pytest.mark.parametrize("bad", [lambda x, cap: x[:-1] * cap, lambda x, cap: x.double() * cap])
def test_what_is_no_result_raises(bad):
    with pytest.raises(CandidateRaised, match="returned"):
        scan(
            adapt("bad", bad).map(1.0, "forward"),
            whole("fp16", "cpu"),
            load_contract(),
            passes=PASSES,
            grads="ones",
        )


@pytest.mark.parametrize("cap", [30.0, 2.0**-60, 2.0**60])
def test_the_sample_of_fp32_is_dense_and_has_its_seams(cap):
    blocks = list(sample(cap, 0, "cpu"))
    x = torch.cat([block.positive for block in blocks])
    assert sum(block.elements for block in blocks) >= 2**18
    assert x.numel() == x[~x.isnan()].unique().numel() + int(x.isnan().sum())
    assert {0.0, 1.0, math.inf, 2.0**-149, 2.0**-126} <= set(x.tolist())
    near = (x[x.isfinite()].double() / cap - 9.01).abs()
    assert float(near.min()) < 2.0**-20
    inside = (x >= cap * 2.0**-13) & (x <= cap * 8)
    assert int(inside.sum()) > 60_000
    parts_found = [part for block in blocks for part in parts(cap, grid=block)]
    assert all(part.wrong.numel() == 0 for part in parts_found)


def test_candidates_cannot_write_into_the_inputs_of_the_next_call():
    grid = next(grids("bf16", 30.0, 0, "cpu"))
    assert isinstance(grid, Grid)
    before = grid.both.clone()
    scan(adapt("writes", lambda x, cap: x.detach().mul_(cap)).map(3.0, "forward"), grid, load_contract(),
         passes=("forward",), grads="ones")  # fmt: skip
    assert torch.equal(before.view(torch.int16), grid.both.view(torch.int16))
