"""The FP64 oracle: whole tensors on their own device, with a proven bound on its error.

Let u = 2**-53, z = |x| / c. x and c are FP32 values, exact in FP64, so the only errors are one rounding of
z and the operations that follow; nothing underflows, since z lies between 2**-277 and 2**277 or is 0.

Forward, c * tanh(z). The rounding of z moves tanh by a relative u * z * sech²(z) / tanh(z) = u * 2z /
sinh(2z) <= u; a tanh within 2 ulp adds at most 4u (an ulp is at most 2u of the value), the product u.
Together 6u(1 + 2u) < 2**-50.

Gradient, g / cosh²(z). The rounding of z moves sech² by a relative 2z * tanh(z) * u <= 2zu; a cosh within 2
ulp adds 4u, squared 8u; the square and the reciprocal add u each. Together (2z + 10)u to first order for
sech²; the product with g adds one more u, which like the second-order terms (2z <= 600) is a small part of
the widening.

A vendor's tanh and cosh are documented, not proven, so both bounds are widened by 64: published values are
decided by `oracles.exact` wherever these bounds cannot. torch's CPU cosh gives other last bits in the
vector body than in the tail; both lie well inside.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oracles.formats import cap_as_fp32

WIDENING = 64.0
"""Factor between the proven bounds and the ones used: room for a vendor's tanh and cosh."""

FAR = 300.0
"""From this |x/c| on sech² is taken as 0: it is below 4 * exp(-600) < 2**-863, and cosh² near overflow."""

FAR_SECH2 = 2.0**-860
"""Absolute bound on sech² from `FAR` on. Below `FAR` g * sech² stays normal in FP64 for every FP32 g."""


def forward_error(z: Tensor) -> Tensor:
    """Relative bound on the error of `forward` at |x/c| = z: the same everywhere."""
    return torch.full_like(z, WIDENING * 2.0**-50)


def sech2_error(z: Tensor) -> Tensor:
    """Relative bound on the error of `sech2` and `gradient` at |x/c| = z, for z below `FAR`."""
    return (2.0 * z + 10.0) * (WIDENING * 2.0**-53)


FORWARD_ERROR = forward_error
SECH2_ERROR = sech2_error


def scaled(x: Tensor, cap: float) -> Tensor:
    """x / c in FP64, rounded once: the shape of x. The cap is first rounded to FP32."""
    return x.detach().to(torch.float64) / cap_as_fp32(cap)


def forward(x: Tensor, cap: float) -> Tensor:
    """c * tanh(x / c): FP64, the shape and device of x. ±inf gives ±c, NaN gives NaN."""
    return scaled(x, cap).tanh_().mul_(cap_as_fp32(cap))


def sech2(x: Tensor, cap: float) -> Tensor:
    """The derivative 1 / cosh²(x / c): FP64, the shape and device of x. 0 from |x/c| = `FAR` on, infinities
    included.

    Never as 1 - tanh², which in FP64 has lost all its digits at |x/c| = 19.
    """
    z = scaled(x, cap).abs_()
    far = z >= FAR
    return z.cosh_().square_().reciprocal_().masked_fill_(far, 0.0)


def gradient(x: Tensor, grad_y: Tensor, cap: float) -> Tensor:
    """grad_y / cosh²(x / c): FP64, the shape of x, which grad_y must have. NaN where either is NaN."""
    return sech2(x, cap) * grad_y.detach().to(torch.float64)


def forward_bound(x: Tensor, value: Tensor) -> Tensor:
    """Absolute bound on the error of `forward`, given its value: FP64; 0 where that is exact (±0, ±inf)."""
    exact = (x == 0) | ~x.isfinite()
    return (value.abs() * forward_error(value)).masked_fill_(exact, 0.0)


def gradient_bound(x: Tensor, grad_y: Tensor, cap: float, value: Tensor) -> Tensor:
    """Absolute bound on the error of `gradient`, given its value: FP64; 0 where that is exact."""
    z, upstream = scaled(x, cap).abs_(), grad_y.detach().to(torch.float64).abs()
    bound = torch.where(z >= FAR, upstream * FAR_SECH2, value.abs() * sech2_error(z))
    exact = (x == 0) | ~x.isfinite() | (grad_y == 0) | ~grad_y.isfinite()
    return bound.masked_fill_(exact, 0.0)
