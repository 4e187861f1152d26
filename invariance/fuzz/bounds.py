"""How far a correct kernel may be off at a cap, so that an unlucky cap and a wrong kernel look different.

c * tanh(fl(x / c)) with a division and a product of half an ulp and a tanh of T ulp: tanh does not enlarge
the relative error of its argument, so 0.5 ulp of z and T ulp of tanh(z) arrive as at most m * (0.5 + T) ulp
of the product, m in [1, 2) the significand of c; the product adds 0.5, and another half beside a power of two.

g * (1 - t * t), in units of 2^-24 * |g|, has 2 * t * T from the tanh (whose ulp is 2^-24 at most below 1),
2 * z * tanh(z) * sech²(z) from half an ulp of z, and half an ulp each from the square, the difference (exact where
t * t is at least 1/2) and the product. For T of at least 1 the sum stays below 2 * T + 1.3, whatever the cap.
"""

from __future__ import annotations

import math

from strategies.caps import Cap, as_fp32, fp32_bits

TANH_ULPS = 2.0
"""The bound of the CUDA guide; a correct tanh is better."""
GRADIENT_REST = 1.3
"""Of a gradient's error, what no tanh explains."""


def significand(cap: Cap) -> float:
    """m in [1, 2) with cap = m * 2^k, of the FP32 value."""
    return 2.0 * math.frexp(as_fp32(cap))[0]


def forward_bound(cap: Cap, tanh_ulps: float = TANH_ULPS) -> float:
    """FP32 ulps that no kernel with a tanh of that many ulps exceeds at this cap."""
    fraction = fp32_bits(cap) & 0x7FFFFF
    beside = fraction in (0, 1, 0x7FFFFF)
    return 0.5 + significand(cap) * (0.5 + tanh_ulps) + 0.5 * beside


def gradient_bound(tanh_ulps: float = TANH_ULPS) -> float:
    """Units of 2^-24 * |grad_y| that g * (1 - t * t) with a tanh of that many ulps, at least 1, does not exceed."""
    return 2.0 * tanh_ulps + GRADIENT_REST


def bound(pass_: str, cap: Cap) -> float:
    """What a correct kernel does not exceed in a pass, "forward" or "backward"."""
    return gradient_bound() if pass_ == "backward" else forward_bound(cap)


def implied_tanh(pass_: str, cap: Cap, error: float) -> float:
    """The tanh, in ulps, that an error would take at this cap; at least 0."""
    if pass_ == "backward":
        return max(0.0, (error - GRADIENT_REST) / 2.0)
    return max(0.0, (error - 0.5) / significand(cap) - 0.5)
