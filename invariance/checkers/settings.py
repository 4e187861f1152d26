"""The settings of a process that a call must leave alone: how each is read and written."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from invariance.checkers.states import flushes


@dataclass(frozen=True)
class Setting:
    """A setting of the process. A value that is a dict has parts, which are told by name.

    under: the values under which a call is made; None where it is as it was before the first call. lazy: what a module
    that is imported at a first call may change (torch.compile's, the recursion limit), so that it is watched from the
    second on.
    """

    read: Callable[[], Any]
    write: Callable[[Any], object]
    under: tuple[Any, Any] | None = None
    lazy: bool = False


def settings_of(device: torch.device) -> dict[str, Setting]:
    """Every setting that is watched, by name."""
    kinds = sorted({"cpu", device.type})
    return {
        **_torch_settings(),
        **{f"autocast on {kind}": _autocast(kind) for kind in kinds},
        **{f"the autocast dtype on {kind}": _autocast_dtype(kind) for kind in kinds},
        **{f"cudnn.{name}": _of_cudnn(name) for name in ("benchmark", "deterministic", "allow_tf32")},
        **_python_settings(),
        **_numpy_settings(),
        **(_device_settings(device) if device.type == "cuda" else {}),
    }


def _set_default_device(device: torch.device) -> None:
    """Without one that is set, where that gives this device: what is set stands between torch and every call."""
    if torch.get_default_device() != device:
        torch.set_default_device(None)
    if torch.get_default_device() != device:
        torch.set_default_device(device)


def _torch_settings() -> dict[str, Setting]:
    return {
        "the grad mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "the inference mode": Setting(torch.is_inference_mode_enabled, lambda _: None),  # no setter
        "the default dtype": Setting(
            torch.get_default_dtype, torch.set_default_dtype, (torch.float32, torch.float64)
        ),
        "the default device": Setting(torch.get_default_device, _set_default_device),
        "the thread count": Setting(torch.get_num_threads, torch.set_num_threads, (1, 2)),
        "deterministic mode": Setting(
            torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, (0, 1)
        ),
        "the matmul precision": Setting(
            torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, ("highest", "high")
        ),
        "anomaly mode": Setting(_anomaly, _set_anomaly, ((False, True), (True, False))),
        # On where there is one thread: a second one that starts under it flushes for good, whatever is restored.
        "flushing of denormals": Setting(flushes, torch.set_flush_denormal, (True, False)),
        "the autocast cache": Setting(
            torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, (True, False)
        ),
        "torch's print options": Setting(_print_options, _set_print_options),
        "the random numbers of the CPU": _generator(torch.default_generator),
    }


# Everything is ignored, and in words that no candidate uses: adding the usual filter shows.
_IGNORED = [("ignore", None, Exception, None, 0)]


def _python_settings() -> dict[str, Setting]:
    return {
        "Python's random numbers": Setting(random.getstate, random.setstate),
        "the garbage collector": Setting(
            gc.isenabled, lambda on: gc.enable() if on else gc.disable(), (True, False)
        ),
        "the recursion limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit, lazy=True),
        "the warning filters": Setting(
            lambda: list(warnings.filters), _set_filters, (_IGNORED, _IGNORED), lazy=True
        ),
        "the environment": Setting(lambda: dict(os.environ), _set_environment, lazy=True),
        "the import path": Setting(
            lambda: list(sys.path), lambda found: sys.path.__setitem__(slice(None), found), lazy=True
        ),
        "the working directory": Setting(os.getcwd, os.chdir),
        "signal handlers": Setting(_handlers, _set_handlers),
    }


def _set_filters(found: list[Any]) -> None:
    warnings.filters[:] = found  # type: ignore[index]  # a list, which typeshed calls a sequence


def _set_environment(found: dict[str, str]) -> None:
    for name in [name for name in os.environ if name not in found]:
        del os.environ[name]
    os.environ.update(found)


def _handlers() -> dict[str, Any]:
    """What each signal does that a process may catch, by its name."""
    return {known.name: signal.getsignal(known) for known in signal.Signals}


def _set_handlers(found: dict[str, Any]) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # only the main thread may set one
    for name, handler in found.items():
        if handler is not None and handler != signal.getsignal(signal.Signals[name]):
            signal.signal(signal.Signals[name], handler)


def _numpy_settings() -> dict[str, Setting]:
    return {
        "NumPy's random numbers": Setting(_numpy_state, np.random.set_state),
        "NumPy's error handling": Setting(
            np.geterr,
            lambda found: np.seterr(**found),
            (
                dict.fromkeys(("divide", "over", "under", "invalid"), "ignore"),
                dict.fromkeys(("divide", "over", "under", "invalid"), "warn"),
            ),
        ),
        "NumPy's print options": Setting(np.get_printoptions, lambda found: np.set_printoptions(**found)),
    }


def _device_settings(device: torch.device) -> dict[str, Setting]:
    return {
        "the random numbers of the device": _generator(torch.cuda.default_generators[device.index or 0]),
        "the current device": Setting(torch.cuda.current_device, torch.cuda.set_device),
        "the current stream": Setting(torch.cuda.current_stream, torch.cuda.set_stream),
    }


def _print_options() -> dict[str, Any]:
    return dict(vars(torch._tensor_str.PRINT_OPTS))


def _set_print_options(found: dict[str, Any]) -> None:
    torch.set_printoptions(**found)  # type: ignore[no-untyped-call]  # torch's


def _of_cudnn(name: str) -> Setting:
    return Setting(
        lambda: getattr(torch.backends.cudnn, name),
        lambda on: setattr(torch.backends.cudnn, name, on),
        (False, True),
    )


def _autocast_dtype(kind: str) -> Setting:
    return Setting(
        lambda: torch.get_autocast_dtype(kind),
        lambda dtype: torch.set_autocast_dtype(kind, dtype),
        (torch.bfloat16, torch.float16),
    )


def _numpy_state() -> tuple[str, list[int], int, int, float]:
    """The state of NumPy's global generator, as plain numbers."""
    name, words, place, has_gauss, gauss = np.random.get_state(legacy=True)
    return str(name), np.asarray(words).tolist(), int(place), int(has_gauss), float(gauss)


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _set_anomaly(value: tuple[bool, bool]) -> None:
    torch.set_anomaly_enabled(*value)


def _autocast(kind: str) -> Setting:
    return Setting(
        lambda: torch.is_autocast_enabled(kind),
        lambda on: torch.set_autocast_enabled(kind, on),
        (False, True),
    )


def _generator(generator: torch.Generator) -> Setting:
    """The state of a generator, from two seeds: one that a candidate seeds anew is not at both where it puts it."""

    def read() -> list[int]:
        state: list[int] = generator.get_state().tolist()
        return state

    def write(state: list[int]) -> None:
        generator.set_state(torch.tensor(state, dtype=torch.uint8, device="cpu"))

    def seeded(seed: int) -> list[int]:
        state: list[int] = torch.Generator(generator.device).manual_seed(seed).get_state().tolist()
        return state

    return Setting(read, write, (seeded(0x5EED), seeded(0xACE5)))
