"""Wrong at the door: what must be refused is taken, and what must be taken is refused."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from invariance.known_bad.entry import ANY, wrong
from invariance.known_bad.kernel import ACCEPTED, Kernel, capped, nudged, refuse_dtypes
from oracles.formats import cap_as_fp32


def _number(given: Any) -> float:
    """Any number as a float; what is too large for one is infinite."""
    try:
        return float(given)
    except OverflowError:
        return math.inf


@wrong(bugs=(29, 30), must={"bad_caps"})
def any_cap_taken(softcap: float) -> Kernel:
    """Zero, negative, NaN and infinite caps are used as they come."""
    return Kernel(softcap, cap=_number)


@wrong(bugs=(30,), must={"bad_caps"})
def zero_is_off(softcap: float) -> Kernel:
    """A cap of 0 means none, without a word."""
    return Kernel(softcap, cap=lambda given: 2.0**60 if given == 0 else cap_as_fp32(given))


@wrong(bugs=(29,), must={"bad_caps"})
def tiny_cap_taken(softcap: float) -> Kernel:
    """A cap that is zero as FP32 is only checked as the FP64 number it came as."""
    return Kernel(
        softcap, cap=lambda given: 2.0**-60 if 0 < _number(given) < 2.0**-149 else cap_as_fp32(given)
    )


@wrong(bugs=(32,), must={"bad_dtypes"})
def fp64_taken(softcap: float) -> Kernel:
    """FP64 inputs are computed in FP32, without a word."""
    return Kernel(softcap, check=lambda x: None if x.dtype == torch.float64 else refuse_dtypes(x))


@wrong(bugs=(91,), must={"bad_dtypes"})
def integers_taken(softcap: float) -> Kernel:
    """Integers and bools are capped too."""

    def check(x: Tensor) -> None:
        if x.dtype.is_floating_point or x.dtype.is_complex:
            refuse_dtypes(x)

    return Kernel(softcap, check=check)


@wrong(bugs=(73,), must={"empty_and_scalar"}, may={"first_call", "repeat", "slicing"})
def empty_refused(softcap: float) -> Kernel:
    """An empty tensor is an error."""
    return Kernel(softcap, check=lambda x: _refuse(x.numel() == 0, x, "an empty tensor"))


@wrong(bugs=(73,), must={"empty_and_scalar", "reshaping"})
def many_dimensions_refused(softcap: float) -> Kernel:
    """More than three dimensions are an error."""
    return Kernel(softcap, check=lambda x: _refuse(x.dim() > 3, x, "more than three dimensions"))


@wrong(bugs=(8,), must={"exact_value"}, may=ANY, caps=(20,))
def integer_caps_refused(softcap: float) -> Kernel:
    """A cap given as a Python int is an error."""

    def cap(given: Any) -> float:
        if isinstance(given, int):
            raise TypeError("softcap must be a float")
        return cap_as_fp32(given)

    return Kernel(softcap, cap=cap)


@wrong(bugs=(8,), must={"exact_value"}, may=ANY)
def returns_a_tuple(softcap: float) -> Any:
    """The result comes with a tuple around it."""
    kernel = Kernel(softcap)
    return lambda x: (kernel(x),)


@wrong(bugs=(51,), must={"wrong_device"})
def meta_read(softcap: float) -> Kernel:
    """A tensor without memory gets a result on the CPU, made of nothing."""

    def forward(x: Tensor, c: float) -> Tensor:
        return capped(torch.zeros(x.shape), c) if x.device.type == "meta" else capped(x, c)

    return Kernel(softcap, forward)


@wrong(bugs=(20, 8), must={"exact_value"}, may=ANY)
def no_backward(softcap: float) -> Kernel:
    """The backward was never written."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        raise NotImplementedError("softcap backward")

    return Kernel(softcap, backward=backward)


def _refuse(condition: bool, x: Tensor, what: str) -> None:
    if x.dtype not in ACCEPTED:
        refuse_dtypes(x)
    if condition:
        raise ValueError(f"softcap does not take {what}")


@wrong(bugs=(20,), must={"bad_dtypes"})
def broken_by_a_refusal(softcap: float) -> Kernel:
    """A refused input leaves a flag behind, with which later calls go another way."""
    refused: list[bool] = []

    def check(x: Tensor) -> None:
        try:
            refuse_dtypes(x)
        except TypeError:
            refused.append(True)
            raise

    return Kernel(softcap, lambda x, c: nudged(capped(x, c), bool(refused)), check=check)


@wrong(bugs=(29, 30), must={"bad_caps"}, laws=("bad_caps", "cap_used"))
def some_negative_caps_taken(softcap: float) -> Kernel:
    """Negative caps near zero and beyond -1000 pass a check that was written for -1 and -30."""

    def cap(given: Any) -> float:
        number = _number(given)
        return -number if -0.5 < number < 0 or -1e6 < number < -1000 else cap_as_fp32(given)

    return Kernel(softcap, cap=cap)


@wrong(bugs=(32, 91), must={"bad_dtypes"}, laws=("bad_dtypes", "exact_value"))
def large_fp64_taken(softcap: float) -> Kernel:
    """FP64 inputs of more than 100 elements pass: the check is on the path for small ones."""
    return Kernel(softcap, check=lambda x: None if x.numel() > 100 else refuse_dtypes(x))


@wrong(bugs=(32, 73), must={"bad_dtypes"}, laws=("bad_dtypes", "empty_and_scalar"))
def empty_fp64_taken(softcap: float) -> Kernel:
    """An empty tensor comes back as an empty FP32 one, whatever dtype it had."""
    return Kernel(softcap, check=lambda x: None if x.numel() == 0 else refuse_dtypes(x))


@wrong(bugs=(91,), must={"bad_dtypes"}, laws=("bad_dtypes", "exact_value"))
def quantised_taken(softcap: float) -> Kernel:
    """One and two-byte integers and FP8 are taken for what a quantised model sends."""

    def check(x: Tensor) -> None:
        if x.element_size() > 2 or x.dtype == torch.bool:
            refuse_dtypes(x)

    return Kernel(softcap, check=check)
