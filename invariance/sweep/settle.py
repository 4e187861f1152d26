"""What FP64 cannot decide, decided by the exact oracle: correct rounding, and the error that is published."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from invariance.sweep.certificate import Worst
from invariance.sweep.domain import decode
from oracles import exact
from oracles.exact import Enclosure
from oracles.formats import Format, format_of, round_to_format

ERROR = Format("error", 40, 7, 1023)
"""Published errors are rounded once to this format: a multiple of 2**-32 below 256, 40 bits above.

Its steps are far above the error of FP64 sums in the closed-form zones, and fine enough to tell 2**-25 apart.
"""

_STEP_LOG2 = ERROR.smallest_log2
ROUNDING = 2.0**-50
"""FP64's own rounding of an error, in proportion."""
_COARSE = 2.0**-38
"""The rounding to `ERROR` and that of FP64 together, in proportion."""
_SMALL = 8
EXPONENT_BIAS, FRACTION_BITS = 1023, 52


@dataclass(frozen=True)
class Question:
    """One cap, pass and pair of dtypes, for which single results are settled; upstream gradient 1."""

    cap: float
    pass_: str
    dtype: torch.dtype
    out_dtype: torch.dtype
    gradient_unit: float

    def enclosure(self, x: float, bits: int) -> Enclosure:
        """The exact result."""
        if self.pass_ == "forward":
            return exact.forward(x, self.cap, bits)
        return exact.gradient(x, 1.0, self.cap, bits)

    def correctly_rounded(self, pattern: int, got: int) -> bool:
        """Whether `got`, an encoding of the output dtype, is the exact result rounded once, sign of zero included."""
        x, y = decode(pattern, self.dtype), decode(got, self.out_dtype)
        if self.pass_ == "forward":
            want = exact.round_forward(x, self.cap, self.out_dtype)
        else:
            want = exact.round_gradient(x, 1.0, self.cap, self.out_dtype)
        return y == want and math.copysign(1.0, y) == math.copysign(1.0, want)

    def error(self, pattern: int, got: int) -> float:
        """The error of one result, rounded once to `ERROR`: in ulp or gradient units; inf unless it is finite."""
        x, y = decode(pattern, self.dtype), decode(got, self.out_dtype)
        if not math.isfinite(y):
            return math.inf
        return exact.decide(
            lambda bits: self.enclosure(x, bits), lambda value: self._rounded(value, Fraction(y))
        )

    def _rounded(self, value: Enclosure, got: Fraction) -> float | None:
        unit = Fraction(self.gradient_unit) if self.pass_ == "backward" else self._spacing(value)
        if unit is None:
            return None
        off = value.shifted(-got).times(1 / unit)
        if off.is_exact:
            return round_to_format(abs(off.lo), ERROR)
        near, far = sorted((abs(off.lo), abs(off.hi)))
        if off.lo < 0 < off.hi:
            return None if round_to_format(far, ERROR, -1) > 0 else 0.0
        low, high = round_to_format(near, ERROR, +1), round_to_format(far, ERROR, -1)
        return low if low == high else None

    def _spacing(self, value: Enclosure) -> Fraction | None:
        fmt = format_of(self.out_dtype)
        if value.is_exact and value.lo == 0:
            return Fraction(2) ** fmt.smallest_log2
        if value.below(Fraction(2) ** fmt.emin):
            return Fraction(2) ** fmt.smallest_log2
        binade = value.binade()
        return None if binade is None else Fraction(2) ** (max(binade, fmt.emin) - fmt.precision + 1)


@dataclass(frozen=True)
class Contender:
    """A result that may be the worst: its rounded error lies between `low` and `high`."""

    low: float
    high: float
    pattern: int
    got: int


class Front:
    """The contenders for the worst result of one binade, pruned as they come."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._sign = 1 << (8 * question.dtype.itemsize - 1)
        self._contenders: list[Contender] = []
        self.floor = -1.0

    def add(self, contender: Contender) -> None:
        """Take a contender in; those that can no longer win go."""
        self.floor = max(self.floor, contender.low)
        self._contenders.append(contender)
        if len(self._contenders) > _SMALL and len(self._contenders) % _SMALL == 0:
            self._prune()

    def _prune(self) -> None:
        kept = [c for c in self._contenders if c.high >= self.floor]
        sure = [c for c in kept if c.low == c.high]
        first = max(sure, key=lambda c: (c.low, *self._order(c)), default=None)
        self._contenders = [c for c in kept if c is first or c.low < c.high]

    def _order(self, c: Contender) -> tuple[int, bool]:
        return -(c.pattern & (self._sign - 1)), not c.pattern & self._sign

    def settled(self) -> Worst | None:
        """The worst result, every contender's error decided exactly; None when there was none."""
        self._prune()
        found = [Worst(self._question.error(c.pattern, c.got), c.pattern, c.got) for c in self._contenders]
        return max(found, key=lambda w: w.rank(self._sign), default=None)


def leading(error: Tensor, bound: float, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """(index, low, high) of the elements of a chunk that may be the worst of their binade.

    error: FP64, 1-d, finite or inf, at least 0; each within `bound` of the exact error, and FP64's own rounding.
    floor: what an earlier result, of smaller magnitude, reaches for certain: a tie with it is lost. Of elements
    whose rounded errors are certain and equal the first is kept.
    """
    top = float(error.max())
    none = error.new_empty(0, dtype=torch.int64), error.new_empty(0), error.new_empty(0)
    if _scalar(top * (1.0 + ROUNDING) + bound) <= floor:
        return none
    reach = 2.0 * (bound + top * _COARSE) + 2.0**_STEP_LOG2 if math.isfinite(top) else 0.0
    index = (error >= max(top, floor) - reach).nonzero().flatten()
    if not index.numel():
        return none
    near = error[index]
    width = (near * ROUNDING + bound).masked_fill_(near.isinf(), 0.0)
    low, high = round_errors((near - width).clamp_min_(0.0)), round_errors(near + width)
    best = low.max()
    unsure = (low < high) & (high >= best)
    sure = ((low == high) & (low == best)).nonzero().flatten()[:1]
    keep = torch.cat([sure, unsure.nonzero().flatten()])
    return index[keep], low[keep], high[keep]


def rounding_range(error: float, bound: float) -> tuple[float, float]:
    """Between what an exact error may lie, rounded, that FP64 has as `error` within `bound`."""
    width = error * ROUNDING + bound
    return _scalar(max(error - width, 0.0)), _scalar(error + width)


def _scalar(error: float) -> float:
    """One FP64 error rounded to `ERROR`."""
    if not 0.0 < error < math.inf:
        return error
    unit = math.ldexp(1.0, max(math.frexp(error)[1] - 1, ERROR.emin) - ERROR.precision + 1)
    return round(error / unit) * unit


def round_errors(error: Tensor) -> Tensor:
    """FP64 errors rounded to `ERROR`; inf and NaN stay."""
    exponent = (error.view(torch.int64) >> FRACTION_BITS).clamp_(ERROR.emin + EXPONENT_BIAS, 2046)
    unit = ((exponent - (ERROR.precision - 1)) << FRACTION_BITS).view(torch.float64)
    rounded = (error / unit).round_().mul_(unit)
    return torch.where(error.isinf(), error, rounded)
