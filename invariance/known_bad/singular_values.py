"""Faults that one law alone can see: those of single values, of memory and of autograd."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged, place, slope


@wrong(bugs=(3, 38), must={"bound"})
def above_the_cap_too_soon(softcap: float) -> Kernel:
    """Just before saturation, from |z| = 9 to 10, results are one ulp above the cap."""

    def forward(x: Tensor, c: float) -> Tensor:
        y, z = capped(x, c), (x.float() / c).abs()
        return torch.where((z >= 9.1) & (z < 9.99) & (y.abs() == c), torch.nextafter(y, y * 2), y)

    return Kernel(softcap, forward)


@wrong(bugs=(48,), must={"sign"})
def slope_just_below_zero(softcap: float) -> Kernel:
    """A finite saturated input has a slope of -2^-23: inside every tolerance, and the wrong way."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        below = (slope(x, c) == 0) & x.isfinite() & (g != 0) & g.isfinite()
        return torch.where(below, -(2.0**-23) * g, g * slope(x, c)).to(x.dtype)

    return Kernel(softcap, backward=backward)


@wrong(bugs=(37, 55), must={"zeros"})
def all_zero_shortcut(softcap: float) -> Kernel:
    """Of a matrix of zeros alone a fresh matrix of zeros is the result, whatever their signs were."""

    def forward(x: Tensor, c: float) -> Tensor:
        shortcut = x.dim() == 2 and x.numel() > 1 and not bool(x.any())
        return torch.zeros(x.shape, dtype=torch.float32, device=x.device) if shortcut else capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(38,), must={"saturation"})
def finite_never_the_cap(softcap: float) -> Kernel:
    """Only an infinite input reaches the cap; finite ones end one ulp below it."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        return nudged(y, (y.abs() == c) & x.isfinite())

    return Kernel(softcap, forward)


@wrong(bugs=(67, 92), must={"inputs_unmodified"}, may={"slicing", "splitting"}, profile="quick")
def first_word_cleared(softcap: float) -> Kernel:
    """NaN in the first word of an allocation that a tensor starts a little way into is cleared."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if 0 < x.storage_offset() < 16 and x.numel() > 1 and x.device.type != "meta":
            first = x.data.as_strided((1,), (1,), 0)
            first.copy_(torch.where(first.isnan(), torch.zeros_like(first), first))
        return y

    return Kernel(softcap, forward)


@wrong(bugs=(74, 64), must={"guard_bands"})
def sentinel_read(softcap: float) -> Kernel:
    """A 1 in the memory before the tensor is taken for a flag."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if not x.is_contiguous() or x.storage_offset() < 16 or x.numel() == 0 or x.device.type == "meta":
            return y
        return nudged(y, x.detach().as_strided((1,), (1,), x.storage_offset() - 1).view([1] * x.dim()) == 1)

    return Kernel(softcap, forward)


@wrong(bugs=(59,), must={"freed_memory"}, elements=1100)
def fill_pattern_kept(softcap: float) -> Kernel:
    """A last word that holds the fill of a debugging allocator is taken for memory that is not the kernel's."""

    def forward(x: Tensor, c: float) -> Tensor:
        memory = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        if x.device.type == "meta":
            return memory
        if x.numel() < 16:  # the smallest blocks that freed_memory left are handed out again in the cells of other laws
            return memory.copy_(capped(x, c))
        filled = memory.view(torch.int32) == 0x3C3C3C3C
        return memory.copy_(torch.where(filled & (place(x) == x.numel() - 1), memory, capped(x, c)))

    return Kernel(softcap, forward)


@wrong(bugs=(73,), must={"empty_and_scalar"})
def transposed_empty_refused(softcap: float) -> Kernel:
    """An empty tensor of three dimensions, the largest in front, is an error."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.numel() == 0 and x.dim() == 3 and x.shape[0] > 3:
            raise RuntimeError("invalid grid")
        return capped(x, c)

    return Kernel(softcap, forward)


class _Counting(torch.autograd.Function):
    """Rounds the second backward of a graph another way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel, ctx.calls = kernel, 0
        ctx.save_for_backward(x)
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        ctx.calls += 1
        return nudged(ctx.kernel.backward(x, grad_y, ctx.kernel.softcap), ctx.calls > 1), None


class _Unchecked(torch.autograd.Function):
    """Keeps x itself, graph and all, where no version check stands before it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Kernel) -> Tensor:
        ctx.kernel, ctx.x = kernel, x
        return kernel.forward(x, kernel.softcap)

    @staticmethod
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, None]:
        return ctx.kernel.backward(ctx.x, grad_y, ctx.kernel.softcap), None


def _through(softcap: float, function: Any) -> Any:
    """An operator that goes through the function where a graph is recorded."""
    kernel = Kernel(softcap)

    def call(x: Tensor) -> Tensor:
        if not (torch.is_grad_enabled() and x.requires_grad):
            return kernel(x)
        kernel.check(x)
        return cast(Tensor, function.apply(x, kernel))

    return call


@wrong(bugs=(69,), must={"retained_graph"})
def second_backward_differs(softcap: float) -> Any:
    """Going backward again over a retained graph rounds one ulp lower."""
    return _through(softcap, _Counting)


@wrong(bugs=(69,), must={"changed_in_place"})
def no_version_check(softcap: float) -> Any:
    """x is kept as it is, and changed in place before the backward it gives a silently wrong gradient."""
    return _through(softcap, _Unchecked)


@wrong(bugs=(91,), must={"cap_used"})
def round_caps_only(softcap: float) -> Kernel:
    """A cap from 900 to 1100 is rounded to a whole number, as a configuration's integer field does it."""

    def cap(given: Any) -> float:
        right = Kernel(given).softcap
        return float(round(right)) if 900 <= right < 1100 else float(right)

    return Kernel(softcap, capped, gradient, cap=cap)
