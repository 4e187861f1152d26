"""One rounding: every 16-bit value, every midpoint between two of them, and just beside each."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from oracles.formats import FORMATS, format_of
from oracles.rounding import from_bits, neighbour, round_exact, round_once, to_bits

ALL = torch.arange(1 << 16)
SIXTEEN = [torch.float16, torch.bfloat16]


def ladder(dtype: torch.dtype) -> Tensor:
    """Bits of nonnegative finite values: all of a 16-bit dtype, of FP32 some thousands with the seams."""
    if dtype != torch.float32:
        return torch.arange(int(to_bits(torch.tensor(torch.inf, dtype=dtype))))
    drawn = torch.randint(0, 0x7F800000, (20000,), generator=torch.Generator().manual_seed(1))
    seams = [0, 1, 2, 0x7FFFFF, 0x800000, 0x800001, 0x3F7FFFFF, 0x3F800000, 0x7F7FFFFE, 0x7F7FFFFF]
    return torch.cat([drawn, torch.tensor(seams)])


def midpoints(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Bits of a value, bits of the next one up (infinity after the last), and the FP64 midpoint between them."""
    bits = ladder(dtype)
    low = from_bits(bits, dtype).double()
    high = from_bits(bits + 1, dtype).double()
    high[high.isinf()] = float(format_of(dtype).overflow)
    return bits, bits + 1, (low + high) / 2


@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_every_value_rounds_to_itself(dtype: torch.dtype) -> None:
    values = from_bits(ALL, dtype)
    rounded = round_once(values.double(), dtype)
    nan = values.isnan()
    assert torch.equal(to_bits(rounded)[~nan], to_bits(values)[~nan])
    assert rounded[nan].isnan().all()


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_midpoints_and_their_sides(dtype: torch.dtype) -> None:
    below, above, middle = midpoints(dtype)
    infinity = torch.full_like(middle, torch.inf)
    even = torch.where(below % 2 == 0, below, above)
    for value, want in (
        (middle, even),
        (torch.nextafter(middle, -infinity), below),
        (torch.nextafter(middle, infinity), above),
    ):
        assert torch.equal(to_bits(round_once(value, dtype)).long(), want)
        assert torch.equal(round_once(-value, dtype), -from_bits(want, dtype))


def test_fp16_agrees_with_numpy_which_rounds_once() -> None:
    generator = torch.Generator().manual_seed(2)
    value = torch.randn(50000, generator=generator, dtype=torch.float64).exp2() * 10.0 ** torch.randint(
        -9, 6, (50000,), generator=generator
    )
    with np.errstate(over="ignore"):
        want = torch.from_numpy(value.numpy().astype(np.float16))
    assert torch.equal(round_once(value, torch.float16), want)


def test_fp32_agrees_with_the_hardware() -> None:
    bits = torch.randint(-(2**63), 2**63 - 1, (50000,), generator=torch.Generator().manual_seed(3))
    wide = bits.view(torch.float64)
    scaled = torch.randn(50000, dtype=torch.float64) * 2.0**-140
    for value in (wide[~wide.isnan()], scaled):
        assert torch.equal(to_bits(round_once(value, torch.float32)), to_bits(value.float()))


@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_no_rounding_through_fp32(dtype: torch.dtype) -> None:
    step = 2.0 ** (1 - format_of(dtype).precision)
    value = torch.tensor([1 + step / 2 + 2.0**-40], dtype=torch.float64)
    assert value.to(dtype).item() == 1.0, "torch's own cast still rounds twice"
    assert round_once(value, dtype).item() == 1 + step
    assert round_exact(Fraction(value.item()), dtype) == 1 + step


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_zeros_infinities_and_nan(dtype: torch.dtype) -> None:
    fmt = format_of(dtype)
    value = torch.tensor(
        [0.0, -0.0, -fmt.smallest / 2, math.inf, -math.inf, 1e308, math.nan], dtype=torch.float64
    )
    rounded = round_once(value, dtype)
    assert rounded[:3].signbit().tolist() == [False, True, True]
    assert rounded[:6].tolist() == [0.0, 0.0, 0.0, math.inf, -math.inf, math.inf]
    assert rounded[6].isnan()


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_the_two_roundings_agree(dtype: torch.dtype) -> None:
    _, _, middle = midpoints(dtype)
    some = middle[:: max(1, len(middle) // 1500)]
    value = torch.cat([some, torch.nextafter(some, some * 2), -some / 3, some * 1.1])
    want = [round_exact(Fraction(v), dtype) for v in value.tolist()]
    assert round_once(value, dtype).tolist() == want


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_the_first_value_that_overflows(dtype: torch.dtype) -> None:
    top = Fraction(torch.finfo(dtype).max)
    middle = (top + format_of(dtype).overflow) / 2
    assert round_exact(middle, dtype) == -round_exact(-middle, dtype) == math.inf
    assert round_exact(middle, dtype, -1) == top


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_an_open_end_decides_a_tie(dtype: torch.dtype) -> None:
    step = 2.0 ** (1 - format_of(dtype).precision)
    for start in (1.0, 1.0 + step):
        tie = Fraction(start) + Fraction(step) / 2
        assert [round_exact(tie, dtype, side) for side in (-1, 1)] == [start, start + step]
        assert [round_exact(-tie, dtype, side) for side in (-1, 1)] == [-start - step, -start]
    assert round_exact(Fraction(1), dtype, -1) == round_exact(Fraction(1), dtype, 1) == 1.0


@pytest.mark.parametrize("dtype", SIXTEEN, ids=str)
def test_bits_there_and_back(dtype: torch.dtype) -> None:
    assert torch.equal(to_bits(from_bits(ALL, dtype)).long() & 0xFFFF, ALL)


def test_bits_of_a_strided_tensor_in_logical_order() -> None:
    t = torch.arange(6.0).reshape(2, 3).t()
    assert torch.equal(to_bits(t), to_bits(t.contiguous()))


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_neighbours(dtype: torch.dtype) -> None:
    fmt, top = format_of(dtype), torch.finfo(dtype).max
    t = torch.tensor(
        [1.0, -1.0, 0.0, -0.0, fmt.smallest, -fmt.smallest, top, -math.inf, math.nan], dtype=dtype
    )
    step = 2.0 ** (1 - fmt.precision)
    up = neighbour(t, 1)
    assert up[:8].tolist() == [
        1 + step,
        -1 + step / 2,
        fmt.smallest,
        fmt.smallest,
        2 * fmt.smallest,
        0,
        math.inf,
        -top,
    ]
    assert up[5].signbit()
    assert up[8].isnan()
    assert neighbour(t, -1)[7].item() == -math.inf
    assert torch.equal(to_bits(neighbour(t, 0)), to_bits(t))


def test_the_encodings_are_those_of_the_values_also_where_a_bit_negates_them() -> None:
    lazy = torch.complex(torch.zeros(3), torch.tensor([-1.0, 0.0, 2.0])).conj().imag
    assert lazy.is_neg()
    assert torch.equal(to_bits(lazy), to_bits(torch.tensor([1.0, -0.0, -2.0])))
