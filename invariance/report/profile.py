"""The error profile of a certificate: the worst error in each binade of x/c, beside what the contract allows there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from oracles.formats import FORMATS
from oracles.tolerances import load_contract
from oracles.ulp import spacing

SMALLEST = 1e-3  # errors below this, in either unit, look like none
SHOWN = (-14, 6)  # binades that are always shown where the domain has them: tanh bends, then saturates
MARGIN = 2  # binades shown beyond the last error that can be seen
_DTYPES = {fmt.name: dtype for dtype, fmt in FORMATS.items()}


@dataclass(frozen=True)
class Bar:
    """A binade, 2^binade <= |x/c| < 2^(binade + 1).

    error: the worst, in the unit of the pass; None where every result was an accepted flush. rounding: the most that a
    correctly rounded result may be off. allowed: the most that the contract may accept; None where nothing is judged.
    """

    binade: int
    error: float | None
    input: str
    rounding: float
    allowed: float | None

    @property
    def over(self) -> bool:
        """Whether the error is one that no rule accepts."""
        return self.error is not None and self.allowed is not None and self.error > self.allowed


@dataclass(frozen=True)
class Profile:
    """The binades worth a look, and the largest error of the others, of which there are `hidden`."""

    bars: tuple[Bar, ...]
    unit: str
    hidden: int
    hidden_worst: float

    @property
    def worst(self) -> Bar:
        """The binade of the largest error."""
        return max(self.bars, key=lambda bar: bar.error or 0.0)


def of_certificate(certificate: dict[str, Any]) -> Profile | None:
    """The profile of a certificate given as JSON; None where it has none."""
    rows = certificate.get("profile") or []
    if not rows:
        return None
    binades = [int(row["binade"]) for row in rows]
    errors = [None if row["error"] is None else float(row["error"]) for row in rows]
    roundings, allowed = _limits(certificate, binades)
    bars = [
        Bar(binade, error, str(row.get("input", "")), rounding, limit)
        for binade, error, row, rounding, limit in zip(binades, errors, rows, roundings, allowed, strict=True)
    ]
    first, last = _shown(bars)
    shown = tuple(bar for bar in bars if first <= bar.binade <= last)
    others = [bar.error or 0.0 for bar in bars if not first <= bar.binade <= last]
    unit = "ulp" if certificate["pass"] == "forward" else "units of 2^-24"
    return Profile(shown, unit, len(others), max(others, default=0.0))


def _shown(bars: Sequence[Bar]) -> tuple[int, int]:
    seen = [bar.binade for bar in bars if bar.error is not None and bar.error >= SMALLEST]
    return min([SHOWN[0], *(k - MARGIN for k in seen)]), max([SHOWN[1], *(k + MARGIN for k in seen)])


def _limits(
    certificate: dict[str, Any], binades: Sequence[int]
) -> tuple[list[float], Sequence[float | None]]:
    """Correct rounding and the contract, by binade; no limit under another contract than the one at hand."""
    contract = load_contract()
    out = _DTYPES[certificate["out_dtype"]]
    cap = float.fromhex(certificate["softcap"]["fp32"])
    make = _forward if certificate["pass"] == "forward" else _backward
    roundings, allowed = make(cap, out, binades)
    judged = certificate["judged"] and certificate["contract"] == contract.fingerprint
    return roundings, allowed if judged else [None] * len(binades)


def _forward(cap: float, out: torch.dtype, binades: Sequence[int]) -> tuple[list[float], list[float]]:
    """In ulp of the output. FP32: the ulps and the floor. 16 bits: these in one rounding, which adds half an ulp."""
    contract = load_contract()
    low = [cap * math.tanh(_power(k)) for k in binades]
    high = [cap * math.tanh(_power(k + 1)) for k in binades]
    half = [0.5] * len(binades)
    once = 0.0 if out == torch.float32 else 0.5
    fine, coarse, least = _spacing(high, torch.float32), _spacing(high, out), _spacing(low, out)
    allowed = [
        once + contract.forward_ulps * f / c + contract.forward_floor * cap / s
        for f, c, s in zip(fine, coarse, least, strict=True)
    ]
    return half, allowed


def _backward(_: float, out: torch.dtype, binades: Sequence[int]) -> tuple[list[float], list[float]]:
    """In gradient units, for grad_y = 1: what is allowed in one rounding, and the exact value falls with |x/c|."""
    contract = load_contract()
    values = [min(_sech2(_power(k)), 1.0 - 2.0**-53) for k in binades]
    half = [step / 2 / contract.gradient_unit for step in _spacing(values, out)]
    units = contract.gradient_tolerance / contract.gradient_unit
    return half, [units + h for h in half]


def _power(binade: int) -> float:
    return math.ldexp(1.0, binade)


def _sech2(z: float) -> float:
    return 0.0 if z > 350.0 else 1.0 / math.cosh(z) ** 2


def _spacing(values: Sequence[float], dtype: torch.dtype) -> list[float]:
    steps: list[float] = spacing(torch.tensor(values, dtype=torch.float64), dtype).tolist()
    return steps
