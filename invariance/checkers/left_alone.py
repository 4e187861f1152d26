"""What a call, and an import, must leave as it found it in the process: modes, settings and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from invariance.candidate import Map, Operator
from invariance.checkers import Pick, checker
from invariance.checkers.settings import Setting, settings_of
from invariance.checkers.views import Args, through
from invariance.judge import Claim

Found = dict[str, Any]


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    bugs=("Dao-AILab/flash-attention#1397", "pytorch/pytorch#128209", "unslothai/unsloth#4502"),
)
def process_left_alone(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A call leaves the process as it was, a refused one too: modes, dtypes, random numbers, threads, warnings.

    What is not set to two values is put where it was before the candidate's first call in this process: what an earlier
    cell's call has left would hide the same change here.
    """
    if changed := f.candidate.imported:
        yield Claim("what importing the candidate changed", got="; ".join(changed[:5]), want="nothing")
    settings = settings_of(args[0].device)
    for number, state in enumerate(("usual settings", "other settings")):
        with _restored(settings):
            _put_back(settings, {**f.candidate.settings, **_under(settings, number)})
            before = _read(settings)
            f.at(f.cap)(*args)
            built = _read(settings)
            _put_back(settings, before)
            found: list[tuple[Found, Found]] = []
            grad = f.pass_ != "inference" or number == 1  # an input that requires none comes in either mode
            through(f, _watching(settings, found, grad))(*args)
            found.append((before, _read(settings)))
        for name, setting in settings.items():
            if not setting.lazy:
                yield _unchanged(f"{name}, of an operator built under {state}", before[name], built[name])
            for was, now in found:
                yield _unchanged(f"{name}, under {state}", was[name], now[name])


def _watching(
    settings: dict[str, Setting], found: list[tuple[Found, Found]], grad: bool
) -> Callable[[Operator, Tensor], Tensor]:
    """A call that looks at the settings just before and after: the map's own grad mode would hide one left changed."""

    def call(op: Operator, x: Tensor) -> Tensor:
        with torch.set_grad_enabled(grad):
            before = _read(settings)
            y = op(x)
            found.append((before, _read(settings)))
            with suppress(Exception):  # whether it refuses is for other laws; what it does before it does is not
                op(x.detach().to(torch.float64))
            found.append((before, _read(settings)))
        return y

    return call


def _read(settings: dict[str, Setting]) -> Found:
    return {name: setting.read() for name, setting in settings.items()}


def _under(settings: dict[str, Setting], number: int) -> Found:
    return {name: setting.under[number] for name, setting in settings.items() if setting.under is not None}


def _put_back(settings: dict[str, Setting], before: Found) -> None:
    for name, setting in settings.items():
        if name in before and setting.read() != before[name]:
            setting.write(before[name])


@contextmanager
def _restored(settings: dict[str, Setting]) -> Iterator[None]:
    """All settings are as they were found, whatever a candidate does to them: later cells are judged alike."""
    before = _read(settings)
    try:
        yield
    finally:
        _put_back(settings, before)


def _unchanged(label: str, was: Any, now: Any) -> Claim:
    """The claim that a setting is what it was; of one with parts their names are told, and no value of a variable."""
    if isinstance(was, dict):
        names = sorted(name for name in {*was, *now} if was.get(name) != now.get(name))
        return Claim(label, got=f"changed: {', '.join(names) or 'nothing'}", want="changed: nothing")
    if now == was:  # the state of a generator is long
        return Claim(label, got="as it was", want="as it was")
    return Claim(label, got=_short(now), want=_short(was))


def _short(value: Any) -> str:
    """A value, or the hash of a long one, such as the state of a generator."""
    text = repr(value)
    return text if len(text) < 80 else f"state {blake2b(text.encode(), digest_size=8).hexdigest()}"
