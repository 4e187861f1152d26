"""Wrong towards memory: inputs overwritten, results that are views, writes outside, forms that drift."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from invariance.known_bad.entry import ANY, wrong
from invariance.known_bad.kernel import Kernel, capped


@wrong(bugs=(67, 68), must={"inputs_unmodified"}, may=ANY)
def capped_in_place(softcap: float) -> Kernel:
    """An FP32 input is capped in place and returned as it is."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.dtype == torch.float32 and _distinct(x):
            x.data.copy_(y)
        return y

    return Kernel(softcap, forward)


def _distinct(x: Tensor) -> bool:
    """Whether no two elements are one in memory, so that x may be written to."""
    return 0 not in [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1]


@wrong(
    bugs=(92,),
    must={"checkpointing", "inputs_unmodified", "interleaved_caps", "splitting", "vocabulary_shards"},
    may={"layout", "slicing"},
    profile="quick",
)
def gaps_overwritten(softcap: float) -> Kernel:
    """The memory between the rows of a padded input is cleared."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.dim() > 1 and x.stride(-1) == 1 and x.stride(-2) > x.shape[-1] > 0 and x.numel():
            gap = x.stride(-2) - x.shape[-1]
            room = x.untyped_storage().nbytes() // x.element_size() - x.storage_offset() - x.shape[-1]
            x.detach().as_strided((min(gap, room),), (1,), x.storage_offset() + x.shape[-1]).fill_(0)
        return y

    return Kernel(softcap, forward)


@wrong(
    bugs=(74, 64),
    must={
        "batch",
        "checkpointing",
        "first_call",
        "guard_bands",
        "inputs_unmodified",
        "interleaved_caps",
        "repeat",
        "slicing",
        "splitting",
        "vocabulary_shards",
    },
    profile="quick",
)
def writes_past_the_end(softcap: float) -> Kernel:
    """The kernel pads its input to a multiple of 8 in place, into whatever lies behind it."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        end = x.storage_offset() + x.numel()
        room = x.untyped_storage().nbytes() // x.element_size() - end
        count = min(-x.numel() % 8, room)
        if x.is_contiguous() and count > 0:
            x.detach().as_strided((count,), (1,), end).fill_(0)
        return y

    return Kernel(softcap, forward)


@wrong(bugs=(67,), must={"no_aliasing"})
def small_input_returned(softcap: float) -> Kernel:
    """Where the cap changes nothing, x itself is the result."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.dtype == torch.float32 and bool((y == x).all()):
            return x.view_as(x)
        return y

    return Kernel(softcap, forward)


@wrong(bugs=(32, 91), must={"result_form"}, may=ANY, profile="quick")
def dtype_by_shape(softcap: float) -> Any:
    """Scalars come back in FP64, as a Python number would."""
    return _changed(softcap, lambda x, y: y.double() if x.dim() == 0 else y)


@wrong(bugs=(32,), must={"grad_mode", "result_form"}, dtypes=("bf16",))
def dtype_by_grad_mode(softcap: float) -> Any:
    """Training results are FP32, those of inference have the dtype of x."""
    return _changed(
        softcap, lambda x, y: y.to(x.dtype) if not (torch.is_grad_enabled() and x.requires_grad) else y
    )


def _changed(softcap: float, change: Any) -> Any:
    """The right kernel, whose result `change(x, y)` replaces."""
    kernel = Kernel(softcap)
    return lambda x: change(x, kernel(x))


@wrong(bugs=(67, 69), must={"inputs_unmodified", "transformed_derivatives"}, may={"layout"})
def version_bumped(softcap: float) -> Kernel:
    """x is negated in place and back: the bits are as they were, and graphs that saved x are refused."""

    def inference(x: Tensor, c: float) -> Tensor:
        if _distinct(x):
            with torch.no_grad():
                x.neg_()
            y = -capped(x, c)
            with torch.no_grad():
                x.neg_()
            return y
        return capped(x, c)

    return Kernel(softcap, inference=inference)
