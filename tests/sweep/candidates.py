"""Candidates that the command is given as a file."""

from __future__ import annotations

import os

import torch


class Cast:
    """c * tanh(x / c) in FP32, cast to the input's dtype."""

    def __init__(self, softcap: float) -> None:
        self.cap = softcap

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return (self.cap * torch.tanh(x.float() / self.cap)).to(x.dtype)


class Wrong(Cast):
    """Right but for one input."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x == 3.0, x, super().__call__(x))


class Raises(Cast):
    """Right, until it meets a large input."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 4 and x.dtype == torch.bfloat16:
            raise RuntimeError("no BF16 here")
        return super().__call__(x)


class Dies(Cast):
    """The same, and takes the process with it."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() > 4 and x.dtype == torch.bfloat16:
            os._exit(3)
        return super().__call__(x)


class GivesUp(Cast):
    """Right, until it meets 10.5."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if bool((x == 10.5).any()):
            raise ArithmeticError("eleven")
        return super().__call__(x)


def no_gradient(x: torch.Tensor, softcap: float) -> torch.Tensor:
    """Forward only."""
    return (softcap * torch.tanh(x.detach().float() / softcap)).to(x.dtype)
