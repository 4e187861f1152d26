"""Wrong use of the upstream gradient: its size, its sign, its layout, its storage."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import ANY, AS_GIVEN, wrong
from invariance.known_bad.kernel import (
    Kernel,
    capped,
    gradient,
    nudged,
    read_flat,
    repeats_in_the_middle,
    slope,
)


@wrong(
    bugs=(63, 84),
    must={
        "cap_used",
        "double_backward",
        "exact_value",
        "gradient_linearity",
        "oddness",
        "sign",
        "special_values",
        "specification",
        "zeros",
    },
)
def upstream_ignored(softcap: float) -> Kernel:
    """dx is the slope alone: right as long as a test sends ones."""
    return Kernel(softcap, backward=lambda x, g, c: (slope(x, c) * torch.ones_like(g)).to(x.dtype))


@wrong(bugs=(44, 53), must={"exact_value"}, profile="quick")
def small_upstream_lost(softcap: float) -> Kernel:
    """Upstream gradients below 2^-40 count as zero: the mean over a long batch vanishes."""
    return Kernel(softcap, backward=lambda x, g, c: gradient(x, torch.where(g.abs() < 2.0**-40, g * 0, g), c))


@wrong(
    bugs=(117,),
    must={"exact_value", "gradient_linearity", "oddness", "sign", "special_values", "zeros"},
)
def epsilon_added(softcap: float) -> Kernel:
    """A small constant 'for stability' is added to every gradient."""
    return Kernel(softcap, backward=lambda x, g, c: (gradient(x, g, c) + 1e-12).to(x.dtype))


@wrong(bugs=(88,), must={"gradient_linearity"})
def rounds_by_the_exponent(softcap: float) -> Kernel:
    """Upstream gradients from 1 on take another path, one ulp lower."""
    return Kernel(softcap, backward=lambda x, g, c: nudged(gradient(x, g, c), g.abs() >= 1))


@wrong(
    bugs=(62, 63, 64, 65),
    must={"layout"},
    may=AS_GIVEN | {"autograd_gradients"},
)
def upstream_read_flat(softcap: float) -> Kernel:
    """The upstream gradient is read as contiguous, whatever its strides are."""
    return Kernel(softcap, backward=lambda x, g, c: gradient(x, read_flat(g), c))


@wrong(bugs=(62, 64), must={"layout"}, may={"autograd_gradients"})
def stride_zero_read_flat(softcap: float) -> Kernel:
    """Only the gradient of a sum, stride 0 everywhere, is read past its one element."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        broadcast = g.numel() > 1 and not any(g.stride())
        return gradient(x, read_flat(g) if broadcast else g, c)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(62, 63), must={"autograd_gradients", "layout"})
def pooled_upstream_read_flat(softcap: float) -> Kernel:
    """The gradient of a sum over tokens, stride 0 in the middle alone, is read past its one token."""
    return Kernel(
        softcap,
        backward=lambda x, g, c: gradient(x, read_flat(g) if repeats_in_the_middle(g) else g, c),
    )


@wrong(
    bugs=(65,),
    must={"autograd_gradients", "layout"},
    may=AS_GIVEN,
    profile="quick",
)
def transposed_upstream_misread(softcap: float) -> Kernel:
    """Rows and columns of a transposed upstream gradient are mixed up; slices and sums are right."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        mixed = g.dim() > 1 and 0 < g.stride(-2) < g.stride(-1)
        return gradient(x, read_flat(g) if mixed else g, c)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(67,), must={"inputs_unmodified"}, may=ANY, profile="quick")
def upstream_overwritten(softcap: float) -> Kernel:
    """dx is written over grad_y, where the dtypes allow it."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        dx = gradient(x, g, c)
        if g.dtype == x.dtype and g.is_contiguous():
            g.data.copy_(dx)
        return dx

    return Kernel(softcap, backward=backward)


@wrong(bugs=(67,), must={"no_aliasing"})
def upstream_returned(softcap: float) -> Kernel:
    """Where every slope is 1 the upstream gradient itself is handed back, not a copy."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if x.numel() and g.dtype == x.dtype and bool((slope(x, c) == 1).all()):
            return g
        return gradient(x, g, c)

    return Kernel(softcap, capped, backward)
