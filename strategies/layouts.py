"""Memory layouts: the same logical tensor in other memory, whose unused elements are NaN.

Each takes a tensor and gives a new one of the same shape and dtype that shares no memory with it. The values
stay, except under `VALUE_CHANGING`, where several elements are one in memory. A layout that a shape has no
room for falls back along `FALLBACK` (a 1-D "transposed" is "stepped", a 0-d one "offset"): see `effective`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import torch
from torch import Tensor

__all__ = ["FALLBACK", "LAYOUTS", "VALUE_CHANGING", "applies", "effective", "place"]


def _poisoned(like: Tensor, count: int) -> Tensor:
    """`count` elements of NaN in one fresh allocation."""
    return torch.full((count,), float("nan"), dtype=like.dtype, device=like.device)


def _boxed(tensor: Tensor, before: int, after: int) -> Tensor:
    """The tensor inside rows that are wider by `before` and `after` elements of NaN (rank 1 or more)."""
    width = tensor.shape[-1]
    wide = _poisoned(tensor, prod(tensor.shape[:-1]) * (before + width + after))
    view = wide.view(*tensor.shape[:-1], before + width + after).narrow(-1, before, width)
    return view.copy_(tensor.detach())


def _ordered(tensor: Tensor, order: tuple[int, ...]) -> Tensor:
    """The tensor with its dimensions in memory in the order given, outermost first."""
    inverse = [order.index(dim) for dim in range(len(order))]
    return tensor.detach().permute(order).clone(memory_format=torch.contiguous_format).permute(inverse)


def contiguous(tensor: Tensor) -> Tensor:
    """The plain layout: the control."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def offset(tensor: Tensor) -> Tensor:
    """One element into its allocation: pointers that are not 16-byte aligned (BUGS.md #72)."""
    base = _poisoned(tensor, tensor.numel() + 2)
    return base.narrow(0, 1, tensor.numel()).view(tensor.shape).copy_(tensor.detach())


def offset_aligned(tensor: Tensor) -> Tensor:
    """64 elements into its allocation: aligned, and wrong for a kernel that takes the storage's pointer."""
    base = _poisoned(tensor, tensor.numel() + 128)
    return base.narrow(0, 64, tensor.numel()).view(tensor.shape).copy_(tensor.detach())


def stepped(tensor: Tensor) -> Tensor:
    """Every second element of its rows: a last stride of 2 read as 1 (BUGS.md #60)."""
    wide = _poisoned(tensor, 2 * tensor.numel()).view(*tensor.shape[:-1], 2 * tensor.shape[-1])
    return wide[..., ::2].copy_(tensor.detach())


def padded_vocabulary(tensor: Tensor) -> Tensor:
    """Rows padded past the vocabulary to a multiple of 64: the width taken for the stride (BUGS.md #57)."""
    return _boxed(tensor, 0, 64 - tensor.shape[-1] % 64)


def vocabulary_shard(tensor: Tensor) -> Tensor:
    """The second of four column shards of tensor parallelism: row stride and offset (BUGS.md #57)."""
    return _boxed(tensor, tensor.shape[-1], 2 * tensor.shape[-1])


def from_cat(tensor: Tensor) -> Tensor:
    """Part of the gradient of torch.cat along the last dimension: strided unasked (BUGS.md #63)."""
    return _boxed(tensor, 3, 0)


def transposed(tensor: Tensor) -> Tensor:
    """The last two dimensions swapped in memory: flatten() is a copy, so writes are lost (BUGS.md #59)."""
    rank = tensor.dim()
    return _ordered(tensor, (*range(rank - 2), rank - 1, rank - 2))


def permuted(tensor: Tensor) -> Tensor:
    """All dimensions of a 3-D tensor or more rotated in memory: strides in no usual order (BUGS.md #60)."""
    return _ordered(tensor, (*range(1, tensor.dim()), 0))


def channels_last(tensor: Tensor) -> Tensor:
    """Dimension 1 innermost: dense, so that empty_like() keeps the strides, but not contiguous."""
    return _ordered(tensor, (0, *range(2, tensor.dim()), 1))


def odd_singletons(tensor: Tensor) -> Tensor:
    """Dimensions of size 1 with a meaningless stride: code that compares strides to tell contiguity."""
    fresh = contiguous(tensor)
    strides = [7 if size == 1 else stride for size, stride in zip(fresh.shape, fresh.stride(), strict=True)]
    return fresh.as_strided(fresh.shape, strides)


