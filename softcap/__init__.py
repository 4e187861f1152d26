"""Final logit softcap, ``y = c * tanh(x / c)``: a PyTorch reference, Triton kernels, a registry over both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softcap.contract import DEFAULT_SOFTCAP, check_cap
from softcap.reference import NativeFinalLogitSoftcapOp
from softcap.registry import OpBackend, kernel_registry, load_path

if TYPE_CHECKING:
    from softcap.triton_op import TritonFinalLogitSoftcapOp

__all__ = [
    "DEFAULT_SOFTCAP",
    "NativeFinalLogitSoftcapOp",
    "OpBackend",
    "TritonFinalLogitSoftcapOp",
    "check_cap",
    "kernel_registry",
]


def __getattr__(name: str) -> Any:
    if name == "TritonFinalLogitSoftcapOp":  # on demand: Triton is optional
        return load_path("softcap.triton_op:TritonFinalLogitSoftcapOp")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
