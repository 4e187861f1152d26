"""Results with rules of their own: what NaN and infinite arguments must give."""

from __future__ import annotations

import torch
from torch import Tensor

from oracles.truth import Truth


def verdicts(got: Tensor, truth: Truth, infinite_gradient_z: float) -> tuple[Tensor, Tensor]:
    """Where a special rule decides, and whether got satisfies it there: bool, bool, got's shape.

    NaN in x or grad_y must give NaN. Gradient: x = ±inf with a finite grad_y must give ±0; an infinite
    grad_y must give that infinity where |x/c| < infinite_gradient_z, and anything that is not finite
    elsewhere. (x = ±inf in the forward pass needs none: its exact value is ±c.)
    """
    nan = truth.is_nan
    if truth.grad_y is None:
        return nan, got.isnan()
    x, grad_y = truth.x.to(torch.float64), truth.grad_y.to(torch.float64)
    infinite, saturated = grad_y.isinf() & ~nan, x.isinf() & ~nan
    steep = x.abs() < truth.cap * infinite_gradient_z
    right = torch.where(saturated, got == 0, got.isnan())
    right = torch.where(infinite, torch.where(steep, got == grad_y, ~got.isfinite()), right)
    return nan | infinite | saturated, right
