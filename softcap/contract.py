"""What both implementations promise: the cap, the input dtypes, the output dtype.

The operator is ``y = c * tanh(x / c)`` elementwise, computed in FP32.  ``c`` is the FP32 value nearest to the
number that the caller gave, so that a cap means the same number in every backend, kernel and oracle.
"""

from __future__ import annotations

from fractions import Fraction
from numbers import Integral, Rational, Real

import torch

DEFAULT_SOFTCAP = 30.0
INPUT_DTYPES = (torch.float16, torch.bfloat16, torch.float32)

_SMALLEST_EXPONENT = -126  # of a normal FP32 number; below it the spacing stays 2**-149
_FRACTION_BITS = 23
_OVERFLOW = Fraction(2) ** 128
_SHOWN = 80


def check_cap(value: object) -> float:
    """The cap as the FP32 value nearest to ``value`` (ties to even), given back as a Python float.

    Accepts any real number: int, float, Fraction, numpy scalars.  Raises ValueError, showing the value, for
    everything else and for numbers that are not finite and positive both before and after the rounding.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"softcap must be a real number, got {_show(value)} of type {type(value).__name__}")
    try:
        exact = _exact(value)
    except (OverflowError, ValueError):  # as_integer_ratio of inf and of nan
        raise ValueError(f"softcap must be finite and positive, got {_show(value)}") from None
    if exact <= 0:
        raise ValueError(f"softcap must be finite and positive, got {_show(value)}")
    rounded = _round_to_fp32(exact)
    if not 0 < rounded < _OVERFLOW:
        word = "zero" if rounded == 0 else "infinity"
        raise ValueError(f"softcap must be finite and positive in FP32, but {_show(value)} rounds to {word}")
    return float(rounded)


def check_input(x: object) -> None:
    """Raise TypeError unless ``x`` is a tensor of an accepted dtype."""
    accepted = ", ".join(str(dtype) for dtype in INPUT_DTYPES)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"final_logit_softcap takes a tensor, got {type(x).__name__}; accepted: {accepted}")
    if x.dtype not in INPUT_DTYPES:
        raise TypeError(f"final_logit_softcap does not take {x.dtype}; accepted: {accepted}")


def _exact(value: Real) -> Fraction:
    if isinstance(value, Integral):
        return Fraction(int(value))  # numpy integers have no numerator of Python's kind
    if isinstance(value, Rational):
        return Fraction(value)
    if hasattr(value, "as_integer_ratio"):  # float and every numpy float, longdouble included
        return Fraction(*(int(part) for part in value.as_integer_ratio()))
    return Fraction(float(value))


def _round_to_fp32(value: Fraction) -> Fraction:
    """``value > 0`` rounded once to FP32, half to even; 2**128 stands for infinity."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if value < _power_of_two(exponent):
        exponent -= 1
    spacing = _power_of_two(max(exponent, _SMALLEST_EXPONENT) - _FRACTION_BITS)
    return min(round(value / spacing) * spacing, _OVERFLOW)


def _power_of_two(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _show(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4300 digits
        return "a number of more than 4300 digits"
    if len(text) <= _SHOWN:
        return text
    return f"{text[: _SHOWN // 2]}...{text[-_SHOWN // 4 :]} ({len(text)} characters)"
