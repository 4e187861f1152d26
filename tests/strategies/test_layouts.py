"""Every layout: the same logical tensor, other memory, NaN in what is unused, and the strides it promises."""

from __future__ import annotations

from math import prod

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from strategies.case import Case
from strategies.cases import shapes
from strategies.dtypes import DTYPES, TORCH, from_bits, to_bits
from strategies.layouts import FALLBACK, LAYOUTS, VALUE_CHANGING, applies, effective

SHAPES = [
    *((), (0,), (1,), (5,), (64,), (0, 5), (3, 0), (2, 3), (1, 7), (7, 1)),
    *((4, 64), (2, 3, 5), (2, 1, 3, 4), (2, 1, 3, 2, 2)),
]


def counted(shape: tuple[int, ...], dtype: str = "fp32") -> Tensor:
    """A tensor whose elements all differ, none of them NaN."""
    return from_bits(torch.arange(1, prod(shape) + 1), dtype).view(shape)


def memory(tensor: Tensor) -> Tensor:
    """Everything in the storage, 1-D."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((count,), (1,), 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shape_dtype_and_logical_bits_stay(layout: str, shape: tuple[int, ...], dtype: str) -> None:
    plain = counted(shape, dtype)
    placed = LAYOUTS[layout](plain)
    assert (placed.shape, placed.dtype) == (plain.shape, TORCH[dtype])
    same = torch.equal(to_bits(placed), to_bits(plain))
    assert same or effective(layout, shape) in VALUE_CHANGING
    assert set(to_bits(placed).reshape(-1).tolist()) <= set(to_bits(plain).reshape(-1).tolist())


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None, max_examples=40)
@given(shape=shapes(max_elements=300))
def test_unused_memory_is_nan_and_used_memory_is_not(layout: str, shape: tuple[int, ...]) -> None:
    placed = LAYOUTS[layout](counted(shape))
    used = memory(placed).clone()
    spots = torch.arange(used.numel()).as_strided(placed.shape, placed.stride(), placed.storage_offset())
    unused = torch.ones(used.numel(), dtype=torch.bool)
    unused[spots.reshape(-1)] = False
    if placed.numel():
        assert torch.equal(used.isnan(), unused)
    else:
        assert bool(used[unused].isnan().all()) or effective(layout, shape) in VALUE_CHANGING


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_is_shared_with_the_tensor_given(layout: str) -> None:
    plain = counted((2, 3, 1, 5)).requires_grad_()
    placed = LAYOUTS[layout](plain)
    assert placed.untyped_storage().data_ptr() != plain.untyped_storage().data_ptr()
    assert not placed.requires_grad


STRIDES = {
    "contiguous": ((48, 12, 4, 1), 0),
    "offset": ((48, 12, 4, 1), 1),
    "offset_aligned": ((48, 12, 4, 1), 64),
    "stepped": ((96, 24, 8, 2), 0),
    "padded_vocabulary": ((768, 192, 64, 1), 0),
    "vocabulary_shard": ((192, 48, 16, 1), 4),
    "from_cat": ((84, 21, 7, 1), 3),
    "transposed": ((48, 12, 1, 3), 0),
    "permuted": ((1, 24, 8, 2), 0),
    "channels_last": ((48, 1, 16, 4), 0),
    "expanded": ((0, 12, 4, 1), 0),
    "expanded_last": ((12, 3, 1, 0), 0),
    "tokens_expanded": ((16, 4, 0, 1), 0),
    "windows": ((24, 6, 1, 1), 0),
    "stride_zero": ((0, 0, 0, 0), 0),
}


@pytest.mark.parametrize("layout", STRIDES)
def test_strides_and_offset(layout: str) -> None:
    placed = LAYOUTS[layout](counted((2, 4, 3, 4)))
    assert (placed.stride(), placed.storage_offset()) == STRIDES[layout]


def test_strides_that_need_a_singleton() -> None:
    placed = LAYOUTS["odd_singletons"](counted((2, 1, 3)))
    assert placed.stride() == (3, 7, 1)
    assert placed.is_contiguous()
    assert set(LAYOUTS) == {*STRIDES, "odd_singletons"}


def test_the_misaligned_layout_is_misaligned_and_the_aligned_one_is_not() -> None:
    for dtype in DTYPES:
        assert LAYOUTS["offset"](counted((9,), dtype)).data_ptr() % 16 != 0
        assert LAYOUTS["offset_aligned"](counted((9,), dtype)).data_ptr() % 16 == 0


def test_cat_and_sum_really_send_such_gradients() -> None:
    x = counted((4, 6)).requires_grad_()
    seen: list[Tensor] = []
    y = x * 1.0
    y.register_hook(seen.append)
    torch.cat([torch.zeros(4, 3), y], dim=-1).backward(torch.ones(4, 9))
    z = x * 1.0
    z.register_hook(seen.append)
    z.sum().backward()
    model = LAYOUTS["from_cat"](x)
    assert (seen[0].stride(), seen[0].storage_offset()) == (model.stride(), model.storage_offset())
    assert seen[1].stride() == LAYOUTS["stride_zero"](x).stride()


def test_a_sum_over_tokens_and_unfold_really_make_such_tensors() -> None:
    x = counted((2, 4, 3)).requires_grad_()
    seen: list[Tensor] = []
    y = x * 1.0
    y.register_hook(seen.append)
    (y.sum(1) * counted((2, 3))).sum().backward()
    pooled = LAYOUTS["tokens_expanded"](x)
    assert (seen[0].stride(), pooled.stride()) == ((3, 0, 1), (3, 0, 1))
    assert torch.equal(pooled, x[:, :1].expand(2, 4, 3))
    unfolded = counted((2, 6)).unfold(1, 3, 1)
    lapped = LAYOUTS["windows"](unfolded)
    assert lapped.stride() == unfolded.stride() == (6, 1, 1)
    assert torch.equal(lapped, unfolded)


def test_fallbacks_end_in_a_layout_that_takes_anything() -> None:
    assert effective("channels_last", (2, 3, 4)) == "permuted"
    assert effective("permuted", (2, 3)) == "transposed"
    assert effective("transposed", (3,)) == "stepped"
    assert effective("stepped", ()) == "offset"
    assert effective("odd_singletons", (2, 3)) == "offset"
    assert effective("expanded", (0, 5)) == "stride_zero"
    assert effective("tokens_expanded", (2, 3)) == "expanded"
    assert effective("windows", (3, 0)) == "stepped"
    for layout in LAYOUTS:
        for shape in SHAPES:
            assert applies(effective(layout, shape), shape)
    assert all(applies(layout, ()) for layout in set(LAYOUTS) - set(FALLBACK))


def test_an_unknown_layout_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no layout 'sideways': there are contiguous, offset"):
        applies("sideways", (2,))


def test_a_case_places_both_of_its_tensors() -> None:
    case = Case((4, 3), "bf16", 30, layout="transposed", knobs=(("grad_layout", "from_cat"),))
    assert case.x().stride() == (1, 4)
    assert case.grad_y(torch.float32).stride() == (6, 1)
    assert torch.equal(case.x(), case.replace(layout="contiguous").x())
