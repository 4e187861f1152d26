"""The tolerance around an exact value, as a function of it: for whole tensors in FP64, and for one element
exactly.

margin(E) = sum of units * spacing(E, dtype) + floor

Rule "ulp", forward: 6 FP32 ulp + c * 2**-149. Rule "ulp", gradient: 6 * 2**-24 * |grad_y|.

Rule "chain" accepts what rounds z = x/c, t = tanh z and y = c*t to the input dtype each time. With u =
2**-precision and eta its subnormal spacing, z and t each carry a relative u (tanh does not enlarge a
relative error: 2z / sinh 2z <= 1) or an absolute eta / 2, and y half an ulp more. A relative u of E is at
most one ulp of E, so together 2.5 ulp + c * eta, 3 beside a power of two; the FP32 arithmetic inside each
step is given the "ulp" margin on top. Its gradient g * (1 - t²): t is off by u / 2 + max(z sech² z) u <
0.95u, t² by twice that and u / 2 for its own rounding, 1 - t² another u / 2, the product u: 3.9u |g| in
all, 6u |g| + eta granted. For FP32 inputs the chain is the "ulp" rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from oracles.exact import Enclosure
from oracles.formats import format_of
from oracles.tolerances import Contract
from oracles.truth import Truth
from oracles.ulp import spacing


@dataclass(frozen=True)
class Margin:
    """`spacings`: pairs of (units, dtype); `floor`: FP64, the shape of the truth or 0-d."""

    spacings: tuple[tuple[float, torch.dtype], ...]
    floor: Tensor

    def at(self, value: Tensor, floor: Tensor) -> Tensor:
        """The margin at FP64 values, for the matching elements of the floor."""
        total = floor
        for units, dtype in self.spacings:
            total = total + units * spacing(value, dtype)
        return total

    def exactly(self, value: Enclosure, floor: float) -> Fraction | None:
        """The margin of one element; None while the enclosure cannot tell the binade."""
        total = Fraction(floor)
        for units, dtype in self.spacings:
            step = _spacing_log2(value, dtype)
            if step is None:
                return None
            total += Fraction(units) * Fraction(2) ** step
        return total


def margin_of(rule: str, truth: Truth, contract: Contract) -> Margin:
    """The margin of rule "ulp" or "chain" around a truth."""
    chained = rule == "chain" and truth.x.dtype != torch.float32
    fmt = format_of(truth.x.dtype)
    if truth.grad_y is None:
        floor = torch.tensor(truth.cap * contract.forward_floor, dtype=torch.float64, device=truth.x.device)
        fine = (contract.forward_ulps, torch.float32)
        if not chained:
            return Margin((fine,), floor)
        return Margin((fine, (contract.chain_ulps, truth.x.dtype)), floor + truth.cap * fmt.smallest)
    size = truth.grad_y.to(torch.float64).abs()
    if not chained:
        return Margin((), size * contract.gradient_tolerance)
    return Margin((), size * (contract.chain_gradient_units * 2.0**-fmt.precision) + fmt.smallest)


def _spacing_log2(value: Enclosure, dtype: torch.dtype) -> int | None:
    fmt = format_of(dtype)
    if value.below(Fraction(2) ** fmt.emin):
        return fmt.smallest_log2
    binade = value.binade()
    return None if binade is None else max(binade, fmt.emin) - fmt.precision + 1
