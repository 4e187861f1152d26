"""Wrong formulas for y: other functions, cancellation, overflow, too few digits."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped


def _quotient(x: Tensor, c: float) -> Tensor:
    return x.float() / c


@wrong(
    bugs=(15, 16, 17, 18),
    must={
        "bound",
        "cap_used",
        "double_backward",
        "exact_value",
        "saturation",
        "special_values",
        "specification",
    },
)
def identity(softcap: float) -> Kernel:
    """The cap is never applied: y = x."""
    return Kernel(softcap, lambda x, _: x.float().clone())


@wrong(
    bugs=(6,),
    must={
        "bound", "cap_used", "double_backward", "exact_value", "oddness", "saturation", "sign",
        "special_values", "specification", "transformed_derivatives", "zeros",
    },
)  # fmt: skip
def times_x(softcap: float) -> Kernel:
    """The tanh is multiplied by x where c belongs."""
    return Kernel(softcap, lambda x, c: x.float() * torch.tanh(_quotient(x, c)))


@wrong(
    bugs=(17,),
    must={"cap_used", "double_backward", "exact_value", "saturation", "special_values", "specification"},
)
def applied_twice(softcap: float) -> Kernel:
    """The cap is applied to what is capped already."""
    return Kernel(softcap, lambda x, c: capped(capped(x, c), c))


@wrong(bugs=(46,), must={"exact_value", "oddness", "special_values", "zeros"})
def two_sigmoid(softcap: float) -> Kernel:
    """2 * sigmoid(2z) - 1 cancels near zero."""
    return Kernel(softcap, lambda x, c: c * (2 / (1 + torch.exp(-2 * _quotient(x, c))) - 1))


@wrong(bugs=(46,), must={"exact_value", "special_values"})
def one_minus_quotient(softcap: float) -> Kernel:
    """1 - 2 / (exp(2|z|) + 1) with the sign put back cancels near zero, on both sides alike."""

    def forward(x: Tensor, c: float) -> Tensor:
        return torch.copysign(c * (1 - 2 / (torch.exp(2 * _quotient(x, c).abs()) + 1)), x.float())

    return Kernel(softcap, forward)


@wrong(
    bugs=(2, 35, 36),
    must={"cap_used", "exact_value", "oddness", "saturation", "special_values", "specification", "zeros"},
)
def exponential_quotient(softcap: float) -> Kernel:
    """(e^2z - 1) / (e^2z + 1) is inf / inf for large z, on one side only."""

    def forward(x: Tensor, c: float) -> Tensor:
        e = torch.exp(2 * _quotient(x, c))
        return c * ((e - 1) / (e + 1))

    return Kernel(softcap, forward)


@wrong(bugs=(1, 3), must={"cap_used", "exact_value", "saturation", "special_values", "specification"})
def two_exponentials(softcap: float) -> Kernel:
    """expm1 keeps the digits near zero, and inf / inf is still NaN for large z."""

    def forward(x: Tensor, c: float) -> Tensor:
        e = torch.expm1(2 * _quotient(x, c).abs())
        return torch.copysign(c * (e / (e + 2)), x.float())

    return Kernel(softcap, forward)


@wrong(bugs=(49, 51), must={"cap_used", "exact_value", "saturation", "special_values", "specification"})
def pade(softcap: float) -> Kernel:
    """A rational approximation, cut at 1, three digits right: the error of a hardware tanh and more."""

    def forward(x: Tensor, c: float) -> Tensor:
        z = _quotient(x, c).clamp(-4.97, 4.97)
        s = z * z
        t = z * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + s * 28)))
        return c * t.clamp(-1, 1)

    return Kernel(softcap, forward)


@wrong(bugs=(44,), must={"exact_value", "special_values"})
def eight_ulp_in_a_binade(softcap: float) -> Kernel:
    """Between z = 2^-5 and 2^-4 the result is eight ulp too small, far inside every atol and rtol."""

    def forward(x: Tensor, c: float) -> Tensor:
        y, z = capped(x, c), _quotient(x, c).abs()
        return torch.where((z >= 2.0**-5) & (z < 2.0**-4), (y.view(torch.int32) - 8).view(torch.float32), y)

    return Kernel(softcap, forward)


@wrong(
    bugs=(4,),
    must={"cap_used", "exact_value", "special_values", "specification", "transformed_derivatives"},
    may={"cap_scaling"},
)
def fp16_inside(softcap: float) -> Kernel:
    """x / c and its tanh are FP16."""
    return Kernel(softcap, lambda x, c: c * torch.tanh(x.half() / c).float())


@wrong(bugs=(33, 99), must={"cap_used", "exact_value", "special_values"}, dtypes=("bf16",))
def eager_chain(softcap: float) -> Kernel:
    """Division, tanh and product each round to the dtype of x: another contract, never accepted in silence."""
    return Kernel(softcap, lambda x, c: c * torch.tanh(x / c))


@wrong(bugs=(3,), must={"cap_used", "double_backward", "exact_value", "special_values", "specification"})
def clamp(softcap: float) -> Kernel:
    """A hard cap: right near zero and far out, wrong in the bend."""
    return Kernel(softcap, lambda x, c: x.float().clamp(-c, c))


@wrong(
    bugs=(53,),
    must={"exact_value", "specification"},
    may={"cap_scaling", "special_values"},
    dtypes=("bf16",),
)
def one_input_in_65536(softcap: float) -> Kernel:
    """One magnitude of BF16 gives a result one part in a thousand too large: no sample finds it."""

    def forward(x: Tensor, c: float) -> Tensor:
        bad = (x.view(torch.int16) & 0x7FFF) == 0x4123 if x.dtype == torch.bfloat16 else False
        return torch.where(torch.as_tensor(bad, device=x.device), capped(x, c) * 1.001, capped(x, c))

    return Kernel(softcap, forward)
