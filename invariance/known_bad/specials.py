"""Wrong at single values: zeros, NaN, infinities, the largest and the smallest numbers, the cap itself."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged


@wrong(bugs=(37, 55), must={"oddness", "zeros"})
def negative_zero_lost(softcap: float) -> Kernel:
    """-0.0 comes out as +0.0."""
    return Kernel(softcap, lambda x, c: capped(x, c) + 0.0)


@wrong(bugs=(55,), must={"exact_value", "oddness", "special_values", "specification"})
def nan_to_zero(softcap: float) -> Kernel:
    """NaN becomes 0 on the way through."""
    return Kernel(softcap, lambda x, c: torch.nan_to_num(capped(x, c), nan=0.0))


@wrong(bugs=(11, 21, 23, 25), must={"bound", "cap_used", "exact_value", "special_values"})
def infinity_kept(softcap: float) -> Kernel:
    """Masked logits pass uncapped: ±inf stays ±inf."""
    return Kernel(softcap, lambda x, c: torch.where(x.isinf(), x.float(), capped(x, c)))


@wrong(
    bugs=(3,),
    must={"cap_scaling", "exact_value", "oddness", "saturation", "special_values", "specification"},
)
def largest_overflows(softcap: float) -> Kernel:
    """A range reduction doubles |x| first, and the upper half of the last binade is taken for a mask."""
    return Kernel(
        softcap, lambda x, c: torch.where((x.float() * 2).isinf() & x.isfinite(), 0.0, capped(x, c))
    )


@wrong(bugs=(3, 38), must={"bound", "cap_used", "saturation"})
def above_the_cap(softcap: float) -> Kernel:
    """Saturated results are one ulp above the cap."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        return torch.where(y.abs() == c, torch.nextafter(y, y * 2), y)

    return Kernel(softcap, forward)


@wrong(bugs=(35,), must={"oddness"})
def two_sides(softcap: float) -> Kernel:
    """Positive inputs round one ulp lower than negative ones."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), (x > 0) & (capped(x, c).abs() != c)))


@wrong(bugs=(37,), must={"special_values", "zeros"})
def gradient_zero_unsigned(softcap: float) -> Kernel:
    """An upstream gradient of -0.0 gives +0.0."""
    return Kernel(softcap, backward=lambda x, g, c: torch.where(g == 0, 0.0, gradient(x, g, c)).to(x.dtype))


@wrong(bugs=(55,), must={"special_values"})
def gradient_nan_lost(softcap: float) -> Kernel:
    """A NaN in the upstream gradient becomes 0, and the loss that diverged goes unseen."""
    return Kernel(softcap, backward=lambda x, g, c: gradient(x, torch.where(g.isnan(), 0.0, g), c))


@wrong(bugs=(50,), must={"cap_scaling"})
def binade_of_the_cap(softcap: float) -> Kernel:
    """Caps below 16 take a reciprocal with one ulp less: two caps that should scale do not."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), (c < 16) & (capped(x, c).abs() != c)))
