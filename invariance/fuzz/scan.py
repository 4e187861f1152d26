"""One cap, one dtype, both passes: all inputs of a grid called at once and judged by the rule "ulp".

The truth is odd (forward) and even (gradient) in x, so it is made for the magnitudes alone; the candidate is
called on both signs. Nearly all results are proven right by the oracles' own FP64 test on that half; what
that cannot prove goes to `oracles.acceptance.accept`, whose word is final.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from invariance.candidate import CandidateRaised, Map
from invariance.fuzz.grid import Grid
from invariance.process import in_one_line
from oracles.acceptance import Acceptance, accept
from oracles.formats import FORMATS
from oracles.intervals import Band, possibly_within, surely_within
from oracles.margins import margin_of
from oracles.rounding import round_exact, to_bits
from oracles.tolerances import Contract
from oracles.truth import Truth
from oracles.ulp import spacing

DOUBTFUL = 256  # elements asked of the exact oracle where the law is broken anyway
LAW, MODE_LAW = "exact_value", "grad_mode"
CONSTRUCTOR = "constructor"
# What leaves the interpreter is no Exception. A child ignores SIGINT: the latter is the candidate's own.
LEAVES = (SystemExit, KeyboardInterrupt)


class Raised(CandidateRaised):
    """The candidate raised, or left the interpreter; stage: CONSTRUCTOR, or the pass that was to be computed."""

    def __init__(self, reason: str, stage: str) -> None:
        super().__init__(reason)
        self.stage = stage


@contextlib.contextmanager
def during(stage: str) -> Iterator[None]:
    """What the candidate raises inside is `Raised` with this stage; so is SystemExit, which is no Exception."""
    try:
        yield
    except Raised:
        raise
    except CandidateRaised as error:
        raise Raised(str(error), stage) from error
    except LEAVES as error:
        raise Raised(in_one_line(error), stage) from error


@dataclass(frozen=True)
class Part:
    """What one pass over one grid gave.

    wrong: indices into `grid.both` of results that break the law, ascending; got, grad_y: of the whole grid. error: the
    worst proven one, before the last rounding; forward in FP32 ulp beyond the contract's floor of c * 2^-149, gradient
    in units of 2^-24 * |grad_y|. at: its index.
    """

    law: str
    pass_: str
    elements: int
    error: float
    at: int
    wrong: Tensor
    got: Tensor
    grad_y: Tensor | None = None
    flushed: int = 0
    escalated: int = 0


def scan(f: Map, grid: Grid, contract: Contract, *, passes: tuple[str, ...], grads: str) -> list[Part]:
    """The parts of a grid: forward, its bits again under no_grad, and where asked for the gradient.

    `f` is a map of any pass. passes: of "forward", "inference", "backward". grads: "ones" or "hashed". Raises
    Raised when the candidate does, or returns what no contract knows.
    """
    parts = []
    with during("forward"):
        leaf, y = (
            f.graph(grid.tensor()) if "backward" in passes else (None, f.under("forward")(grid.tensor()))
        )
        result = _fit(y.detach(), grid)
    if "forward" in passes:
        parts.append(_judged(result, Truth.of(grid.positive, f.cap), grid, contract))
    if "inference" in passes:
        with during("inference"):
            parts.append(_same(_fit(f.under("inference")(grid.tensor()), grid), result))
    if leaf is not None:
        half = grid.gradient(grads, result.dtype)
        truth = Truth.of(grid.positive, f.cap, half)
        whole = half.repeat(2)
        with during("backward"):
            gradient = _fit(f.gradient(leaf, y, whole), grid)
            if gradient.dtype != grid.tensor_dtype:
                raise CandidateRaised(f"returned a gradient of {gradient.dtype} for {grid.tensor_dtype}")
        parts.append(_judged(gradient, truth, grid, contract, whole))
    return parts


def _fit(result: Tensor, grid: Grid) -> Tensor:
    if result.shape != (grid.elements,) or result.dtype not in FORMATS:
        got = f"{tuple(result.shape)} {result.dtype}"
        raise CandidateRaised(f"returned {got} for {(grid.elements,)} {grid.tensor_dtype}")
    return result.contiguous()


def _same(got: Tensor, want: Tensor) -> Part:
    """The bits of the inference pass against those of the forward pass."""
    if got.dtype != want.dtype:
        wrong = torch.arange(got.numel(), device=got.device)
    else:
        bits, expected = to_bits(got), to_bits(want)
        wrong = torch.empty(0, dtype=torch.int64, device=got.device)
        if not torch.equal(bits, expected):
            wrong = ((bits != expected) & ~(got.isnan() & want.isnan())).nonzero().flatten()
    return Part(MODE_LAW, "inference", got.numel(), 0.0, 0, wrong, got)


def _judged(got: Tensor, truth: Truth, grid: Grid, contract: Contract, grad_y: Tensor | None = None) -> Part:
    """Results for both signs (all positive inputs, then all negative ones) against the truth of the positive ones."""
    folded = got.view(2, -1).clone()
    if truth.grad_y is None:
        folded[1].neg_()
    margin = margin_of("ulp", truth, contract)
    direct = truth.grad_y is None and got.dtype == torch.float32
    floor = margin.floor.expand(truth.value.shape)
    band = Band.around(truth.value, truth.error, margin, floor)
    sure = surely_within(folded, band, direct)
    if grid.special.numel():
        sure[:, grid.special] = folded[:, grid.special] == _at_infinity(truth, got.dtype)
    if grid.nan.numel():
        sure[:, grid.nan] = folded[:, grid.nan].isnan()
    rest = (~sure).view(-1).nonzero().flatten()
    wrong, flushed, escalated = _asked(got, folded, truth, band, rest, contract)
    error, at = _worst(folded, truth, sure, contract)
    return Part(
        LAW,
        "forward" if grad_y is None else "backward",
        got.numel(),
        error,
        at,
        wrong,
        got,
        grad_y,
        flushed,
        escalated,
    )


def _at_infinity(truth: Truth, dtype: torch.dtype) -> float:
    """What is right for certain where x is infinite: the cap rounded once, or a gradient of 0; NaN where that is open.

    Asking the oracle instead takes more operations than all other inputs of a 16-bit dtype together.
    """
    if truth.grad_y is not None:
        return 0.0
    limit = round_exact(Fraction(truth.cap), dtype)
    return limit if 0.0 < limit < math.inf else math.nan


def _asked(
    got: Tensor, folded: Tensor, truth: Truth, band: Band, rest: Tensor, contract: Contract
) -> tuple[Tensor, int, int]:
    """(indices that are wrong, how many are flushed, how many escalated) of those that are not proven right.

    Where some are wrong beyond doubt, or among the first few asked, only a few of the doubtful ones are asked:
    the law is broken, and each may cost milliseconds.
    """
    if not rest.numel():
        return rest, 0, 0
    doubtful = _doubtful(folded.view(-1)[rest], truth, band, rest, got.dtype)
    wrong, rest = rest[~doubtful], rest[doubtful]
    few = rest[:: max(rest.numel() // DOUBTFUL, 1)]
    found = _accepted(got, truth, few, contract)
    if wrong.numel() or not found.all_ok:
        wrong, _ = torch.cat([wrong, few[~found.ok]]).sort()
    elif few.numel() < rest.numel():
        few, found = rest, _accepted(got, truth, rest, contract)
        wrong = rest[~found.ok]
    return wrong, int(found.flushed.sum()), found.escalated


def _doubtful(folded: Tensor, truth: Truth, band: Band, rest: Tensor, dtype: torch.dtype) -> Tensor:
    """Which results the FP64 test alone does not refuse: near ones, zeros (a flush?), and special ones."""
    half = rest % truth.x.numel()
    near = possibly_within(folded, band[half], truth.grad_y is None and dtype == torch.float32)
    return near | (folded == 0) | ~truth.x[half].isfinite()


def _accepted(got: Tensor, truth: Truth, index: Tensor, contract: Contract) -> Acceptance:
    n = truth.x.numel()
    half, negative = index % n, index >= n
    x = torch.where(negative, -truth.x[half], truth.x[half])
    grad_y = None if truth.grad_y is None else truth.grad_y[half]
    return accept("ulp", got[index], Truth.of(x, truth.cap, grad_y), contract, everywhere=True)


def _worst(folded: Tensor, truth: Truth, sure: Tensor, contract: Contract) -> tuple[float, int]:
    """The largest error of proven results that the last rounding does not explain, and where."""
    off = (folded.to(torch.float64) - truth.value).abs_().masked_fill_(~sure, 0.0)
    if folded.dtype != torch.float32 or truth.grad_y is not None:
        off -= 0.5 * spacing(truth.value, folded.dtype)
    if truth.grad_y is None:
        off = (off - truth.cap * contract.forward_floor) / spacing(truth.value, torch.float32)
    else:
        off = off / (truth.grad_y.to(torch.float64).abs() * contract.gradient_unit)
    off = torch.where(off.isfinite(), off, 0.0).view(-1)
    at = int(off.argmax())
    return max(float(off[at]), 0.0), at
