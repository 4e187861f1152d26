"""The exact oracle: one element at a time, as an interval of exact rationals that holds the true value.

mpmath rounds to its working precision and promises no more, so its exponential is asked for 64 bits more
than are wanted and trusted for 32 of them. Where |x/c| is small the Taylor series of tanh and sech² bracket
the value by themselves (alternating, falling terms), and where |x/c| is large so does exp(-2z) < 2**-k:
both are proofs, at any precision, that cost nothing.

tanh of a nonzero rational is irrational (Lindemann-Weierstrass), so no end of an interval, no rounding
midpoint and no edge of a tolerance is ever hit: every interval with two different ends is open, and asking
for more bits always decides in the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

import torch
from mpmath.libmp import from_rational, mpf_exp

from oracles.formats import FP64, Format, cap_as_fp32, floor_log2, format_of, round_to_format

T = TypeVar("T")

DEFAULT_BITS = 128
MAX_BITS = 1 << 14
"""Where a decision gives up: far above what any input needs (see the tests), so that nothing ever hangs."""

_SERIES_BELOW = Fraction(1, 1 << 12)
_FAR_LOG2 = 1 << 13
_GUARD = 64
_TRUSTED = 32


@dataclass(frozen=True)
class Enclosure:
    """The true value lies strictly between `lo` and `hi`, or is exactly both."""

    lo: Fraction
    hi: Fraction

    @property
    def is_exact(self) -> bool:
        """Whether the value is this one rational."""
        return self.lo == self.hi

    def shifted(self, by: Fraction) -> Enclosure:
        """The enclosure of value + by."""
        return Enclosure(self.lo + by, self.hi + by)

    def times(self, factor: Fraction) -> Enclosure:
        """The enclosure of value * factor, for a factor of either sign."""
        ends = self.lo * factor, self.hi * factor
        return Enclosure(min(ends), max(ends))

    def below(self, limit: Fraction) -> bool | None:
        """Whether |value| < limit; None when this enclosure cannot tell. It must not reach across zero."""
        near, far = sorted((abs(self.lo), abs(self.hi)))
        if self.is_exact:
            return near < limit
        return True if far <= limit else False if near >= limit else None

    def binade(self) -> int | None:
        """floor(log2 |value|), for an enclosure on one side of zero; None when it cannot tell or may be 0."""
        near, far = sorted((abs(self.lo), abs(self.hi)))
        if near == 0:
            return None
        low, high = floor_log2(near), floor_log2(far)
        if not self.is_exact and far == Fraction(2) ** high:
            high -= 1
        return low if low == high else None

    def rounded(self, dtype: torch.dtype) -> float | None:
        """The value rounded once to `dtype`; None when this enclosure cannot tell."""
        return self.rounded_to(format_of(dtype))

    def rounded_to(self, fmt: Format) -> float | None:
        """The value rounded once to a format; None when this enclosure cannot tell."""
        if self.is_exact:
            return round_to_format(self.lo, fmt)
        low, high = round_to_format(self.lo, fmt, +1), round_to_format(self.hi, fmt, -1)
        return low if low == high else None


def forward(x: float, cap: float, bits: int = DEFAULT_BITS) -> Enclosure:
    """c * tanh(x / c), enclosed to a relative width of 2**-bits. x = ±inf gives exactly ±c.

    Raises ValueError for NaN, which has no exact value.
    """
    return _signed(x, cap, bits, _tanh, at_infinity=1).times(Fraction(cap_as_fp32(cap)))


def gradient(x: float, grad_y: float, cap: float, bits: int = DEFAULT_BITS) -> Enclosure:
    """grad_y / cosh²(x / c), enclosed to a relative width of 2**-bits, or as smaller than 2**-8000 of grad_y.

    x = ±inf gives exactly 0. Raises ValueError for a NaN x and for a grad_y that is not finite.
    """
    if not math.isfinite(grad_y):
        raise ValueError(f"the exact gradient needs a finite upstream gradient, not {grad_y!r}")
    if grad_y == 0.0 or x == 0.0:
        return Enclosure(Fraction(grad_y), Fraction(grad_y))
    return _signed(abs(x), cap, bits, _sech2, at_infinity=0).times(Fraction(grad_y))


def round_forward(x: float, cap: float, dtype: torch.dtype) -> float:
    """c * tanh(x / c) rounded once to `dtype`; ±0 keeps its sign."""
    rounded = decide(lambda bits: forward(x, cap, bits), lambda value: value.rounded(dtype))
    return math.copysign(rounded, x)


def round_gradient(x: float, grad_y: float, cap: float, dtype: torch.dtype) -> float:
    """grad_y / cosh²(x / c) rounded once to `dtype`; ±0 has the sign of grad_y."""
    rounded = decide(lambda bits: gradient(x, grad_y, cap, bits), lambda value: value.rounded(dtype))
    return math.copysign(rounded, grad_y)


def decide(enclose: Callable[[int], Enclosure], question: Callable[[Enclosure], T | None]) -> T:
    """The answer to `question`, asked of ever narrower enclosures until it is not None (Ziv's strategy).

    Raises ArithmeticError past `MAX_BITS`, which only a question about the value itself, asked of
    an irrational, can reach.
    """
    bits = DEFAULT_BITS
    while bits <= MAX_BITS:
        answer = question(enclose(bits))
        if answer is not None:
            return answer
        bits *= 2
    raise ArithmeticError(f"undecided after {MAX_BITS} bits")


def decimal(x: float, cap: float, grad_y: float | None = None, digits: int = 20) -> str:
    """The exact value, correctly rounded to `digits` significant decimal digits.

    Forward without grad_y, the gradient with it. "nan" for NaN, "±inf" for an infinite gradient;
    a gradient too small to write down is "0 (below 2^-8000 of grad_y)".
    """
    if math.isnan(x) or (grad_y is not None and not math.isfinite(grad_y)):
        return "nan" if math.isnan(x) else repr(grad_y)
    try:
        return decide(lambda bits: _enclose(x, cap, grad_y, bits), lambda value: _digits(value, digits))
    except ArithmeticError:
        return "0 (below 2^-8000 of grad_y)"


def describe(x: float, cap: float, grad_y: float | None = None, digits: int = 20) -> str:
    """The exact value for a failure message: decimal digits, then the nearest FP64 value as a hex float."""
    text = decimal(x, cap, grad_y, digits)
    if not text[-1].isdigit():
        return text
    nearest = decide(lambda bits: _enclose(x, cap, grad_y, bits), lambda value: value.rounded_to(FP64))
    return f"{text} ({nearest.hex()})"


def _enclose(x: float, cap: float, grad_y: float | None, bits: int) -> Enclosure:
    return forward(x, cap, bits) if grad_y is None else gradient(x, grad_y, cap, bits)


def _signed(
    x: float, cap: float, bits: int, positive: Callable[[Fraction, int], Enclosure], at_infinity: int
) -> Enclosure:
    """positive(|x| / c) with the sign of x; the constant `at_infinity` where |x| is infinite; 0 at 0."""
    if math.isnan(x):
        raise ValueError("NaN has no exact value")
    sign = Fraction(-1 if x < 0 else 1)
    if math.isinf(x) or x == 0.0:
        constant = Fraction(at_infinity if x != 0.0 else 0)
        return Enclosure(constant, constant).times(sign)
    return positive(abs(Fraction(x)) / Fraction(cap_as_fp32(cap)), bits).times(sign)


def _tanh(z: Fraction, bits: int) -> Enclosure:
    if z <= _SERIES_BELOW:
        return _series(z, bits, _coefficient).times(z)
    below = _exp_below_log2(z)
    if below > bits + 2:  # tanh z = 1 - 2e / (1 + e) with 0 < e < 2**-below
        return Enclosure(1 - Fraction(1, 1 << (bits + 1)), Fraction(1))
    e = _exp_minus(2 * z, bits)
    return Enclosure((1 - e.hi) / (1 + e.hi), (1 - e.lo) / (1 + e.lo))


def _sech2(z: Fraction, bits: int) -> Enclosure:
    if z <= _SERIES_BELOW:
        return _series(z, bits, lambda k: (2 * k + 1) * _coefficient(k))
    if _exp_below_log2(z) > _FAR_LOG2:  # sech² z = 4e / (1 + e)² < 4e
        return Enclosure(Fraction(0), Fraction(4, 1 << _FAR_LOG2))
    e = _exp_minus(2 * z, bits)
    return Enclosure(4 * e.lo / (1 + e.lo) ** 2, 4 * e.hi / (1 + e.hi) ** 2)


def _exp_below_log2(z: Fraction) -> int:
    """An integer k with exp(-2z) < 2**-k: 1 / ln 2 = 1.44269... > 1.4426."""
    return int(z * 2 * Fraction(14426, 10000))


def _exp_minus(a: Fraction, bits: int) -> Enclosure:
    """exp(-a) to a relative width below 2**-(bits + 30), for 0 < a; e < 1 is monotone in what it is put into.

    The rounding of a costs a * 2**-work <= 2**-(bits + 64) of the result, mpmath's exponential an ulp or
    two; 32 bits are left between that and what is granted. The 12 bits lost in 1 - e at a = 2**-11 come out
    of it too.
    """
    work = bits + _GUARD + max(0, a.numerator.bit_length() - a.denominator.bit_length() + 1)
    sign, man, exp, _ = mpf_exp(from_rational(-a.numerator, a.denominator, work), work)
    value = Fraction(int(man)) * Fraction(2) ** int(exp)
    assert sign == 0
    slack = value / (1 << (bits + _TRUSTED))
    return Enclosure(value - slack, value + slack)


_COEFFICIENTS = [Fraction(1)]


def _coefficient(k: int) -> Fraction:
    """a_k in tanh z = z * sum a_k z**(2k), from tanh' = 1 - tanh²: (2k + 1) a_k = -sum a_i a_(k-1-i)."""
    while len(_COEFFICIENTS) <= k:
        n = len(_COEFFICIENTS)
        total = sum((_COEFFICIENTS[i] * _COEFFICIENTS[n - 1 - i] for i in range(n)), Fraction(0))
        _COEFFICIENTS.append(-total / (2 * n + 1))
    return _COEFFICIENTS[k]


def _series(z: Fraction, bits: int, coefficient: Callable[[int], Fraction]) -> Enclosure:
    """sum coefficient(k) z**(2k) between its last two partial sums.

    The terms alternate, and fall because |a_(k+1) / a_k| < 4 / pi² and z² <= 2**-24.
    """
    square, power, total = z * z, Fraction(1), Fraction(0)
    for k in range(bits + 2):
        before, term = total, coefficient(k) * power
        total += term
        if k > 0 and abs(term) < Fraction(1, 1 << (bits + 1)):
            break
        power *= square
    return Enclosure(min(before, total), max(before, total))


def _digits(value: Enclosure, digits: int) -> str | None:
    if value.is_exact and value.lo == 0:
        return "0"
    open_ends = 0 if value.is_exact else 1
    ends = {_scientific(value.lo, digits, open_ends), _scientific(value.hi, digits, -open_ends)}
    return ends.pop() if len(ends) == 1 else None


def _scientific(value: Fraction, digits: int, side: int) -> str:
    """The decimal nearest to just above (`side` +1) or just below (-1) `value`; exact ties go outward."""
    magnitude = abs(value)
    if magnitude == 0:
        return "0"
    exponent = math.floor(floor_log2(magnitude) * math.log10(2))
    while magnitude >= Fraction(10) ** (exponent + 1):
        exponent += 1
    doubled = 2 * magnitude / Fraction(10) ** (exponent - digits + 1) + 1
    count = math.floor(doubled / 2)
    if doubled == 2 * count and side * value < 0:
        count -= 1
    if count == 10**digits:
        count, exponent = count // 10, exponent + 1
    return ("-" if value < 0 else "") + _placed(str(count), exponent)


def _placed(text: str, exponent: int) -> str:
    """The point in its place where that needs no padding beyond four zeros, an exponent elsewhere."""
    if 0 <= exponent < len(text) - 1:
        return f"{text[: exponent + 1]}.{text[exponent + 1 :]}"
    if -5 <= exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{text}"
    return f"{text[0]}.{text[1:]}e{exponent:+d}"
