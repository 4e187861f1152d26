"""Wrong by memory: strides, offsets, alignment, dimensions that are one in memory."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import ANY, AS_GIVEN, wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged, read_flat, repeats_in_the_middle


@wrong(bugs=(60, 64), must={"layout"}, may=AS_GIVEN)
def strided_read_flat(softcap: float) -> Kernel:
    """Every input is read as contiguous, whatever its strides are."""
    return Kernel(softcap, lambda x, c: capped(read_flat(x), c))


@wrong(bugs=(60, 95), must={"layout"}, may=AS_GIVEN)
def strided_read_flat_in_inference(softcap: float) -> Kernel:
    """Only the inference kernel forgets the strides."""
    return Kernel(softcap, inference=lambda x, c: capped(read_flat(x), c))


@wrong(bugs=(57,), must={"layout"}, may={"vocabulary_shards"})
def width_for_stride(softcap: float) -> Kernel:
    """Rows of a padded vocabulary are read with their width as the stride."""

    def forward(x: Tensor, c: float) -> Tensor:
        rows = x.dim() > 1 and x.stride(-1) == 1 and x.stride(-2) > x.shape[-1]
        return capped(read_flat(x) if rows else x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(59,), must={"layout"}, may=AS_GIVEN, profile="quick")
def written_into_a_copy(softcap: float) -> Kernel:
    """The results of a transposed input land in a flattened copy of the output."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = torch.zeros_like(x, dtype=torch.float32)
        y.flatten().copy_(capped(x, c).flatten())
        return y if y.is_contiguous() else y * 1.0

    return Kernel(
        softcap, lambda x, c: forward(x, c) if _dense(x) and not x.is_contiguous() else capped(x, c)
    )


def _dense(x: Tensor) -> bool:
    return torch.empty_like(x).stride() == x.stride() and x.numel() > 1


@wrong(
    bugs=(60,),
    must={"layout"},
    may={
        "alignment", "batch", "empty_and_scalar", "guard_bands", "slicing", "splitting",
        "vocabulary_shards",
    },
)  # fmt: skip
def storage_from_its_start(softcap: float) -> Kernel:
    """The storage's pointer is used where the tensor's belongs: offsets are lost."""

    def forward(x: Tensor, c: float) -> Tensor:
        return capped(x.as_strided(x.shape, x.stride(), 0), c)

    return Kernel(softcap, forward)


@wrong(
    bugs=(72,),
    must={"alignment"},
    may={"batch", "empty_and_scalar", "guard_bands", "layout", "slicing", "splitting", "vocabulary_shards"},
)
def misaligned(softcap: float) -> Kernel:
    """A pointer off 16 bytes takes a scalar loop with another rounding."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), x.data_ptr() % 16 != 0))


@wrong(
    bugs=(72,),
    must={
        "alignment", "batch", "empty_and_scalar", "guard_bands", "layout", "slicing", "splitting",
        "vocabulary_shards",
    },
    may={"autograd_gradients", "grad_mode", "neighbours", "padding", "permutation"},
    profile="quick",
)  # fmt: skip
def misaligned_gradient(softcap: float) -> Kernel:
    """An upstream gradient off 16 bytes takes another path than an aligned one."""
    return Kernel(softcap, backward=lambda x, g, c: nudged(gradient(x, g, c), g.data_ptr() % 16 != 0))


@wrong(bugs=(60, 65), must={"layout"}, may=ANY)
def strided_refused(softcap: float) -> Kernel:
    """Anything that is not contiguous is refused."""

    def check(x: Tensor) -> None:
        if x.dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise TypeError(f"not {x.dtype}")
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")

    return Kernel(softcap, check=check)


@wrong(bugs=(60,), must={"layout"}, may=AS_GIVEN, profile="quick")
def permuted_dimensions(softcap: float) -> Kernel:
    """Three dimensions in no usual order are sorted by stride, and stay sorted."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.dim() < 3 or x.is_contiguous() or not _dense(x):
            return capped(x, c)
        order = sorted(range(x.dim()), key=x.stride().__getitem__, reverse=True)
        return capped(x.permute(order).reshape(x.shape), c)

    return Kernel(softcap, forward)


@wrong(bugs=(60,), must={"layout"})
def tokens_expanded_read_flat(softcap: float) -> Kernel:
    """An input that repeats over the tokens alone, stride 0 in the middle, is read past its one token."""
    return Kernel(softcap, lambda x, c: capped(read_flat(x) if repeats_in_the_middle(x) else x, c))


@wrong(bugs=(60,), must={"layout"})
def windows_read_flat(softcap: float) -> Kernel:
    """Overlapping rows, as of unfold(), are read as if each had memory of its own."""
    return Kernel(softcap, lambda x, c: capped(read_flat(x) if _windows(x) else x, c))


@wrong(bugs=(59, 60), must={"result_form"})
def result_in_windows(softcap: float) -> Kernel:
    """The result takes its strides from x, so that it overlaps itself where x does."""
    return Kernel(softcap, lambda x, c: _in_strides_of(x, capped(x, c)))


@wrong(bugs=(59, 60), must={"layout", "result_form"})
def gradient_in_windows(softcap: float) -> Kernel:
    """The gradient takes its strides from x: rows that overlap write over each other's."""
    return Kernel(softcap, backward=lambda x, g, c: _in_strides_of(x, gradient(x, g, c)))


def _windows(t: Tensor) -> bool:
    """Whether the last two dimensions of a tensor each step onto the other's elements, none by a stride of 0."""
    if t.dim() < 2:
        return False
    (rows, columns), (down, along) = t.shape[-2:], t.stride()[-2:]
    return 0 < down <= along * (columns - 1) and 0 < along <= down * (rows - 1)


def _in_strides_of(x: Tensor, result: Tensor) -> Tensor:
    """The result in memory that is laid out as that of x, where rows overlap; what is written last stays."""
    if not _windows(x):
        return result
    lapped = torch.empty_strided(x.shape, x.stride(), dtype=result.dtype, device=x.device)
    for row in range(x.shape[-2]):
        lapped[..., row, :].copy_(result[..., row, :])
    return lapped


@wrong(bugs=(59, 60), must={"layout"})
def negation_bit_missed(softcap: float) -> Kernel:
    """A contiguous tensor is read from its pointer, although the bit is set that negates what stands there."""
    return Kernel(softcap, lambda x, c: capped(_as_stored(x), c))


@wrong(bugs=(65,), must={"layout"})
def negation_bit_of_the_gradient_missed(softcap: float) -> Kernel:
    """The upstream gradient is read from its pointer, although the bit is set that negates what stands there."""
    return Kernel(softcap, backward=lambda x, g, c: gradient(x, _as_stored(g), c))


def _as_stored(t: Tensor) -> Tensor:
    """The numbers in memory where the negation bit says to take the opposite ones."""
    return torch._neg_view(t) if t.is_neg() and t.is_contiguous() else t
