"""Wrong by company: an element's bits depend on what stands beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, nudged


def _in_eights(flag: Tensor) -> Tensor:
    """Whether any of the eight elements of the same vector has the flag, shaped like it."""
    line = flag.reshape(-1)
    padded = torch.cat([line, line.new_zeros(-line.numel() % 8)]).view(-1, 8)
    return padded.any(1, keepdim=True).expand(-1, 8).reshape(-1)[: line.numel()].view(flag.shape)


@wrong(bugs=(5, 43), must={"neighbours", "padding", "vocabulary_shards"}, may={"splitting"})
def nan_in_the_vector(softcap: float) -> Kernel:
    """A NaN sends its whole vector of eight to a slow path, one ulp lower."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), _in_eights(x.isnan())))


@wrong(
    bugs=(5,),
    must={"exact_value", "neighbours", "padding", "special_values", "specification", "vocabulary_shards"},
    may={"splitting"},
)
def nan_poisons(softcap: float) -> Kernel:
    """A NaN makes its whole vector of eight NaN."""
    return Kernel(softcap, lambda x, c: torch.where(_in_eights(x.isnan()), torch.nan, capped(x, c)))


@wrong(
    bugs=(11, 21),
    must={"cap_scaling", "cap_used", "neighbours", "padding"},
    may={"batch", "slicing", "vocabulary_shards"},
    profile="quick",
    elements=512,
)
def mask_in_the_vector(softcap: float) -> Kernel:
    """An infinity, as a mask leaves it, sends its vector to a slow path."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), _in_eights(x.isinf())))


@wrong(
    bugs=(90, 33),
    must={"function_transforms", "neighbours", "padding", "slicing", "splitting"},
    may={"batch", "cap_scaling", "empty_and_scalar", "permutation", "special_values", "vocabulary_shards"},
    profile="quick",
    elements=128,
)
def scaled_by_the_largest(softcap: float) -> Kernel:
    """The tensor is divided by its largest element first and multiplied back later."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.numel() == 0:
            return capped(x, c)
        finite = torch.where(x.isfinite(), x.float().abs(), 0.0).max()
        scale = torch.where((finite > 1e-20) & (finite < 1e20), finite, 1.0)
        return c * torch.tanh(x.float() / scale / c * scale)

    return Kernel(softcap, forward)