def expanded(tensor: Tensor) -> Tensor:
    """The first row for all rows, stride 0 along the first dimension: in-place writes and flat reads."""
    return tensor.detach()[:1].clone(memory_format=torch.contiguous_format).expand(tensor.shape)


def expanded_last(tensor: Tensor) -> Tensor:
    """The first column for all columns, stride 0 along the last dimension: vector loads of a broadcast."""
    return tensor.detach()[..., :1].clone(memory_format=torch.contiguous_format).expand(tensor.shape)


def tokens_expanded(tensor: Tensor) -> Tensor:
    """The first token for all tokens, stride 0 in the middle: as from a sum over tokens (BUGS.md #62, #63)."""
    return tensor.detach()[..., :1, :].clone(memory_format=torch.contiguous_format).expand(tensor.shape)


def windows(tensor: Tensor) -> Tensor:
    """Each row the one before it moved by one, as of unfold(): rows overlap, and no stride is 0 (BUGS.md #60)."""
    line = torch.cat([tensor.detach()[..., 0, :], tensor.detach()[..., 1:, -1]], dim=-1).contiguous()
    return line.as_strided(tensor.shape, (*line.stride()[:-1], 1, 1))


def stride_zero(tensor: Tensor) -> Tensor:
    """One element for all, every stride 0, as the gradient of sum(): reads past it (BUGS.md #62, #64)."""
    if tensor.numel() == 0:
        return torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(tensor.shape)
    return tensor.detach().reshape(-1)[0].clone().expand(tensor.shape)


# In the order in which a shrinker prefers them.
LAYOUTS: Final[dict[str, Callable[[Tensor], Tensor]]] = {}
VALUE_CHANGING: Final = frozenset({"expanded", "expanded_last", "tokens_expanded", "windows", "stride_zero"})
FALLBACK: Final[dict[str, str]] = {
    "stepped": "offset", "padded_vocabulary": "offset", "vocabulary_shard": "offset", "from_cat": "offset",
    "transposed": "stepped", "permuted": "transposed", "channels_last": "permuted",
    "odd_singletons": "offset", "expanded": "stride_zero", "expanded_last": "stride_zero",
    "tokens_expanded": "expanded", "windows": "stepped",
}  # fmt: skip
_BUILDERS: Final[tuple[Callable[[Tensor], Tensor], ...]] = (
    contiguous, offset, offset_aligned, stepped, padded_vocabulary, vocabulary_shard, from_cat, transposed,
    permuted, channels_last, odd_singletons, expanded, expanded_last, tokens_expanded, windows, stride_zero,
)  # fmt: skip
_RANKS: Final[dict[str, int]] = {
    "stepped": 1, "padded_vocabulary": 1, "vocabulary_shard": 1, "from_cat": 1, "transposed": 2,
    "permuted": 3, "channels_last": 4, "expanded": 1, "expanded_last": 1,
    "tokens_expanded": 3, "windows": 2,
}  # fmt: skip


def applies(layout: str, shape: tuple[int, ...]) -> bool:
    """Whether the shape has room for the layout; ValueError for a layout that does not exist."""
    if layout not in LAYOUTS:
        raise ValueError(f"no layout {layout!r}: there are {', '.join(LAYOUTS)}")
    if layout == "odd_singletons":
        return 1 in shape
    if layout in VALUE_CHANGING - {"stride_zero"} and 0 in shape:
        return False
    return len(shape) >= _RANKS.get(layout, 0)


def effective(layout: str, shape: tuple[int, ...]) -> str:
    """The layout that a tensor of this shape gets: the one asked for or its first fallback that applies."""
    while not applies(layout, shape):
        layout = FALLBACK[layout]
    return layout


def place(layout: str, tensor: Tensor) -> Tensor:
    """The tensor in the layout, or in the fallback that its shape has room for."""
    return _PLAIN[effective(layout, tuple(tensor.shape))](tensor)


def _guarded(layout: str) -> Callable[[Tensor], Tensor]:
    """The entry of LAYOUTS: it takes any shape."""

    def build(tensor: Tensor) -> Tensor:
        return place(layout, tensor)

    build.__name__, build.__doc__ = layout, _PLAIN[layout].__doc__
    return build


_PLAIN: Final = {builder.__name__: builder for builder in _BUILDERS}
LAYOUTS.update({layout: _guarded(layout) for layout in _PLAIN})
