"""The domain: every encoding once, cut exactly where |x/c| crosses a limit."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch

from invariance.sweep.domain import BELOW, FAR, INFINITY, NAN, TINY, Domain, canonical_nan, decode, encode

CAPS = (30.0, 1.0, 7.3, 2.0**-60, 2.0**60)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("limit", [Fraction(2) ** -126, Fraction(1, 4096), Fraction(8), Fraction(1, 3)])
def test_a_cut_is_the_smallest_magnitude_that_reaches_the_limit(
    cap: float, dtype: torch.dtype, limit: Fraction
) -> None:
    domain = Domain(dtype, cap, "forward")
    at = domain.cut(Fraction(domain.cap) * limit)
    if at < domain.infinity:
        assert Fraction(decode(at, dtype)) / Fraction(domain.cap) >= limit
    if at > 0:
        assert Fraction(decode(at - 1, dtype)) / Fraction(domain.cap) < limit


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_pieces_cover_the_domain_once_and_know_their_binade(
    cap: float, dtype: torch.dtype, pass_: str
) -> None:
    domain = Domain(dtype, cap, pass_)
    pieces = domain.pieces(0, domain.size, domain.size)
    assert [piece.lo for piece in pieces] == [0, *(piece.hi for piece in pieces[:-1])]
    assert pieces[-1].hi == domain.size
    assert {piece.zone for piece in pieces[-2:]} == {INFINITY, NAN}
    for piece in pieces:
        if piece.binade is not None:
            for edge in (piece.lo, piece.hi - 1):
                z = Fraction(decode(edge, dtype)) / Fraction(domain.cap)
                assert Fraction(2) ** piece.binade <= z < Fraction(2) ** (piece.binade + 1)


def test_zones_start_where_they_say() -> None:
    domain = Domain(torch.float32, 1.0, "forward")
    first = {zone: start for start, zone, _ in reversed(domain.starts)}
    assert first[BELOW] == 0
    assert decode(first[TINY], torch.float32) == 2.0**-126
    assert decode(first[FAR], torch.float32) == 32.0
    assert decode(first[INFINITY], torch.float32) == float("inf")


def test_pieces_of_a_part_are_cut_at_steps() -> None:
    domain = Domain(torch.float32, 30.0, "forward")
    pieces = domain.pieces(0x41F00000 - 100, 0x41F00000 + 100, 64)
    assert pieces[0].lo == 0x41F00000 - 100
    assert pieces[-1].hi == 0x41F00000 + 100
    assert all(piece.lo // 64 == (piece.hi - 1) // 64 for piece in pieces)
    assert len({piece.binade for piece in pieces}) == 2


@pytest.mark.parametrize("of", [1, 2, 3, 7, 64, 4096])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_shards_cover_the_domain_once(of: int, dtype: torch.dtype) -> None:
    domain = Domain(dtype, 30.0, "forward")
    shards = [domain.shard(number, of) for number in range(1, of + 1)]
    assert shards[0][0] == 0
    assert shards[-1][1] == domain.size
    assert all(left[1] == right[0] for left, right in itertools.pairwise(shards))
    assert all(lo % domain.block == 0 for lo, _ in shards)


@pytest.mark.parametrize("shard", [(0, 1), (2, 1), (-1, 3)])
def test_a_shard_that_is_not_there_is_refused(shard: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="shard"):
        Domain(torch.float32, 30.0, "forward").shard(*shard)


@pytest.mark.parametrize("dtype", DTYPES)
def test_encodings_and_values(dtype: torch.dtype) -> None:
    assert decode(encode(-1.5, dtype), dtype) == -1.5
    assert decode(canonical_nan(dtype), dtype) != decode(canonical_nan(dtype), dtype)
    assert encode(-0.0, dtype) == Domain(dtype, 1.0, "forward").sign
