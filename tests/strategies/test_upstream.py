"""Upstream gradients: in the judged domain for every cap and dtype, and what each claims."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strategies.case import Case
from strategies.dtypes import DTYPES, FORMATS, TORCH, to_bits
from strategies.upstream import FINITE_UPSTREAM, UPSTREAM, hashed
from strategies.values import domain

CAPS = (2.0**-60, 1.7 * 2.0**-41, 1, 30.1, 2.0**20, 1.99 * 2.0**59, 2.0**60)
LOW, HIGH = 2.0**-100, 2.0**100


def sent(family: str, dtype: str, cap: float = 30.0, count: int = 4096) -> Tensor:
    case = Case((count,), "fp32", cap, seed=6, knobs=(("grad_values", family),))
    return case.grad_y(TORCH[dtype]).to(torch.float64)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FINITE_UPSTREAM)
def test_gradients_are_judged(family: str, dtype: str, cap: float) -> None:
    g = sent(family, dtype, cap)
    size = g[g != 0].abs()
    assert bool(g.isfinite().all())
    assert float(size.min()) >= LOW
    assert float(size.max()) <= HIGH
    assert float((size * cap).min()) >= LOW
    assert float((size * cap).max()) <= HIGH


@pytest.mark.parametrize("dtype", DTYPES)
def test_families_are_what_they_say(dtype: str) -> None:
    form = FORMATS[dtype]
    signed = sent("signed", dtype)
    assert 0.4 < float((signed < 0).to(torch.float64).mean()) < 0.6
    assert 2.0**-4 <= float(signed.abs().min()) < 2.0**-3
    assert 2.0**3 < float(signed.abs().max()) <= 2.0**4
    assert sent("ones", dtype).unique().tolist() == [1.0]
    assert bool((sent("negatives", dtype) < 0).all())
    zeros = sent("zeros_mixed", dtype)
    assert 0.4 < float((zeros == 0).to(torch.float64).mean()) < 0.6
    assert bool(zeros[zeros == 0].signbit().any())
    assert set((torch.frexp(sent("powers_of_two", dtype)).mantissa.abs()).tolist()) == {0.5}
    entropy = sent("cross_entropy", dtype).view(-1, 64)
    assert bool(((entropy < 0).sum(-1) == 1).all())
    assert float(entropy.min()) >= -1.0
    specials = sent("specials", dtype)
    assert bool(specials.isnan().any() and specials.isposinf().any() and specials.isneginf().any())
    assert len(sent("signed", dtype).unique()) > min(1 << (form.digits - 1), 1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_and_small_reach_far(dtype: str) -> None:
    large, small = (2.0**14, 2.0**-22) if dtype == "fp16" else (2.0**90, 2.0**-95)
    assert float(sent("large", dtype).abs().max()) > large
    assert float(sent("large", dtype).abs().min()) >= 2.0**10
    assert 0 < float(sent("small", dtype).abs().min()) < small
    assert float(sent("small", dtype).abs().max()) <= 2.0**-10


def test_hashed_is_a_function_of_the_bits() -> None:
    x = domain("bf16")
    order = torch.randperm(1 << 16, generator=torch.Generator().manual_seed(0))
    for dtype in DTYPES:
        table = hashed(x, dtype)
        assert torch.equal(hashed(x[order], dtype), table[order])
        assert torch.equal(hashed(x.view(256, 256), dtype).view(-1), table)
    assert hashed(x, "fp32")[to_bits(x) == 0].item() != hashed(x, "fp32")[to_bits(x) == 0x8000].item()


def test_every_family_says_what_it_breaks() -> None:
    for family in UPSTREAM.values():
        assert "breaks" in str(family.__doc__).splitlines()[0]
