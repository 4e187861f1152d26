"""Several threads in one operator, as where requests are served: what one call writes, another must not read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from pathlib import Path
from threading import Barrier
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from invariance import candidate
from invariance.candidate import Map
from invariance.checkers import NotApplicable, Pick, checker
from invariance.checkers.crowds import three_caps
from invariance.checkers.views import Args, each, interpreted, plain, tiled
from invariance.judge import Claim

_CALLS_AT_ONCE = 8
_MEETINGS = 96  # of one call with others; a call of more steps is met at some of them
# Seconds that a call waits for the first one that meets it, which may get no processor for so long, and for others once
# one did not come back: a lock keeps it until the step is over.
_PATIENCE, _WITH_A_LOCK = 1.0, 0.02


@checker(
    judgement="invariance",
    each_cap=False,
    inputs="one",
    bugs=("flashinfer-ai/flashinfer#2710",),
)
def threads_at_once(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Calls from several threads give the bits that each gives alone, at whichever step one meets the others."""
    if interpreted(f):
        raise NotApplicable("Triton's interpreter runs in one thread")
    mine, others = each(args, plain), each(args, lambda t: -0.5 * t)
    elsewhere = f.at(three_caps(f.cap)[2])
    with ThreadPoolExecutor(1) as stepping, ThreadPoolExecutor(1) as meeting:
        want = stepping.submit(f, *mine).result()
        beside = meeting.submit(f, *others).result()
        afar = meeting.submit(elsewhere, *others).result()
        count = stepping.submit(_Steps(f, mine)).result()[1]
        apart = 1 + count // _MEETINGS
        met: list[Future[tuple[Tensor, Tensor]]] = []

        patience = _PATIENCE

        def meet() -> None:
            nonlocal patience
            if met and not met[-1].done():
                return
            met.append(meeting.submit(lambda: (f(*others), elsewhere(*others))))
            if wait(met[-1:], timeout=patience).not_done:
                patience = _WITH_A_LOCK

        got, _ = stepping.submit(_Steps(f, mine, meet, apart, pick("first step", 0, apart - 1))).result()
    yield Claim("met at its steps by calls from another thread", got=got, want=want, of=mine)
    for call in met:
        near, far = call.result()
        yield Claim(
            "called from another thread between two steps of a call", got=near, want=beside, of=others
        )
        yield Claim("at another cap, between two steps of a call", got=far, want=afar, of=others)
    yield from _at_once(f, mine)


class _Steps:
    """A call that counts its steps, and does something after each of some: the lines that Python runs, and what they
    call in C.
    """

    def __init__(
        self,
        f: Map,
        args: Args,
        between: Callable[[], None] | None = None,
        apart: int = 1,
        first: int = 0,
    ) -> None:
        self.call: Callable[[], Tensor] = partial(f, *args)
        self.between = between
        self.apart, self.first, self.count = apart, first, 0

    def __call__(self) -> tuple[Tensor, int]:
        """The result of the call, and how many steps it took, in the thread that asks for it."""
        traced, profiled = sys.gettrace(), sys.getprofile()
        # In the backward too, which autograd has on a thread of its own for each device else.
        with torch.autograd.set_multithreading_enabled(False):
            sys.settrace(self._line)
            sys.setprofile(self._returned)
            try:
                return self.call(), self.count
            finally:
                sys.settrace(traced)
                sys.setprofile(profiled)

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if _of_a_library(frame.f_code.co_filename):
            return None
        if event == "line":
            self._step()
        return self._line

    def _returned(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_return" and not _of_a_library(frame.f_code.co_filename):
            self._step()

    def _step(self) -> None:
        if self.between is not None and self.count % self.apart == self.first:
            self.between()
        self.count += 1


_PYTHON = str(Path(os.__file__).parent)
_OTHERS = (str(Path(torch.__file__).parent), candidate.__file__, __file__)


@cache
def _of_a_library(filename: str) -> bool:
    """Whether code is Python's, torch's or what calls a candidate here: steps are those of the candidate's own code."""
    installed = "site-packages" in filename or "dist-packages" in filename
    return filename.startswith(_OTHERS) or (filename.startswith(_PYTHON) and not installed)


def _at_once(f: Map, args: Args) -> Iterator[Claim]:
    """Two threads that call with different numbers at the same time, each as often, get their own results."""
    if args[0].numel():
        args = each(args, lambda t: tiled(t, max(t.numel(), 1025)))
    given = args, each(args, lambda t: -0.5 * t)
    start = Barrier(2)

    def calls(mine: Args) -> list[Tensor]:
        start.wait(timeout=60)
        return [f(*mine) for _ in range(_CALLS_AT_ONCE)]

    with ThreadPoolExecutor(2) as pool:
        wants = [pool.submit(f, *mine).result() for mine in given]
        for mine, want, results in zip(given, wants, pool.map(calls, given), strict=True):
            for got in results:
                yield Claim("called from two threads at once", got=got, want=want, of=mine)
