"""Which tiers this machine has."""

from __future__ import annotations

import importlib.util
import platform
from functools import cache

import torch


@cache
def reason_not_here(tier: str) -> str | None:
    """Why a tier cannot be judged on this machine, or None where it can."""
    if tier == "device":
        return None if torch.cuda.is_available() else "no CUDA or ROCm device"
    if tier in ("interpreter", "codegen"):
        if importlib.util.find_spec("triton") is None:
            return "Triton is not installed"
        if platform.system() != "Linux":
            return "Triton's interpreter and compiler are on Linux only"
    return None
