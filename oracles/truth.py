"""The truth about a whole tensor: FP64 values with certified bounds, and any one element exactly."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oracles import exact, fp64
from oracles.exact import DEFAULT_BITS, Enclosure
from oracles.formats import cap_as_fp32, format_of
from oracles.rounding import round_once


@dataclass(frozen=True)
class Truth:
    """The exact forward result of x at a cap, or with grad_y the exact gradient.

    `value` and `error` are FP64 tensors of x's shape and device: the exact value lies in value ± error.
    Special values follow the rules of the operator: NaN in x or grad_y gives NaN; x = ±inf gives ±cap
    forward and 0 backward; an infinite grad_y gives that infinity (past |x/cap| = 8 any non-finite result
    is as good).
    """

    x: Tensor
    cap: float
    grad_y: Tensor | None
    value: Tensor
    error: Tensor

    @classmethod
    def of(cls, x: Tensor, cap: float, grad_y: Tensor | None = None) -> Truth:
        """The truth about x (FP16, BF16 or FP32, any shape and layout) at `cap`, which is first rounded to
        FP32.

        grad_y, when given, has x's shape and any of the three dtypes. Both are copied, so that a candidate
        that writes into its inputs cannot move the truth. Raises TypeError for other dtypes, ValueError for
        another shape.
        """
        format_of(x.dtype)
        x, cap = _copy(x), cap_as_fp32(cap)
        if grad_y is None:
            value = fp64.forward(x, cap)
            return cls(x, cap, None, value, fp64.forward_bound(x, value))
        format_of(grad_y.dtype)
        if grad_y.shape != x.shape:
            raise ValueError(f"grad_y must have the shape of x, {tuple(x.shape)}, not {tuple(grad_y.shape)}")
        grad_y = _copy(grad_y)
        value = _gradient(x, grad_y, cap)
        return cls(x, cap, grad_y, value, fp64.gradient_bound(x, grad_y, cap, value))

    @property
    def is_nan(self) -> Tensor:
        """Where NaN is the right result: bool, x's shape."""
        return self.x.isnan() if self.grad_y is None else self.x.isnan() | self.grad_y.isnan()

    def arguments(self, flat_index: int) -> tuple[float, float | None]:
        """x and grad_y (None forward) of one element in logical order, as Python floats."""
        x = float(self.x.reshape(-1)[flat_index].item())
        return x, None if self.grad_y is None else float(self.grad_y.reshape(-1)[flat_index].item())

    def exact(self, flat_index: int, bits: int = DEFAULT_BITS) -> Enclosure:
        """The exact value of one element, enclosed. ValueError where NaN or an infinity is the truth."""
        x, grad_y = self.arguments(flat_index)
        if grad_y is None:
            return exact.forward(x, self.cap, bits)
        return exact.gradient(x, grad_y, self.cap, bits)

    def explain(self, flat_index: int) -> str:
        """The exact value of one element for a reader: 20 decimal digits, and the nearest FP64 in hex."""
        x, grad_y = self.arguments(flat_index)
        return exact.describe(x, self.cap, grad_y)

    def undecided(self, dtype: torch.dtype) -> Tensor:
        """Where value ± error does not tell the correctly rounded result: bool, x's shape."""
        low, high = round_once(self.value - self.error, dtype), round_once(self.value + self.error, dtype)
        return (low != high) & self.value.isfinite()

    def rounded(self, dtype: torch.dtype) -> Tensor:
        """The correctly rounded result: `dtype`, x's shape. What FP64 cannot decide is decided exactly."""
        result = round_once(self.value, dtype)
        flat = result.view(-1)
        for index in self.undecided(dtype).reshape(-1).nonzero().flatten().tolist():
            x, grad_y = self.arguments(index)
            if grad_y is None:
                flat[index] = exact.round_forward(x, self.cap, dtype)
            else:
                flat[index] = exact.round_gradient(x, grad_y, self.cap, dtype)
        return result


def _copy(t: Tensor) -> Tensor:
    return t.detach().clone(memory_format=torch.contiguous_format)


def _gradient(x: Tensor, grad_y: Tensor, cap: float) -> Tensor:
    """The FP64 gradient with the special values of the operator: inf * 0 is inf where grad_y is infinite."""
    infinite = grad_y.isinf() & ~x.isnan()
    return torch.where(infinite, grad_y.to(torch.float64), fp64.gradient(x, grad_y, cap))
