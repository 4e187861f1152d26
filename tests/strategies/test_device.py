"""On an accelerator: a case builds the same bits there as on the CPU, in the same layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from strategies.case import Case
from strategies.dtypes import DTYPES, FORMATS, TORCH
from strategies.layouts import LAYOUTS
from strategies.upstream import UPSTREAM
from strategies.values import VALUES

pytestmark = pytest.mark.gpu


def same_bits(one: Tensor, two: Tensor) -> bool:
    """Bits compared on the CPU after a plain copy of the memory, strides too."""
    integer = FORMATS[{dtype: name for name, dtype in TORCH.items()}[one.dtype]].integer
    left, right = (tensor.contiguous().view(integer).cpu() for tensor in (one, two))
    return torch.equal(left, right) and one.stride() == two.stride()


@pytest.mark.parametrize("cap", [2.0**-60, 1, 30.1, 2.0**60])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_family_builds_the_same_bits(dtype: str, cap: float) -> None:
    for family in VALUES:
        case = Case((70_001,), dtype, cap, values=family, seed=12)
        assert same_bits(case.x("cuda"), case.x()), family
    for family in (*UPSTREAM, "hashed"):
        case = Case((70_001,), dtype, cap, seed=12, knobs=(("grad_values", family),))
        for sent in TORCH.values():
            assert same_bits(case.grad_y(sent, "cuda"), case.grad_y(sent)), family


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_the_same(layout: str) -> None:
    for dtype in DTYPES:
        case = Case((4, 3, 1, 65), dtype, 30, layout=layout, values="bits")
        assert same_bits(case.x("cuda"), case.x())
        assert case.x("cuda").storage_offset() == case.x().storage_offset()


def test_literal_bits_are_the_same() -> None:
    case = Case(
        (4,), "bf16", 30, values=(0x7FC1, 0x8000, 1, 0xFF80), knobs=(("grad_bits", (1, 0x80000000, 5, 7)),)
    )
    assert same_bits(case.x("cuda"), case.x())
    assert same_bits(case.grad_y(torch.float32, "cuda"), case.grad_y(torch.float32))
    assert same_bits(case.grad_y(torch.bfloat16, "cuda"), case.grad_y(torch.bfloat16))
