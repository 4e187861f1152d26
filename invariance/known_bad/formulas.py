"""Wrong formulas for y: other functions, cancellation, overflow, too few digits."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, nudged


@wrong(bugs=(15, 16, 17, 18), must={"exact_value"})
def identity(softcap: float) -> Kernel:
    """The cap is never applied: y = x."""
    return Kernel(softcap, lambda x, _: x.float())


@wrong(bugs=(6,), must={"exact_value"})
def times_x(softcap: float) -> Kernel:
    """The tanh is multiplied by x where c belongs."""
    return Kernel(softcap, lambda x, c: x.float() * torch.tanh(x.float() / c))


@wrong(bugs=(17,), must={"exact_value"})
def applied_twice(softcap: float) -> Kernel:
    """The cap is applied to what is capped already."""
    return Kernel(softcap, lambda x, c: capped(capped(x, c), c))


@wrong(bugs=(46,), must={"exact_value"})
def two_sigmoid(softcap: float) -> Kernel:
    """2 * sigmoid(2z) - 1 cancels near zero."""
    return Kernel(softcap, lambda x, c: c * (2 * torch.sigmoid(2 * (x.float() / c)) - 1))


@wrong(bugs=(46,), must={"exact_value"})
def one_minus_quotient(softcap: float) -> Kernel:
    """1 - 2 / (exp(2z) + 1) cancels near zero."""
    return Kernel(softcap, lambda x, c: c * (1 - 2 / (torch.exp(2 * (x.float() / c)) + 1)))


@wrong(bugs=(2, 35, 36), must={"exact_value"})
def exponential_quotient(softcap: float) -> Kernel:
    """(e^2z - 1) / (e^2z + 1) is inf / inf for large z, on one side only."""
    def forward(x: Tensor, c: float) -> Tensor:
        e = torch.exp(2 * (x.float() / c))
        return c * ((e - 1) / (e + 1))

    return Kernel(softcap, forward)


@wrong(bugs=(1, 3), must={"exact_value"})
def two_exponentials(softcap: float) -> Kernel:
    """(e^z - e^-z) / (e^z + e^-z) is inf / inf for large z, on both sides."""
    def forward(x: Tensor, c: float) -> Tensor:
        e, inverse = torch.exp(x.float() / c), torch.exp(-(x.float() / c))
        return c * ((e - inverse) / (e + inverse))

    return Kernel(softcap, forward)
