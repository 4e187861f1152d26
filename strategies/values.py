"""Distributions of x: each takes a `Draw` and gives one bit pattern per element.

They are scaled with the cap (z = x / cap), because that is where things happen, and clipped to the finite
range of the dtype where z * cap does not fit (FP16 and a huge cap). `FINITE` never make NaN or inf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch
from torch import Tensor

from strategies.draws import Draw
from strategies.dtypes import FORMATS, from_bits
from strategies.upstream import UPSTREAM

__all__ = ["FINITE", "SEAMS", "UPSTREAM", "VALUES", "build", "domain", "literal"]

BEND: Final = (2.0**-14, 16.0)  # |x/c| where anything happens: below y = x, above y = c, both to the last bit

Distribution = Callable[[Draw], Tensor]

# Where an implementation changes its mind, as z: y = x to the last bit (2^-12), sech² = 1 (2^-12.5), the end
# of most tanh polynomials (0.5 to 0.625), BUGS.md #47 (5) and #48 (4), 1 - t² = 0 (9.0109), the analytic law
# (10), expf(2z) and expf(z) overflow (44.36, 88.72: BUGS.md #2 and #35), sech² rounds to 0 (52.679), and in
# FP64 exp(2z) overflows (354.9) or GELU's own tanh does (19.8, both BUGS.md #43).
SEAMS: Final[tuple[float, ...]] = (
    2.0**-12, 2.0**-12.5, 0.5, 0.55, 0.625, 1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.01, 9.01091335, 10.0, 12.0, 19.8,
    22.0, 44.0, 44.3614195, 52.6791850, 64.0, 88.0, 88.7228391, 103.972077, 177.445678, 354.891356,
)  # fmt: skip


def linear(draw: Draw) -> Tensor:
    """|z| below 0.5: an odd, nearly straight piece; breaks forms that cancel near zero (BUGS.md #46)."""
    return draw.signed(draw.scaled(draw.uniform(0.0, 0.5)))


def transition(draw: Draw) -> Tensor:
    """|z| from 0.5 to 3: the bend; breaks coarse approximations and a cap that is not the one asked for."""
    return draw.signed(draw.scaled(draw.uniform(0.5, 3.0)))


def saturation(draw: Draw) -> Tensor:
    """|z| from 3 to 12: close to the cap; breaks gradients that cancel (BUGS.md #48) and |y| <= cap."""
    return draw.signed(draw.scaled(draw.uniform(3.0, 12.0)))


def beyond(draw: Draw) -> Tensor:
    """|z| from 12 to the largest finite, each binade alike; breaks exponential forms (BUGS.md #1 to #4)."""
    return draw.signed(draw.between(draw.scale(12.0), draw.form.largest))


def tiny(draw: Draw) -> Tensor:
    """|z| up to 2^-12, from subnormal x on; breaks relative accuracy near zero (BUGS.md #44)."""
    return draw.signed(draw.between(min(1, draw.scale(2.0**-12)), draw.scale(2.0**-12)))


def bits(draw: Draw) -> Tensor:
    """Any bit pattern, NaN and inf included; breaks what assumes numbers."""
    return draw.bits("pattern", draw.form.width)


def finite_bits(draw: Draw) -> Tensor:
    """Any finite bit pattern, each binade alike; breaks what was tried on N(0, 1) only."""
    return draw.signed(draw.between(0, draw.form.largest))


def signed_zeros(draw: Draw) -> Tensor:
    """+0 and -0; breaks a lost sign of zero (BUGS.md #37, #55)."""
    return draw.bits("sign", 1) * draw.form.sign


def subnormals(draw: Draw) -> Tensor:
    """Subnormal x; breaks flushing and double rounding at the bottom of a format."""
    return draw.signed(draw.between(1, draw.form.smallest_normal - 1))


def specials(draw: Draw) -> Tensor:
    """NaN, inf, zeros, ends of the normal and subnormal ranges; breaks special values (BUGS.md #55)."""
    form = draw.form
    table = (0, 1, form.smallest_normal - 1, form.smallest_normal, draw.scale(1.0), form.largest,
             form.infinity, form.quiet_nan, form.quiet_nan | 1)  # fmt: skip
    return draw.signed(draw.chosen("special", table))


def seams(draw: Draw) -> Tensor:
    """Three steps around each z of SEAMS; breaks what switches formula or overflows there."""
    point = draw.chosen("seam", tuple(draw.scale(z) for z in SEAMS))
    return draw.signed((point + draw.below("steps", 7) - 3).clamp(min=0, max=draw.form.largest))


def binades(draw: Draw) -> Tensor:
    """Powers of two and neighbours, all exponents; breaks range reduction and rounding at a binade's edge."""
    form = draw.form
    power = draw.below("power", form.infinity >> (form.digits - 1)) << (form.digits - 1)
    return draw.signed((power + draw.below("steps", 5) - 2).clamp(min=0, max=form.largest))


def ties(draw: Draw) -> Tensor:
    """x beside a midpoint of a narrower format, y close to x; breaks two roundings where one is due."""
    shared = draw.between(draw.scale(2.0**-12), draw.scale(1.0))
    narrow = (13, 16) if draw.dtype == "fp32" else (3, 3)
    low = torch.where(draw.bits("narrow", 1) == 1, narrow[1], narrow[0])
    half = torch.ones_like(low) << (low - 1)
    return draw.signed(((shared >> low) << low) + half + draw.below("beside", 3) - 1)


def masked(draw: Draw) -> Tensor:
    """Rows of 32 logits with -inf tails, as masked; breaks cap and mask in the wrong order (BUGS.md #23)."""
    kept = draw.at(draw.index // 32).below("kept", 33)
    return torch.where(draw.index % 32 < kept, mixed(draw), draw.form.infinity + draw.form.sign)


def confident(draw: Draw) -> Tensor:
    """One logit in 64 far above the rest, as when trained; breaks gradients tried on noise (BUGS.md #53)."""
    winner = draw.at(draw.index // 64).below("winner", 64)
    high = draw.scaled(draw.uniform(1.0, 8.0))
    return torch.where(draw.index % 64 == winner, high, linear(draw))


def ramp(draw: Draw) -> Tensor:
    """z climbs from -12 to 12 in steps of 1/128, again and again; breaks the order of elements."""
    step = draw.index % 3073 - 1536
    return draw.scaled(step.abs().to(torch.float64) * 2.0**-7) + (step < 0).to(torch.int64) * draw.form.sign


def constant(draw: Draw) -> Tensor:
    """Every element one point of the transition; breaks what depends on the position."""
    return transition(draw.at(torch.zeros_like(draw.index)))


def ordered(draw: Draw) -> Tensor:
    """Pattern i for element i (FP32: seams, then a stratified walk); breaks whatever was only sampled.

    With 16 bits, 65,536 elements are the whole domain. FP32 begins with infinity, NaN, all seams and both sides of
    every power of two, each with both signs: under 2,000 elements. Of those that follow two thirds lie in
    the bend, 2^-14 <= |z| <= 16, and a third anywhere; both walk by the golden ratio, so that prefixes are
    spread evenly.
    """
    return draw.index if draw.form.width == 16 else _walk(draw)


def _walk(draw: Draw) -> Tensor:
    table = torch.cat([special_magnitudes(draw), around_seams(draw), beside_powers(draw)])
    turn = draw.index // 2
    later = (turn - table.numel()).clamp(min=0)
    spread = (later * 2654435769) & 0xFFFFFFFF
    lowest, highest = (draw.scale(z) for z in BEND)
    stratum = torch.where(later % 3 < 2, lowest + (spread * (highest - lowest) >> 32), spread >> 1)
    magnitude = torch.where(turn < table.numel(), table[turn.clamp(max=table.numel() - 1)], stratum)
    return magnitude + (draw.index % 2) * draw.form.sign


def around_seams(draw: Draw) -> Tensor:
    """Magnitudes: three steps around each z of SEAMS, 1-D."""
    z = torch.tensor(SEAMS, dtype=torch.float64, device=draw.index.device)
    steps = torch.arange(-3, 4, device=z.device)
    return (draw.scaled(z)[:, None] + steps).clamp(0, draw.form.largest).flatten()


def beside_powers(draw: Draw) -> Tensor:
    """Magnitudes: every power of two and both its neighbours, 1-D."""
    form, device = draw.form, draw.index.device
    powers = torch.arange(0, form.infinity, form.smallest_normal, device=device)
    return (powers[:, None] + torch.arange(-1, 2, device=device)).clamp(0, form.largest).flatten()


def special_magnitudes(draw: Draw) -> Tensor:
    """Magnitudes: the two smallest subnormals, infinity, a signalling and a quiet NaN."""
    form = draw.form
    return torch.tensor([1, 2, form.infinity, form.infinity + 1, form.quiet_nan], device=draw.index.device)


_BLEND: Final[tuple[Distribution, ...]] = (
    linear, linear, linear, transition, transition, transition, saturation, saturation,
    seams, seams, tiny, beyond, finite_bits, binades, ties, subnormals, signed_zeros,
)  # fmt: skip


def mixed(draw: Draw) -> Tensor:
    """A hash-chosen blend of the finite families; breaks what they break, and lanes that share a fate."""
    choice = draw.below("blend", len(_BLEND))
    result = torch.zeros_like(draw.index)
    for number, family in enumerate(_BLEND):
        if _BLEND.index(family) == number:
            share = range(number, number + _BLEND.count(family))
            mine = ((choice >= share.start) & (choice < share.stop)).nonzero(as_tuple=True)
            if mine[0].numel():  # small tensors, most of a plan, have elements of few families
                result[mine] = family(draw.at(draw.index[mine]))
    return result


VALUES: Final[dict[str, Distribution]] = {
    "constant": constant, "ramp": ramp, "linear": linear, "transition": transition, "saturation": saturation,
    "beyond": beyond, "tiny": tiny, "signed_zeros": signed_zeros, "subnormals": subnormals, "seams": seams,
    "binades": binades, "ties": ties, "confident": confident, "finite_bits": finite_bits, "mixed": mixed,
    "masked": masked, "specials": specials, "bits": bits, "domain": ordered,
}  # fmt: skip
FINITE: Final[tuple[str, ...]] = tuple(n for n in VALUES if n not in ("masked", "specials", "bits", "domain"))

_CHUNK: Final = (
    1 << 20
)  # elements built at once: bounds the FP64 and int64 scratch of tensors past 2^31 elements


def build(family: Distribution, draw: Draw, count: int) -> Tensor:
    """The first `count` elements of a family (1-D, `draw.dtype`, on the device of `draw.index`)."""
    device = draw.index.device
    out = from_bits(torch.empty(0, dtype=torch.int64, device=device), draw.dtype).new_empty(count)
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        index = torch.arange(start, stop, dtype=torch.int64, device=device)
        out[start:stop] = from_bits(family(draw.at(index)), draw.dtype)
    return out


def literal(patterns: Sequence[int], dtype: str, device: torch.device | str = "cpu") -> Tensor:
    """The 1-D tensor whose elements have the bit patterns given."""
    return from_bits(torch.tensor(patterns, dtype=torch.int64, device=device), dtype)


def domain(dtype: str, device: torch.device | str = "cpu") -> Tensor:
    """All 65,536 values of a 16-bit dtype in the order of their patterns, NaN too; ValueError for fp32."""
    if dtype not in FORMATS or FORMATS[dtype].width != 16:
        raise ValueError(f"the whole domain of {dtype!r} is not listed: accepted are fp16, bf16")
    return from_bits(torch.arange(1 << 16, dtype=torch.int64, device=device), dtype)
