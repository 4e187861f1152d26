"""Right kernels in other ways: no law may fail, or it asks for more than is promised."""

from __future__ import annotations

import os
import warnings
from typing import Any, cast

import torch
from torch import Tensor

from invariance.known_bad.entry import good
from invariance.known_bad.kernel import Kernel, capped, gradient, refuse_dtypes, saving_the_output


@good(dtypes=("bf16", "fp32"))
def shared(softcap: float) -> Kernel:
    """The kernel that all entries are made of, as it is."""
    return Kernel(softcap)


@good(dtypes=("fp16", "bf16"))
def input_dtype_out(softcap: float) -> Any:
    """The result is cast once to the dtype of x."""
    kernel = Kernel(softcap)
    return lambda x: kernel(x).to(x.dtype)


@good()
def reciprocal(softcap: float) -> Kernel:
    """x * (1 / c), as an eager division by a number is on a GPU."""
    return Kernel(
        softcap,
        lambda x, c: c * torch.tanh(x.float() * (1 / torch.tensor(c, dtype=torch.float32, device=x.device))),
    )


@good()
def fp64_inside(softcap: float) -> Kernel:
    """FP64 up to the last cast."""

    def forward(x: Tensor, c: float) -> Tensor:
        return (c * torch.tanh(x.double() / c)).float()

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        return (g.double() / torch.cosh((x.double() / c).clamp(-700, 700)) ** 2).to(g.dtype).to(x.dtype)

    return Kernel(softcap, forward, lambda x, g, c: _elementwise(backward, x, g, c))


def _elementwise(backward: Any, x: Tensor, g: Tensor, c: float) -> Tensor:
    """cosh of torch's CPU differs between the body of a vector and its tail: every element is a body of its own."""
    sixteen = x.float().reshape(-1, 1).expand(-1, 16).contiguous()
    one = torch.ones(1, dtype=torch.float32, device=x.device)
    slopes: Tensor = backward(sixteen, one, c)[:, 0]
    return (slopes.view(x.shape) * g).to(x.dtype)


@good()
def plain_autograd(softcap: float) -> Any:
    """No backward of its own: ((g * c) * (1 - t²)) / c, in which the cap does not quite cancel."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        refuse_dtypes(x)
        return capped(x, kernel.softcap)

    return call


@good()
def exponential_slope_right(softcap: float) -> Kernel:
    """g * 4e / (1 + e)² with e = exp(-2|z|), which never overflows and keeps its digits."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        e = torch.exp(-2 * (x.float() / c).abs())
        return (g * (4 * e / ((1 + e) * (1 + e)))).to(x.dtype)

    return Kernel(softcap, backward=backward)


@good(dtypes=("bf16",))
def contiguous_copies(softcap: float) -> Any:
    """Everything is copied to plain memory first."""
    kernel = Kernel(softcap)
    return lambda x: kernel(x.contiguous().clone())


class _Module(torch.nn.Module):
    """A module with a weight that the model may move; the cap stays a Python number."""

    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.kernel = Kernel(softcap)
        self.register_buffer("steps", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel(x)


@good()
def module_with_a_buffer(softcap: float) -> Any:
    """A module whose buffer is not its cap: it may be copied and moved to any dtype."""
    return _Module(softcap)


@good()
def saves_the_output(softcap: float) -> Any:
    """The slope is taken from the saved y."""
    kernel = Kernel(softcap)

    return lambda x: saving_the_output(x, kernel)


class _Constant(torch.autograd.Function):
    """Saves x as it should, and computes the gradient where autograd sees a constant, and refuses to go on from it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel = kernel
        ctx.save_for_backward(x)
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            return ctx.kernel.backward(x, grad_y, ctx.kernel.softcap), None


@good()
def gradient_is_a_constant(softcap: float) -> Any:
    """The gradient carries no graph of its own: asked for a second derivative, autograd itself raises."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        kernel.check(x)
        return cast(Tensor, _Constant.apply(x, kernel))  # type: ignore[no-untyped-call]  # torch's

    return call


@good()
def flushes_subnormals(softcap: float) -> Any:
    """Where x / c is subnormal the result is a zero of the same sign, as GPU libraries have it."""
    return Kernel(
        softcap,
        lambda x, c: torch.where((x.float() / c).abs() < 2.0**-126, x.float() * 0.0, capped(x, c)),
    ).applied


@good()
def closed_forms(softcap: float) -> Kernel:
    """y = x for the smallest and y = ±c for the largest inputs, where both are correctly rounded."""

    def forward(x: Tensor, c: float) -> Tensor:
        z = (x.float() / c).abs()
        far = torch.copysign(torch.full_like(z, c), x.float())
        return torch.where(z <= 2.0**-12, x.float(), torch.where(z >= 10, far, capped(x, c)))

    return Kernel(softcap, forward)


@good()
def first_order_only(softcap: float) -> Kernel:
    """A second derivative is refused."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        if torch.is_grad_enabled():
            raise RuntimeError("first-order gradients only")
        return gradient(x, g, c)

    return Kernel(softcap, backward=backward)


@good(dtypes=("bf16", "fp32"))
def row_by_row(softcap: float) -> Kernel:
    """One row at a time, in a loop."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.dim() < 2 or x.shape[0] > 64:
            return capped(x, c)
        return torch.stack([capped(row, c) for row in x]) if x.shape[0] else capped(x, c)

    return Kernel(softcap, forward)


@good()
def nearly_six_ulp(softcap: float) -> Any:
    """Four ulp low between z = 2^-5 and 1: no better than it has to be, and no worse."""

    def forward(x: Tensor, c: float) -> Tensor:
        y, z = capped(x, c), (x.float() / c).abs()
        low = (y.view(torch.int32) - 4).view(torch.float32)
        return torch.where((z >= 2.0**-5) & (z < 1.0), low, y)

    return Kernel(softcap, forward).applied


@good()
def negated_views(softcap: float) -> Any:
    """Only the absolute value is computed; the sign is put back."""
    return Kernel(softcap, lambda x, c: torch.copysign(capped(x.abs(), c), x.float())).applied


_caps: dict[tuple[object, ...], Tensor] = {}


def _prepared(c: float, device: torch.device) -> Tensor:
    """The cap as a tensor; the first one in a process also does what the import of a compiler does."""
    if not _caps:
        os.environ.setdefault("SOFTCAP_CACHE_DIR", "cache")
        warnings.filterwarnings("ignore", message="a note of the compiler")
    key = c, device
    if key not in _caps:
        _caps[key] = torch.tensor(c, dtype=torch.float32, device=device)
    return _caps[key]


@good()
def prepared_at_the_first_call(softcap: float) -> Kernel:
    """What a compiler needs is set up in the first call of a process, and the cap is kept as a tensor."""
    return Kernel(softcap, lambda x, c: capped(x, float(_prepared(c, torch.device("cpu")))))
