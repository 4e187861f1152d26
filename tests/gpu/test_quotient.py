"""All 2^32 inputs have the same bits through the reciprocal of the cap as through a division for each element."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from softcap.kernels import BLOCK, negative_reciprocal, softcap_backward_kernel, softcap_forward_kernel
from softcap.triton_op import ENABLE_FP_FUSION, NUM_WARPS
from strategies.caps import as_fp32

pytestmark = pytest.mark.gpu

CAPS = (30.0, 20.0, 1.0, 7.3, 17.3, 2 - 2**-23, 2.0**-40, 2.0**60)
CAPS += (2.0**-149, 1.7 * 2.0**-130, 2.0**60 * (1 + 2.0**-23), 1.6 * 2.0**101, 2.0**128 - 2.0**104)
OPTIONS = {"num_warps": NUM_WARPS, "enable_fp_fusion": ENABLE_FP_FUSION}
PART = 1 << 27


def every_input() -> Iterator[Tensor]:
    """All FP32 bit patterns, 2^27 at a time."""
    low = torch.arange(PART, device="cuda", dtype=torch.int32)
    for high in range(-16, 16):
        yield (low + high * PART).view(torch.float32)


def differing(one: Tensor, other: Tensor) -> int:
    bits = one.view(torch.int32) != other.view(torch.int32)
    return int((bits & ~(one.isnan() & other.isnan())).sum())


@pytest.mark.parametrize("cap", CAPS)
def test_every_output_has_the_bits_of_the_division(cap: float) -> None:
    c = as_fp32(cap)
    divided, multiplied = (torch.empty(PART, device="cuda") for _ in range(2))
    for x in every_input():
        for y, reciprocal in ((divided, None), (multiplied, negative_reciprocal(c))):
            softcap_forward_kernel[(PART // BLOCK,)](
                x, y, c, PART, BLOCK=BLOCK, reciprocal=reciprocal, **OPTIONS
            )
        assert differing(divided, multiplied) == 0


@pytest.mark.parametrize("cap", CAPS[:4])
def test_every_gradient_has_the_bits_of_the_division(cap: float) -> None:
    c = as_fp32(cap)
    divided, multiplied, g = (torch.ones(PART, device="cuda") for _ in range(3))
    for x in every_input():
        for dx, reciprocal in ((divided, None), (multiplied, negative_reciprocal(c))):
            softcap_backward_kernel[(PART // BLOCK,)](
                x, g, dx, c, PART, BLOCK=BLOCK, reciprocal=reciprocal, **OPTIONS
            )
        assert differing(divided, multiplied) == 0
