"""Operators of several caps, alive together: what is kept in a process-wide place belongs to the last one built.

The law is `interleaved_caps`, on a few inputs where other caps give other results; a campaign judges one operator at a
time otherwise, and would never see it.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterator

import torch

from invariance.candidate import Candidate, CandidateRaised, Map
from invariance.checkers import load_laws
from invariance.checkers.crowds import crowd, three_caps
from invariance.fuzz.asked import Asked
from invariance.fuzz.grid import Grid
from invariance.fuzz.scan import CONSTRUCTOR, LEAVES, Part, during
from invariance.judge import judge
from strategies.caps import as_fp32, fp32_bits
from strategies.dtypes import TORCH, to_bits

TOGETHER = "interleaved_caps"
_ONE_IN = 8  # caps: the law builds 47 operators a pass, 5 ms forward and 11 ms backward
_CALLS = 200  # of all passes, at most
_EIGHTHS = 32  # magnitudes: c/8, 2c/8, ... 4c


def due(asked: Asked, *, first: bool) -> bool:
    """Whether a cap has its turn: the first one of a process, and one in eight of the others."""
    return first or fp32_bits(asked.cap) * 0x9E3779B1 >> 20 & 0xFFF < 0x1000 // _ONE_IN


def built_beside(asked: Asked) -> list[Asked]:
    """The caps of the operators that `alive` builds, in order."""
    return [Asked(cap, asked.form) for cap in three_caps(asked.cap)] * 2 + [
        Asked(cap, asked.form) for cap in crowd(asked.cap)
    ]


def alive(
    candidate: Candidate,
    passes: tuple[str, ...],
    asked: Asked,
    dtype: str,
    device: str,
    seconds: float = math.inf,
) -> Iterator[tuple[Grid, Part]]:
    """The law at a cap in each pass: one element that breaks it, or none. Raises Raised when the candidate does.

    seconds: where the calls of a pass would take longer, it is left out: a slow candidate is no hang.
    """
    law, given = load_laws()[TOGETHER], asked.given(candidate, device)
    grid = _around(as_fp32(asked.cap), dtype, device)
    broken = False
    for pass_ in passes:
        if broken and pass_ == "inference":  # one cause, told as forward invariance already
            continue
        with warnings.catch_warnings(), during(pass_):
            warnings.simplefilter("ignore")
            with during(CONSTRUCTOR):
                f = given.map(asked.cap, pass_)
            args: tuple[torch.Tensor, ...] = (grid.tensor(),)
            if pass_ == "backward":
                args = (*args, torch.ones_like(grid.both, dtype=f.out_dtype(grid.tensor_dtype, device)))
            began = time.monotonic()
            if seconds < math.inf:
                with contextlib.suppress(CandidateRaised, *LEAVES):
                    f.at(three_caps(f.cap)[1])(*args)
            if time.monotonic() - began > seconds / _CALLS:
                continue
            try:
                found = judge(law.check(f, args, lambda _name, low, _high: low))
            except (CandidateRaised, *LEAVES):
                if _each_runs(f, args):
                    raise
                return  # at some cap alone too, whose own turn it is to tell
        at = [] if found.mismatch is None else [found.mismatch.flat or 0]
        broken = bool(at)
        wrong = torch.tensor(at, dtype=torch.int64, device=device)
        yield (
            grid,
            Part(TOGETHER, pass_, found.elements, 0.0, 0, wrong, grid.both, args[-1] if args[1:] else None),
        )


def _each_runs(f: Map, args: tuple[torch.Tensor, ...]) -> bool:
    try:
        for cap in (*three_caps(f.cap), *crowd(f.cap)):
            f.at(cap)(*args)
    except (CandidateRaised, *LEAVES):
        return False
    return True


def _around(cap: float, dtype: str, device: str) -> Grid:
    values = torch.arange(1, _EIGHTHS + 1, dtype=torch.float64, device=device) * (cap / 8)
    near = values.clamp(max=torch.finfo(TORCH[dtype]).max).to(TORCH[dtype])
    return Grid(dtype, torch.unique(to_bits(near).to(torch.int64)))
