"""Outputs and gradients against the certified truth, before anything is timed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders import Contender
from oracles.acceptance import accept
from oracles.truth import Truth

LIMIT = 1 << 24  # elements; of larger tensors the two ends are compared


def ends(t: Tensor) -> Tensor:
    """All elements, or as many of LIMIT from both ends, shape (n,)."""
    flat = t.detach().reshape(-1)
    if flat.numel() <= LIMIT:
        return flat
    return torch.cat([flat[: LIMIT // 2], flat[-LIMIT // 2 :]])


class Truths:
    """The truth about one workload; gradients by the dtype of the upstream gradient that a contender is sent."""

    def __init__(self, x: Tensor, grad_y: Tensor, cap: float) -> None:
        self.x, self.grad_y, self.cap = ends(x), ends(grad_y), cap
        self.forward = Truth.of(self.x, cap)
        self._gradients: dict[torch.dtype, Truth] = {}

    def gradient(self, dtype: torch.dtype) -> Truth:
        """The truth about the gradient for the upstream gradient rounded to `dtype`."""
        if dtype not in self._gradients:
            self._gradients[dtype] = Truth.of(self.x, self.cap, self.grad_y.to(dtype))
        return self._gradients[dtype]


def check(contender: Contender, x: Tensor, grad_y: Tensor, truths: Truths) -> dict[str, Any]:
    """What each rule says of the output and the gradient, with the worst error and how much was compared."""
    leaf = x.detach().requires_grad_()
    y = contender.op(leaf)
    (grad_x,) = torch.autograd.grad(y, leaf, grad_y.to(y.dtype))
    shaped = y.shape == x.shape and grad_x.shape == x.shape and grad_x.dtype == x.dtype
    found: dict[str, Any] = {
        "contender": contender.name,
        "output_dtype": str(y.dtype).removeprefix("torch."),
        "elements": truths.x.numel(),
        "ok": shaped,
    }
    if not shaped:
        return found
    for what, got, truth in (
        ("output", ends(y), truths.forward),
        ("gradient", ends(grad_x), truths.gradient(y.dtype)),
    ):
        for rule in contender.rules:
            accepted = accept(rule, got, truth)
            found[f"{what}_{rule}"] = accepted.all_ok
            found[f"{what}_worst"] = float(f"{float(accepted.error.max()):.4g}")
            found["ok"] = found["ok"] and accepted.all_ok
    return found
