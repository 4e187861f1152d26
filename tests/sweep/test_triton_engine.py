"""The fused verifier, interpreted: the same certificate as the torch engine, byte for byte."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton", reason="Triton is optional; without it there is no fused verifier")

from invariance.candidate import Candidate
from invariance.sweep import document
from invariance.sweep.certificate import Certificate
from invariance.sweep.domain import encode
from invariance.sweep.subject import key_of
from invariance.sweep.triton_engine import Tiles, TritonEngine
from invariance.tiers.interpreter import interpreted
from oracles.tolerances import load_contract
from tests.sweep.subjects import (
    BLOCK,
    Flushing,
    Native,
    Quotient,
    Rounded,
    Sigmoid,
    engine,
    planted,
    planted_gradient,
    seams,
    swept,
)


class Small(TritonEngine):
    """Calls of one block and tiles of 512: seams between calls and tiles in a range that is interpreted quickly."""

    call_size, tile = BLOCK, 512


def fused(candidate: Candidate | type, cap: float, pass_: str, lo: int, hi: int) -> Certificate:
    used = engine(candidate, cap, "fp32", pass_, Small)
    with interpreted():
        return used.sweep(key_of(used.subject, cap, load_contract()), lo, hi)


def agree(candidate: Candidate | type, cap: float, pass_: str, lo: int, hi: int) -> Certificate:
    found = fused(candidate, cap, pass_, lo, hi)
    assert document.dumps(found) == document.dumps(swept(candidate, cap, "fp32", pass_, lo, hi))
    return found


@pytest.mark.parametrize("pass_", ["forward", "backward"])
@pytest.mark.parametrize("cap", [30.0, 1.0])
def test_at_the_seams(pass_: str, cap: float) -> None:
    for lo in seams(cap, pass_):
        agree(Native, cap, pass_, lo, min(lo + 2 * BLOCK, 1 << 31))


@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_the_last_magnitudes_of_the_domain(pass_: str) -> None:
    found = agree(Native, 30.0, pass_, (1 << 31) - BLOCK, 1 << 31)
    assert found.count("correctly_rounded") == found.inputs == 2 * BLOCK


@pytest.mark.parametrize("kind", [Flushing, Sigmoid, Quotient, Rounded])
def test_on_kernels_that_are_not_ordinary(kind: type) -> None:
    for x in (0.0, 30 * 2.0**-13, 10.0, 2000.0):
        lo = encode(x, torch.float32) // BLOCK * BLOCK
        found = agree(kind, 30.0, "forward", lo, lo + BLOCK)
        assert found.inputs == 2 * BLOCK
    assert agree(Flushing, 30.0, "forward", 1 << 20, (1 << 20) + BLOCK).count("flushed") == 2 * BLOCK


@pytest.mark.parametrize("x", [2.0**-130, 1e-20, 3.0, 3e5])
@pytest.mark.parametrize("negative", [False, True])
def test_one_result_off_by_one_is_found_and_named(x: float, negative: bool) -> None:
    pattern = encode(-x if negative else x, torch.float32)
    lo = (pattern & 0x7FFFFFFF) // BLOCK * BLOCK
    clean = fused(Rounded, 30.0, "forward", lo, lo + BLOCK)
    found = agree(planted(Rounded, pattern, 1), 30.0, "forward", lo, lo + BLOCK)
    assert found.count("correctly_rounded") == clean.count("correctly_rounded") - 1
    assert found.counts["oddness_breaks"].first == (pattern & 0x7FFFFFFF,)
    assert found.fingerprints != clean.fingerprints


@pytest.mark.parametrize("x", [1e-20, 3.0, 250.0, 3e5])
def test_one_gradient_off_by_one_is_found_and_named(x: float) -> None:
    pattern = encode(x, torch.float32)
    lo = pattern // BLOCK * BLOCK
    found = agree(planted_gradient(Rounded, pattern, 1), 30.0, "backward", lo, lo + BLOCK)
    assert found.count("correctly_rounded") == found.inputs - 1
    assert found.counts["oddness_breaks"].first == (pattern,)


def test_a_mirrored_error_is_found_without_a_broken_symmetry() -> None:
    class Both(Native):
        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            y = super().__call__(x)
            return torch.where(x.abs() == 3.0, y * (1 + 2.0**-23), y)

    lo = encode(3.0, torch.float32) // BLOCK * BLOCK
    clean, found = (
        fused(Native, 30.0, "forward", lo, lo + BLOCK),
        agree(Both, 30.0, "forward", lo, lo + BLOCK),
    )
    assert found.count("oddness_breaks") == 0
    assert found.count("correctly_rounded") == clean.count("correctly_rounded") - 2


def test_lists_that_overflow_leave_it_to_the_torch_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invariance.sweep.triton_engine.CAPACITY", 1)
    lo = encode(3.0, torch.float32) // BLOCK * BLOCK
    assert agree(Rounded, 30.0, "forward", lo, lo + BLOCK).inputs == 2 * BLOCK


@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_tiles_are_the_pieces_of_the_domain(pass_: str) -> None:
    domain = engine(Native, 7.3, "fp32", pass_).domain
    lo, hi = 0x40000000, 0x45000000
    tiles, pieces = Tiles.of(domain, lo, hi, 1 << 16), domain.pieces(lo, hi, 1 << 16)
    assert tiles.lo.tolist() == [piece.lo for piece in pieces]
    assert tiles.size.tolist() == [piece.size for piece in pieces]


class WritesItsInput(Native):
    """Halves x in place, and is right for that."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x.detach().mul_(0.5)
        return super().__call__(x)


class KeepsItsResult(Native):
    """Gives back the same memory at each call; wrong at one input."""

    memory = torch.empty(0)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y = super().__call__(x)
        if KeepsItsResult.memory.shape != y.shape:
            KeepsItsResult.memory = torch.empty_like(y)
        out = KeepsItsResult.memory
        out.copy_(torch.where(x == 3.0, y + 1, y).detach())
        return out


@pytest.mark.parametrize("kind", [WritesItsInput, KeepsItsResult])
def test_a_candidate_that_writes_where_it_should_not(kind: type) -> None:
    lo = encode(3.0, torch.float32) // BLOCK * BLOCK
    found = agree(kind, 30.0, "forward", lo, lo + 3 * BLOCK)
    assert found.count("violations") >= 1
