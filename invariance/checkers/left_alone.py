"""What a call must leave as it found it in the process: modes, settings and random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from torch import Tensor

from invariance.candidate import Map, Operator
from invariance.checkers import Pick, checker
from invariance.checkers.states import flushes
from invariance.checkers.views import Args, through
from invariance.judge import Claim


@dataclass(frozen=True)
class Setting:
    """A setting of the process. under: the values under which a call is made; None where it stays as found."""

    read: Callable[[], Any]
    write: Callable[[Any], object]
    under: tuple[Any, Any] | None = None


Found = dict[str, Any]


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    bugs=("Dao-AILab/flash-attention#1397", "pytorch/pytorch#128209", "unslothai/unsloth#4502"),
)
def process_left_alone(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A call leaves the process as it was: grad mode, default dtype, random numbers, threads, autocast, denormals."""
    settings = _settings(args[0].device)
    for number, state in enumerate(("usual settings", "other settings")):
        found: list[tuple[Found, Found]] = []
        with _restored(settings):
            for setting in settings.values():
                if setting.under is not None:
                    setting.write(setting.under[number])
            before = _read(settings)
            grad = f.pass_ != "inference" or number == 1  # an input that requires none comes in either mode
            through(f, _watching(settings, found, grad))(*args)
            found.append((before, _read(settings)))
        for was, now in found:
            for name in settings:
                yield Claim(f"{name}, under {state}", got=_short(now[name]), want=_short(was[name]))


def _watching(
    settings: dict[str, Setting], found: list[tuple[Found, Found]], grad: bool
) -> Callable[[Operator, Tensor], Tensor]:
    """A call that looks at the settings just before and after: the map's own grad mode would hide one left changed."""

    def call(op: Operator, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(grad):
            before = _read(settings)
            y = op(x)
            found.append((before, _read(settings)))
        return y

    return call


def _read(settings: dict[str, Setting]) -> Found:
    return {name: setting.read() for name, setting in settings.items()}


@contextmanager
def _restored(settings: dict[str, Setting]) -> Iterator[None]:
    """All settings are as they were found, whatever a candidate does to them: later cells are judged alike."""
    before = _read(settings)
    try:
        yield
    finally:
        for name, setting in settings.items():
            setting.write(before[name])


def _short(value: Any) -> str:
    """A value, or the hash of a long one, such as the state of a generator."""
    text = repr(value)
    return text if len(text) < 80 else f"state {blake2b(text.encode(), digest_size=8).hexdigest()}"


def _settings(device: torch.device) -> dict[str, Setting]:
    """Every setting that is watched, by name."""
    settings = {
        "the grad mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
        "the inference mode": Setting(torch.is_inference_mode_enabled, lambda _: None),  # no setter
        "the default dtype": Setting(
            torch.get_default_dtype, torch.set_default_dtype, (torch.float32, torch.float64)
        ),
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
        "Python's random numbers": Setting(random.getstate, random.setstate),
        "NumPy's random numbers": Setting(_numpy_state, np.random.set_state),
        "the random numbers of the CPU": _generator(torch.default_generator),
        **{f"autocast on {kind}": _autocast(kind) for kind in sorted({"cpu", device.type})},
    }
    if device.type == "cuda":
        generators = torch.cuda.default_generators
        settings["the random numbers of the device"] = _generator(generators[device.index or 0])
        settings["the current device"] = Setting(torch.cuda.current_device, torch.cuda.set_device)
        settings["the current stream"] = Setting(torch.cuda.current_stream, torch.cuda.set_stream)
    return settings


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
