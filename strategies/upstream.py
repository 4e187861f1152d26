"""Distributions of the upstream gradient: each takes a `Draw` of role "g" and gives bit patterns.

All but `specials` stay in the judged domain: g is 0, or |g| and cap * |g| are both from 2^-100 to 2^100, and
g is a number of the dtype asked for, since a candidate with 16-bit results is sent 16-bit gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from strategies.draws import Draw
from strategies.dtypes import ordinal, to_bits

__all__ = ["FINITE_UPSTREAM", "UPSTREAM", "hashed"]

_LIMIT: Final = 100  # the judged domain's exponents


def _exponents(draw: Draw) -> tuple[int, int]:
    """The lowest and highest k such that 2^k and cap * 2^k are in the judged domain and 2^k in the dtype."""
    power = math.frexp(draw.cap)[1]  # 2^(power - 1) <= cap < 2^power
    floor, ceiling = (-24, 15) if draw.dtype == "fp16" else (-_LIMIT, _LIMIT)
    return max(floor, -_LIMIT, 1 - power - _LIMIT), min(ceiling, _LIMIT, _LIMIT - power)


def _within(draw: Draw, low: int, high: int) -> Tensor:
    """Magnitudes from 2^low to 2^high, each binade alike, cut to what is judged."""
    lowest, highest = _exponents(draw)
    low, high = (min(max(end, lowest), highest) for end in (low, high))
    return draw.between(ordinal(math.ldexp(1.0, low), draw.dtype), ordinal(math.ldexp(1.0, high), draw.dtype))


def signed(draw: Draw) -> Tensor:
    """Random sign and magnitude from 2^-4 to 2^4; breaks a gradient that drops or misplaces its factor."""
    return draw.signed(_within(draw, -4, 4))


def ones(draw: Draw) -> Tensor:
    """1 everywhere, as from sum(); breaks a derivative that is wrong by itself (BUGS.md #47)."""
    return torch.full_like(draw.index, ordinal(1.0, draw.dtype))


def negatives(draw: Draw) -> Tensor:
    """Negative only; breaks sign handling and abs() where none is due."""
    return _within(draw, -4, 4) + draw.form.sign


def zeros_mixed(draw: Draw) -> Tensor:
    """Half of them +0 or -0, as from masked tokens; breaks 0 * something that is not finite."""
    return torch.where(draw.bits("zero", 1) == 1, draw.bits("sign", 1) * draw.form.sign, signed(draw))


def large(draw: Draw) -> Tensor:
    """From 2^10 to the top of the judged domain, as under loss scaling; breaks (g * cap) / cap overflows."""
    return draw.signed(_within(draw, 10, _LIMIT))


def small(draw: Draw) -> Tensor:
    """From the bottom of the judged domain to 2^-10, as of a mean over tokens; breaks early underflow."""
    return draw.signed(_within(draw, -_LIMIT, -10))


def powers_of_two(draw: Draw) -> Tensor:
    """Signed powers of two, over the judged exponents; breaks linearity in g where scaling is exact."""
    lowest, highest = _exponents(draw)
    table = [ordinal(math.ldexp(1.0, power), draw.dtype) for power in range(lowest, highest + 1)]
    return draw.signed(draw.chosen("power", table))


def cross_entropy(draw: Draw) -> Tensor:
    """softmax - onehot: small positives, one near -1 in 64; breaks the true class alone (BUGS.md #53)."""
    winner = draw.at(draw.index // 64).below("winner", 64)
    return torch.where(
        draw.index % 64 == winner, _within(draw, -1, 0) + draw.form.sign, _within(draw, -20, -4)
    )


def specials(draw: Draw) -> Tensor:
    """NaN, inf, zeros and ones; breaks special values in the backward (not judged in ulps)."""
    form = draw.form
    table = (0, ordinal(1.0, draw.dtype), form.infinity, form.quiet_nan)
    return draw.signed(draw.chosen("special", table))


UPSTREAM: Final[dict[str, Callable[[Draw], Tensor]]] = {
    "signed": signed, "ones": ones, "negatives": negatives, "zeros_mixed": zeros_mixed, "large": large,
    "small": small, "powers_of_two": powers_of_two, "cross_entropy": cross_entropy, "specials": specials,
}  # fmt: skip
FINITE_UPSTREAM: Final[tuple[str, ...]] = (*(n for n in UPSTREAM if n != "specials"), "hashed")


def hashed(x: Tensor, dtype: str) -> Tensor:
    """Patterns (int64, shape of x) of a gradient that depends on the bits of x and not on their position.

    What the table law needs: equal x then have equal pairs (x, grad_y). Magnitudes are 2^-4 to 2^4, which is
    judged at every judged cap.
    """
    return signed(Draw(index=to_bits(x), seed=0, dtype=dtype, cap=1.0, role="hashed"))
