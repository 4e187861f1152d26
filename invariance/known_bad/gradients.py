"""Wrong derivatives: dx for a forward that is right."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, gradient, slope


@wrong(bugs=(47,), must={"cap_used", "double_backward", "exact_value", "special_values", "specification"})
def straight_through(softcap: float) -> Kernel:
    """dx = grad_y, everywhere."""
    return Kernel(softcap, backward=lambda x, g, _: g.to(x.dtype).clone())


@wrong(
    bugs=(47,),
    must={"cap_scaling", "cap_used", "double_backward", "exact_value", "special_values", "specification"},
)
def times_the_cap(softcap: float) -> Kernel:
    """The c of the product is kept, the 1 / c of the quotient is forgotten."""
    return Kernel(softcap, backward=lambda x, g, c: (g * c * slope(x, c)).to(x.dtype))


@wrong(bugs=(48,), must={"exact_value", "special_values", "specification"})
def no_gradient_at_saturation(softcap: float) -> Kernel:
    """The derivative is cut to 0 from |z| = 4 on, where it is still 1.3e-3."""
    return Kernel(softcap, backward=lambda x, g, c: gradient(x, g, c) * ((x.float() / c).abs() < 4))


@wrong(bugs=(53,), must={"cap_used", "exact_value", "special_values", "specification"})
def saved_in_bf16(softcap: float) -> Kernel:
    """tanh is saved in BF16 and cancels where the model is confident."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        t = torch.tanh(x.float() / c).bfloat16().float()
        return (g * (1 - t * t)).to(x.dtype)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(48,), must={"cap_used", "exact_value", "special_values"})
def twelve_units(softcap: float) -> Kernel:
    """The slope is 12 * 2^-24 too large, twice what a correct formula needs."""
    return Kernel(softcap, backward=lambda x, g, c: (g * (slope(x, c) + 12 * 2.0**-24)).to(x.dtype))


@wrong(bugs=(1, 47), must={"exact_value", "special_values", "specification", "zeros"})
def exponential_slope(softcap: float) -> Kernel:
    """4e / (1 + e)² with e = exp(2|z|) is inf / inf for large z."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        e = torch.exp(2 * (x.float() / c).abs())
        return (g * (4 * e / ((1 + e) * (1 + e)))).to(x.dtype)

    return Kernel(softcap, backward=backward)


@wrong(
    bugs=(47,),
    must={
        "cap_used",
        "double_backward",
        "exact_value",
        "oddness",
        "sign",
        "special_values",
        "specification",
        "zeros",
    },
)
def negated_on_one_side(softcap: float) -> Kernel:
    """The derivative is taken as odd: negative inputs push the wrong way."""
    return Kernel(softcap, backward=lambda x, g, c: torch.where(x < 0, -1.0, 1.0) * gradient(x, g, c))
