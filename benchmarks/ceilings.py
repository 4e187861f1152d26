"""Calls that move the bytes of a pass and compute next to nothing; their times bound every other."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

COPY, KERNEL = "memory copy", "ceiling kernel"
CEILINGS = (COPY, KERNEL)

Call = Callable[[], object]


def ceilings(pass_: str, x: Tensor, grad_y: Tensor, block: int, num_warps: int) -> dict[str, Call]:
    """The ceilings of "forward" or "backward": a copy of as many bytes, and a kernel with the same accesses.

    The kernel runs with the operator's block and warps and allocates its result in the call, as the operator does.
    For "forward_backward" there are none: its ceiling is the sum of the two.
    """
    if pass_ == "forward_backward":
        return {}
    kernels = importlib.import_module("benchmarks.ceiling_kernels")  # needs Triton
    grid, n = (-(-x.numel() // block),), x.numel()

    def scale() -> Tensor:
        y = torch.empty_like(x, dtype=torch.float32)
        kernels.scale_kernel[grid](x, y, 0.5, n, BLOCK=block, num_warps=num_warps)
        return y

    def product() -> Tensor:
        grad_x = torch.empty_like(x)
        kernels.product_kernel[grid](x, grad_y, grad_x, 0.5, n, BLOCK=block, num_warps=num_warps)
        return grad_x

    half = bytes_moved(pass_, x) // 2
    source, target = (torch.zeros(half, dtype=torch.uint8, device=x.device) for _ in range(2))
    return {COPY: lambda: target.copy_(source), KERNEL: scale if pass_ == "forward" else product}


def bytes_moved(pass_: str, x: Tensor) -> int:
    """Bytes that the operator must read and write: x and y, or x, grad_y and grad_x, or both; y and grad_y in FP32."""
    width = x.element_size()
    widths = {"forward": width + 4, "backward": 2 * width + 4, "forward_backward": 3 * width + 8}
    return x.numel() * widths[pass_]
