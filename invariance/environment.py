"""Provenance: versions, device, commit, contract, the backend asked for and the one that ran."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from oracles.tolerances import load_contract

_PACKAGES = ("torch", "triton", "numpy", "mpmath", "hypothesis", "softcap-verify")


class NoSuchDevice(Exception):
    """The device asked for is not here; the message says which are."""


def resolve_device(name: str) -> str:
    """`auto`, `cpu`, `cuda` or `cuda:i` as a device that exists; raises NoSuchDevice. ROCm devices are `cuda` too."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda:0" if count else "cpu"
    if name == "cpu":
        return name
    kind, _, index = name.partition(":")
    if kind != "cuda" or (index and not index.isdigit()):
        raise NoSuchDevice(f"device {name!r} is not one of auto, cpu, cuda, cuda:0, cuda:1, ...")
    if not count:
        raise NoSuchDevice(
            f"device {name!r} is missing: torch {torch.__version__} sees no CUDA or ROCm device here"
        )
    if int(index or 0) >= count:
        raise NoSuchDevice(f"device {name!r} is missing: there are {count}, cuda:0 to cuda:{count - 1}")
    return f"cuda:{int(index or 0)}"


def describe(device: str, seed: int, probes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The `environment` of a report; nothing in it is compared between two reports."""
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in _PACKAGES},
        "device": device,
        "accelerator": _accelerator(device),
        "commit": _git("rev-parse", "HEAD"),
        "tracked_changes": _tracked_changes(),
        "seed": seed,
        "contract": load_contract().fingerprint,
        "candidates": {
            name: {
                "asked": name,
                "ran": probe["ran"],
                "launched": probe.get("launched"),
                "substitutions": probe.get("substitutions", []),
                "code": probe.get("code", []),
            }
            for name, probe in sorted(probes.items())
        },
    }


def _version(package: str) -> str | None:
    module = sys.modules.get(package)
    if module is not None and hasattr(module, "__version__"):
        return str(module.__version__)
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _accelerator(device: str) -> dict[str, Any] | None:
    if device == "cpu":
        return None
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "architecture": getattr(properties, "gcnArchName", None)
        or f"sm_{properties.major}{properties.minor}",
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "runtime": f"HIP {torch.version.hip}" if torch.version.hip else f"CUDA {torch.version.cuda}",
        "driver": _driver(),
    }


def memory(device: str) -> int:
    """Bytes of memory of the machine, or of one of its accelerators."""
    if device == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return int(torch.cuda.get_device_properties(device).total_memory)


def too_large(shape: tuple[int, ...], device: str) -> str | None:
    """Why tensors of a shape cannot be judged here; None where they may fit."""
    needed, there = 8 * math.prod(shape), memory(device)
    if needed <= there:
        return None
    sizes = f"{needed / 2**30:,.0f} GiB in FP64, and {device} has {there / 2**30:,.0f}"
    return f"{'x'.join(map(str, shape))} is too large: the exact values take {sizes}"


def _driver() -> str | None:
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return _output(["rocm-smi", "--showdriverversion"] if torch.version.hip else query)


def _git(*arguments: str) -> str | None:
    """Of the suite's own checkout; None where it is installed without one."""
    return _output(["git", "-C", str(Path(__file__).parent), *arguments])


def _tracked_changes() -> bool | None:
    status = _git("status", "--porcelain", "--untracked-files=no")
    return None if status is None and _git("rev-parse", "HEAD") is None else bool(status)


def _output(command: list[str]) -> str | None:
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
