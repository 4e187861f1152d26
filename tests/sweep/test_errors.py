"""FP64 errors of every zone lie within their bounds of the exact errors."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from invariance.sweep.domain import FINITE, Domain, decode, encode
from invariance.sweep.errors import errors, far_spacing
from invariance.sweep.settle import ERROR, Question
from oracles import exact
from oracles.formats import format_of, round_to_format

UNIT = 2.0**-24
CAPS = (30.0, 1.0, 1.0 + 2.0**-23, 3.0 * 2.0**40)


def places(domain: Domain, zone: str) -> list[int]:
    """Magnitudes at the ends of every stretch of a zone and between, powers of two and their neighbours."""
    pieces = [piece for piece in domain.pieces(0, domain.size, domain.size) if piece.zone == zone]
    pieces = pieces[:: max(1, len(pieces) // 6)] + pieces[-1:]
    found = {m for p in pieces for m in (p.lo, p.lo + 1, (p.lo + p.hi) // 2, p.lo + p.size // 7, p.hi - 1)}
    found |= {(m >> 23 << 23) + step for m in found for step in (0, 1)}
    return sorted(m for m in found if any(p.lo <= m < p.hi for p in pieces))


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("zone", FINITE)
@pytest.mark.parametrize("pass_", ["forward", "backward"])
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
def test_within_the_bound(cap: float, zone: str, pass_: str, out: torch.dtype) -> None:
    domain = Domain(torch.float32, cap, pass_)
    question = Question(domain.cap, pass_, torch.float32, out, UNIT)
    magnitudes = places(domain, zone)
    for magnitude in magnitudes[:: max(1, len(magnitudes) // 16)]:
        (piece,) = domain.pieces(magnitude, magnitude + 1, domain.size)
        x = decode(magnitude, torch.float32)
        nearest = (
            exact.round_forward(x, cap, out) if pass_ == "forward" else exact.round_gradient(x, 1.0, cap, out)
        )
        for steps in (0, 1, -2):
            got = max(0, encode(nearest, out) + steps)
            y = decode(got, out)
            a, result = (torch.tensor([v], dtype=torch.float64) for v in (x, y))
            found = errors(domain, piece, a, result, out, UNIT)
            if found.edge is not None and bool(found.edge[0]):
                continue
            want = question.error(magnitude, got)
            slack = found.bound + float(found.error[0]) * 2.0**-50
            low = round_to_format(Fraction(max(0.0, float(found.error[0]) - slack)), ERROR)
            high = round_to_format(Fraction(float(found.error[0]) + slack), ERROR)
            assert low <= want <= high, (x, y)
            off, bound = float(found.off[0]), found.off_bound
            right = question.correctly_rounded(magnitude, got)
            assert right or not off < 0.5 - bound
            assert not right or off <= 0.5 + bound


def test_the_ulp_is_that_of_the_binade_of_the_exact_value() -> None:
    """Just below 2**k the exact value has the finer spacing, even where FP64 holds 2**k itself."""
    domain = Domain(torch.float32, 30.0, "forward")
    magnitude = encode(2.0**-40, torch.float32)
    (piece,) = domain.pieces(magnitude, magnitude + 1, domain.size)
    a = torch.tensor([2.0**-40], dtype=torch.float64)
    found = errors(domain, piece, a, a * (1 + 2.0**-23), torch.float32, UNIT)
    assert float(found.error[0]) == pytest.approx(2.0)
    assert far_spacing(1.0, torch.float32) == 2.0**-24
    assert far_spacing(30.0, torch.bfloat16) == 2.0 ** (4 - format_of(torch.bfloat16).precision + 1)


def test_results_that_are_not_numbers_have_errors_that_are_none() -> None:
    domain = Domain(torch.float32, 30.0, "forward")
    for x in (1e-30, 1.0, 300.0, 3000.0):
        magnitude = encode(x, torch.float32)
        (piece,) = domain.pieces(magnitude, magnitude + 1, domain.size)
        a = torch.full((2,), x, dtype=torch.float64)
        y = torch.tensor([float("nan"), float("inf")], dtype=torch.float64)
        found = errors(domain, piece, a, y, torch.float32, UNIT).error
        assert bool(found[0].isnan())
        assert bool(found[1].isinf())
