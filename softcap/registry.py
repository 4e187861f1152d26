"""Which implementation serves which platform, and the stable names of the operators.

Implementations are imported when they are asked for, so that ``import softcap`` needs no Triton.
"""

from __future__ import annotations

import enum
import functools
import importlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

Device = torch.device | str | int | None


class OpBackend(enum.Enum):
    """What an operator can be implemented with."""

    TRITON = "triton"
    NATIVE = "native"


PLATFORMS: Mapping[str, tuple[OpBackend, ...]] = {
    "cuda": (OpBackend.TRITON, OpBackend.NATIVE),
    "rocm": (OpBackend.TRITON, OpBackend.NATIVE),
    "musa": (OpBackend.NATIVE,),
    "cpu": (OpBackend.NATIVE,),
    "npu": (OpBackend.NATIVE,),
}

# Names that stay when modules move, the specification's import paths of today and before among them.
STABLE_NAMES: Mapping[str, str] = json.loads(Path(__file__).with_name("module_names.json").read_text("utf-8"))


@dataclass(frozen=True)
class Resolution:
    """The chosen backend and its class; the backends before it with the reason why each was passed over."""

    backend: OpBackend
    op_class: Callable[..., Any]
    rejected: tuple[tuple[OpBackend, str], ...]


class KernelRegistry:
    """Operators by name, each with import paths by backend."""

    def __init__(self, operators: Mapping[str, Mapping[OpBackend, str]]) -> None:
        self._operators = {name: dict(paths) for name, paths in operators.items()}

    def names(self) -> tuple[str, ...]:
        """The known operators, sorted."""
        return tuple(sorted(self._operators))

    def resolve(self, name: str, *, device: Device = None) -> Resolution:
        """The first backend of the device's platform that can be imported and built with its defaults.

        Each one that cannot is passed over with a RuntimeWarning.  Raises ValueError for an unknown
        operator or platform, RuntimeError when no backend is left.
        """
        paths = self._paths(name)
        rejected: list[tuple[OpBackend, str]] = []
        for backend in PLATFORMS[platform_of(device)]:
            try:
                op_class = load_path(paths[backend])
                op_class()
            except Exception as error:  # noqa: BLE001, PERF203  # whatever keeps it from loading is a reason
                reason = f"{type(error).__name__}: {error}"
                message = f"{name}: backend {backend.value} passed over: {reason}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
                rejected.append((backend, reason))
            else:
                return Resolution(backend, op_class, tuple(rejected))
        tried = "; ".join(f"{backend.value}: {reason}" for backend, reason in rejected)
        raise RuntimeError(f"no backend of {name} can be loaded ({tried})")

    def get_op(self, name: str, *, device: Device = None) -> Any:
        """The operator built with its defaults, from the backend that ``resolve`` chooses.

        A launch that fails later is never tried again on another backend.
        """
        return self.resolve(name, device=device).op_class()

    def _paths(self, name: str) -> dict[OpBackend, str]:
        if name not in self._operators:
            raise ValueError(f"unknown operator {name!r}; known: {', '.join(self.names())}")
        return self._operators[name]


kernel_registry = KernelRegistry(
    {
        "final_logit_softcap": {
            OpBackend.TRITON: STABLE_NAMES["final_logit_softcap.triton"],
            OpBackend.NATIVE: STABLE_NAMES["final_logit_softcap.native"],
        }
    }
)


def registered(op_name: str, device: Device = None) -> Callable[..., Any]:
    """A factory ``factory(softcap=c)`` of the backend that the registry chooses for the device."""
    return functools.partial(kernel_registry.resolve(op_name, device=device).op_class)


def platform_of(device: Device = None) -> str:
    """The platform of a device, a key of ``PLATFORMS``; None is a GPU if there is one, else the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    kind = torch.device(device).type
    if kind == "cuda" and torch.version.hip is not None:
        return "rocm"
    if kind not in PLATFORMS:
        raise ValueError(f"no backends are known for device type {kind!r}; known: {', '.join(PLATFORMS)}")
    return kind


def load_path(path: str) -> Callable[..., Any]:
    """The attribute that ``module:attribute`` names."""
    module, _, attribute = path.partition(":")
    loaded: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return loaded
