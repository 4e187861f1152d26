"""Errors of a chunk of results in FP64, each with a bound on how far it is from the exact error.

Everything is folded onto x >= 0: `a` is |x| and `y` the result, with the sign of x taken off in the forward
pass. u = 2**-53, z = a / c; c, a and y are exact in FP64, E is the exact result. By zone of z:

* below 2**-12 the series says E: forward a - a z²/3 (1 - 2z²/5), the next term below 2**-76 of a; gradient
  1 - z² (1 - 2z²/3), the next below 2**-73. What is subtracted is at most 0.34 ulp of FP32 (one unit of the
  gradient) and carries a handful of u; y - a and y - 1 are exact where they are small: 2**-46 covers both.
* from 8 up to 32 (forward) c - E = 2ce / (1 + e) with e = exp(-2z): at most 4 ulp, with a relative (2z + 10)u,
  widened by 64 for a vendor's exponential: 2**-39 ulp. From 32 up E is c, less a part in 2**91.
* the gradient is 4e / (1 + e)²: z rounded moves it by a relative 2zu, the exponential by 4u, the sum, square,
  product and quotient by a few more: (2z + 10)u, widened by 64. In units of 2**-24, E (2z + 10) being at most
  10.7, that is 2**-19 at most, 2**-39 from z = 8 on. From 64 up E is 0, and 2**-182 more.
* between, forward: c tanh z with the oracle's widened bound, 2**-44 of E, at most 2**(p - 44) ulp of a format of
  p bits.

|y - E| is one FP64 rounding away at every step, which `settle.leading` allows for in proportion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from invariance.sweep.domain import BELOW, FAR, MIDDLE, TINY, UPPER, Domain, Piece
from invariance.sweep.settle import FRACTION_BITS
from oracles.formats import format_of
from oracles.rounding import round_exact
from oracles.ulp import spacing

EDGE = 1 << 14
"""FP64 fractions this near to a power of two do not tell the binade: 2**-38, above all the bounds."""
_FRACTION = (1 << FRACTION_BITS) - 1

SERIES_BOUND = 2.0**-46
UPPER_BOUND = 2.0**-39
FAR_BOUND = 2.0**-60
GRADIENT_BOUND = {MIDDLE: 2.0**-19, UPPER: 2.0**-39, FAR: 2.0**-150}
GRADIENT_RELATIVE = {MIDDLE: 2.0**-42, UPPER: 2.0**-39}
"""(2z + 10) * 64u at the upper end of the zone."""
FORWARD_RELATIVE = 2.0**-44


@dataclass(frozen=True)
class Errors:
    """FP64, 1-d, never negative, NaN where y is NaN and inf where it is infinite.

    `error` in the unit of the pass (ulp of the output dtype at the exact value, or gradient units), `off` in ulp;
    for the forward pass the same tensor. `bound`, `off_bound`: distance from the exact ones. `edge`: bool, where the
    binade of the exact value, and so an error in ulp, is not certain; None for nowhere.
    """

    error: Tensor
    bound: float
    off: Tensor
    off_bound: float
    edge: Tensor | None = None


def errors(domain: Domain, piece: Piece, a: Tensor, y: Tensor, out: torch.dtype, unit: float) -> Errors:
    """Errors of FP64 results `y` for FP64 `a`, the magnitudes of a finite piece; `unit` is that of gradients."""
    if domain.pass_ == "forward":
        return _FORWARD[piece.zone](a, y, domain.cap, out)
    return _GRADIENT[piece.zone](a, y, domain.cap, out, unit, piece.zone)


def just_below(value: Tensor) -> Tensor:
    """The FP64 number before each positive one; 0 stays."""
    return (value.view(torch.int64) - 1).clamp_min_(0).view(torch.float64)


def _series(a: Tensor, y: Tensor, cap: float, out: torch.dtype) -> Errors:
    z = a / cap
    square = z.mul_(z)
    less = (square * -0.4).add_(1.0).mul_(square).mul_(a).mul_(1.0 / 3.0)
    error = (y - a).add_(less).abs_().div_(spacing(just_below(a), out))
    return Errors(error, SERIES_BOUND, error, SERIES_BOUND)


def _tanh(a: Tensor, y: Tensor, cap: float, out: torch.dtype) -> Errors:
    value = (a / cap).tanh_().mul_(cap)
    bound = FORWARD_RELATIVE * 2.0 ** format_of(out).precision
    edge = _edge(value)
    error = (y - value).abs_().div_(spacing(value, out))
    return Errors(error, bound, error, bound, edge)


def _upper(a: Tensor, y: Tensor, cap: float, out: torch.dtype) -> Errors:
    e = (a / cap).mul_(-2.0).exp_()
    less = (e * (2.0 * cap)).div_(e.add_(1.0))
    value, edge, step = cap - less, None, torch.tensor(far_spacing(cap, out), dtype=torch.float64)
    if math.frexp(cap)[0] != 0.5:  # below a power of two everything up to 2**-22 of it is in one binade
        edge, step = _edge(value), spacing(value, out)
    error = (y - cap).add_(less).abs_().div_(step)
    return Errors(error, UPPER_BOUND, error, UPPER_BOUND, edge)


def _far(_: Tensor, y: Tensor, cap: float, out: torch.dtype) -> Errors:
    """The exact result lies just below the cap: what it rounds to is known, also at a midpoint of `out`."""
    error = (y - cap).abs_().mul_(1.0 / far_spacing(cap, out))
    wrong = (y != round_exact(Fraction(cap), out, side=-1)).to(torch.float64)
    return Errors(error, FAR_BOUND, wrong, 0.0)


def far_spacing(cap: float, out: torch.dtype) -> float:
    """Spacing of `out` just below the cap."""
    return float(spacing(just_below(torch.tensor([cap], dtype=torch.float64)), out)[0])


def _flat(a: Tensor, y: Tensor, cap: float, out: torch.dtype, unit: float, _: str) -> Errors:
    square = (a / cap).square_()
    less = (square * (-2.0 / 3.0)).add_(1.0).mul_(square)
    error = (y - 1.0).add_(less).abs_().mul_(1.0 / unit)
    scale = unit * 2.0 ** format_of(out).precision  # E lies in [1/2, 1), where the spacing is 2**-p
    off = error if scale == 1.0 else error * scale
    return Errors(error, SERIES_BOUND, off, SERIES_BOUND)


def _sech2(a: Tensor, y: Tensor, cap: float, out: torch.dtype, unit: float, zone: str) -> Errors:
    e = (a / cap).mul_(-2.0).exp_()
    value = (e * 4.0).div_(e.add_(1.0).square_())
    distance = (y - value).abs_()
    edge = _edge(value)
    off = distance / spacing(value, out)
    off_bound = GRADIENT_RELATIVE[zone] * 2.0 ** format_of(out).precision
    return Errors(distance.mul_(1.0 / unit), GRADIENT_BOUND[zone], off, off_bound, edge)


def _vanished(_: Tensor, y: Tensor, _cap: float, out: torch.dtype, unit: float, zone: str) -> Errors:
    size = y.abs()
    off = size * (1.0 / format_of(out).smallest)
    return Errors(size.mul_(1.0 / unit), GRADIENT_BOUND[zone], off, 2.0**-30)


def _edge(value: Tensor) -> Tensor | None:
    bits = value.view(torch.int64)
    near = bits.add(EDGE).bitwise_and_(_FRACTION) < 2 * EDGE
    return near if bool(near.any()) else None


_FORWARD = {BELOW: _series, TINY: _series, MIDDLE: _tanh, UPPER: _upper, FAR: _far}
_GRADIENT = {BELOW: _flat, TINY: _flat, MIDDLE: _sech2, UPPER: _sech2, FAR: _vanished}

__all__ = ["Errors", "errors", "far_spacing", "just_below"]
