"""The division through a reciprocal has the bits of a division: where they are hard to get, and at every magnitude."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from invariance.tiers.interpreter import interpreted
from invariance.tiers.repairs import fused
from softcap import kernels
from softcap.kernels import BLOCK, negative_reciprocal
from softcap.triton_op import SMALL_BLOCK

HARD = 8  # half units in the last place, times 2**-24: the distance from a midpoint that the kernel's proof needs
CAPS = (1.0, 30.0, 20.0, 50.0, 17.3, 7.3, 0.1, 1 - 2**-24, 2 - 2**-23, 2.0**-40, 2.0**60, 1.37 * 2.0**-39)
CAPS += (
    2.0**-149,
    3 * 2.0**-149,
    1.7 * 2.0**-130,
    2.0**-126,
    1.3 * 2.0**-80,
    2.0**60 * (1 + 2.0**-23),
    1.6 * 2.0**101,
)
CAPS += (
    2.0**127,
    2.0**128 - 2.0**104,
)  # every FP32 cap: the smallest, subnormal ones, both scales, the largest
F32 = np.float32


def quotient(x: np.ndarray, cap: float) -> np.ndarray:
    """The kernel's operations in FP32."""
    with np.errstate(all="ignore"):
        c, r = F32(cap), np.full_like(x, negative_reciprocal(float(F32(cap))))
        scale = F32(2.0**64 if c <= 2.0**60 else 2.0**-4)
        scaled = x * -scale
        q = np.fmin(np.fmax(scaled * r, F32(-(2.0**100))), F32(2.0**100))
        return fused(fused(q, np.full_like(x, c * scale), scaled), r, q)


def overflowing(cap: float) -> float:
    """From where on x times the scale is infinite: tanh is 1 long before."""
    return 2.0**64 if cap <= 2.0**60 else math.inf


def divided(x: np.ndarray, cap: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x / F32(cap)


def hard_significands(cap: float) -> Iterator[int]:
    """24-bit a with a / b nearer than HARD to a midpoint of FP32, b the significand of the cap, by modular inverses."""
    b = int(math.frexp(float(F32(cap)))[0] * 2**24)
    trailing = (b & -b).bit_length() - 1
    for digits in (24, 25):  # a quotient of at least one, and one below
        modulus = 2 ** (digits - trailing)
        inverse = pow(b >> trailing, -1, modulus)
        for s in range(-HARD, HARD + 1):
            if s % 2**trailing or not s:
                continue
            first = (-(s >> trailing) * inverse) % modulus
            for midpoint in range(first, 2**25, modulus):
                a, rest = divmod(b * midpoint + s, 2**digits)
                assert rest == 0
                if midpoint >= 2**24 and midpoint % 2 and 2**23 <= a < 2**24:
                    yield a


@pytest.mark.parametrize("cap", CAPS)
def test_quotients_next_to_a_midpoint_are_those_of_the_division(cap: float) -> None:
    hard = np.array([*hard_significands(cap), 2**23, 2**24 - 1], dtype=np.float64)
    # Every exponent of x for which x / c is normal; beyond 2**62 times the cap there is nothing to get right.
    exponents = np.arange(max(-172, math.frexp(cap)[1] - 150), min(105, math.frexp(cap)[1] + 60))
    x = (hard[:, None] * 2.0 ** exponents[None, :]).astype(F32).ravel()
    x = x[(np.abs(divided(x, cap)) >= 2.0**-126) & (np.abs(x) < overflowing(cap))]
    assert np.array_equal(quotient(x, cap).view(np.int32), divided(x, cap).view(np.int32))


@pytest.mark.parametrize("cap", CAPS)
def test_every_magnitude_has_the_bits_of_the_division_or_the_same_tanh(cap: float) -> None:
    bits = np.random.default_rng(3).integers(0, 2**32, 300_000, dtype=np.uint32)
    x = np.concatenate([bits, np.arange(0, 2**32, 2**16 - 1, dtype=np.uint32)]).view(F32)
    got, want = quotient(x, cap), divided(x, cap)
    with np.errstate(invalid="ignore"):
        saturated = (np.abs(x) >= overflowing(cap)) | (np.abs(want) > 2.0**99)
        normal = (np.abs(want) >= 2.0**-126) & ~saturated
    tiny = np.abs(want) < 2.0**-126
    assert np.array_equal(got[normal].view(np.int32), want[normal].view(np.int32))
    assert np.all(np.abs(got[saturated]) >= 16)
    assert np.all(np.abs(got[tiny]) < 2.0**-126)
    signed = ~np.isnan(x)
    assert np.array_equal(np.signbit(got[signed]), np.signbit(x[signed]))
    assert np.array_equal(np.isnan(got), np.isnan(x))


def test_on_hip_there_is_no_reciprocal(monkeypatch: pytest.MonkeyPatch) -> None:
    uncached = negative_reciprocal.__wrapped__
    assert uncached(30.0) == -1 / (30 * 2.0**64)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert uncached(30.0) is None


@pytest.mark.parametrize("cap", [30.0, 7.3])
def test_the_kernels_give_the_same_bits_with_and_without_it(cap: float) -> None:
    cap = float(F32(cap))
    special = [0.0, -0.0, math.inf, -math.inf, 3.4e38, 2.0**64, 1e-37, 2.0**-126]
    x = torch.cat([torch.randn(2100, generator=torch.Generator().manual_seed(4)) * 40, torch.tensor(special)])
    g = torch.linspace(-3, 3, x.numel())
    results = []
    for reciprocal in (None, negative_reciprocal(cap)):
        y, dx = torch.zeros_like(x), torch.zeros_like(x)
        with interpreted():
            n, options = x.numel(), {"BLOCK": BLOCK, "reciprocal": reciprocal}
            kernels.softcap_forward_kernel[(3,)](x, y, cap, n, **options)
            kernels.softcap_backward_kernel[(3,)](x, g, dx, cap, n, **options)
        results.append((y.view(torch.int32), dx.view(torch.int32)))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


@pytest.mark.parametrize("n", [1, 251, 1024, 1025, 2049])
@pytest.mark.parametrize("block", [SMALL_BLOCK, BLOCK])
def test_a_grid_covers_everything_once(n: int, block: int) -> None:
    x, y, dx = torch.linspace(-60, 60, n), torch.full((n,), torch.nan), torch.full((n,), torch.nan)
    with interpreted():
        kernels.softcap_forward_kernel[(-(-n // block),)](x, y, 20.0, n, BLOCK=block)
        kernels.softcap_backward_kernel[(-(-n // block),)](x, torch.ones(n), dx, 20.0, n, BLOCK=block)
    t = torch.tanh(x / 20)
    assert torch.equal(y, 20 * t)
    assert torch.equal(dx, 1 - t * t)
