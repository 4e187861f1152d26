"""Certificates merge in any order to the same bytes, and refuse what does not belong together."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from invariance.sweep import document
from invariance.sweep.certificate import Bin, Certificate, Found, Worst, gaps, joined, merged
from tests.sweep.subjects import BLOCK, Quotient, Sigmoid, swept

START = 0x41F00000 - 4 * BLOCK


def parts(kind: type, pass_: str = "forward") -> list[Certificate]:
    return [swept(kind, 30.0, "fp32", pass_, lo, lo + BLOCK) for lo in range(START, START + 7 * BLOCK, BLOCK)]


@pytest.mark.parametrize("kind", [Sigmoid, Quotient])
@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_seven_parts_in_any_order_are_the_whole_byte_for_byte(kind: type, pass_: str) -> None:
    whole = document.dumps(swept(kind, 30.0, "fp32", pass_, START, START + 7 * BLOCK))
    pieces = parts(kind, pass_)
    for seed in range(3):
        random.Random(seed).shuffle(pieces)
        assert document.dumps(merged(pieces)) == whole
    left, right = merged(pieces[:3]), merged(pieces[3:])
    assert document.dumps(left.merge(right)) == document.dumps(right.merge(left)) == whole


def test_a_document_reads_back_as_the_certificate() -> None:
    for certificate in (parts(Quotient)[0], swept(Sigmoid, 7.3, "bf16", "backward")):
        assert document.loads(document.dumps(certificate)) == certificate


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": "other"}', '{"format": "softcap-verify certificate 1"}']
)
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        document.loads(text)


def test_overlaps_and_other_keys_are_refused() -> None:
    a, b = parts(Sigmoid)[:2]
    with pytest.raises(ValueError, match="covered twice"):
        merged([a, b, a])
    with pytest.raises(ValueError, match="candidate one and two"):
        merged(
            [replace(a, key=replace(a.key, candidate="one")), replace(b, key=replace(b.key, candidate="two"))]
        )
    with pytest.raises(ValueError, match="no certificates"):
        merged([])


def test_ranges() -> None:
    assert joined([(4, 8), (0, 4), (10, 12)]) == ((0, 8), (10, 12))
    assert gaps(((0, 8), (10, 12)), 16) == [(8, 10), (12, 16)]
    assert gaps((), 16) == [(0, 16)]


def test_ties_go_to_the_smallest_magnitude_and_then_to_the_positive_input() -> None:
    sign = 1 << 31
    bins = [Bin(1, Worst(2.0, pattern, 0)) for pattern in (7 | sign, 7, 9, 5 | sign)]
    total = Bin()
    for bin_ in bins:
        total = total.plus(bin_, sign)
    assert total == Bin(4, Worst(2.0, 5 | sign, 0))
    assert bins[0].plus(bins[1], sign).worst == Worst(2.0, 7, 0)


def test_the_first_inputs_are_those_of_smallest_magnitude() -> None:
    sign = 1 << 15
    a, b = Found(4, (3, 3 | sign, 9, 11)), Found(3, (1 | sign, 4, 10))
    assert a.plus(b, sign) == b.plus(a, sign) == Found(7, (1 | sign, 3, 3 | sign, 4, 9))
