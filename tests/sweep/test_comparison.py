"""Two certificates: the same function, another one, or not comparable."""

from __future__ import annotations

from dataclasses import replace

import torch

from invariance.sweep.certificate import Certificate
from invariance.sweep.comparison import DIFFERENT, NOT_COMPARABLE, SAME, Results, compare, differences
from invariance.sweep.domain import RANGE, encode
from invariance.sweep.torch_engine import TorchEngine
from tests.sweep.subjects import BLOCK, Native, Reciprocal, engine, planted, swept

LO = encode(3.0, torch.float32) // BLOCK * BLOCK


def part(candidate: object, lo: int = LO, hi: int = LO + BLOCK) -> Certificate:
    return swept(candidate, 30.0, "fp32", "forward", lo, hi)  # type: ignore[arg-type]  # a class or a Candidate


def results(engine: TorchEngine) -> Results:
    """A function of (lo, hi) that the engine calls as one block."""
    return lambda lo, _: engine.results(lo)[1]


def test_the_same_function_twice_is_the_same() -> None:
    assert compare(part(Native), part(Native)).status == SAME


def test_another_function_differs_in_the_right_ranges() -> None:
    pattern = LO + 17
    found = compare(part(Native), part(planted(Native, pattern, 1)))
    assert found.status == DIFFERENT
    start = pattern // RANGE * RANGE
    assert found.ranges == ((start, start + RANGE),)


def test_native_and_its_reciprocal_variant_differ_only_where_they_differ() -> None:
    """Past saturation both give the cap."""
    far = encode(3e5, torch.float32) // BLOCK * BLOCK
    a, b = (part(kind).merge(part(kind, far, far + BLOCK)) for kind in (Native, Reciprocal))
    found = compare(replace(a, key=b.key), b)
    assert found.status == DIFFERENT
    assert found.ranges == ((LO // RANGE * RANGE, LO // RANGE * RANGE + RANGE),)


def test_the_first_inputs_are_named() -> None:
    a, b = engine(Native, 30.0, "fp32", "forward"), engine(Reciprocal, 30.0, "fp32", "forward")
    sign = a.domain.sign
    found = differences(results(a), results(b), ((LO, LO + BLOCK),), sign, limit=3)
    assert len(found) == 3
    x = (
        torch.tensor([difference.pattern for difference in found], dtype=torch.int64)
        .to(torch.int32)
        .view(torch.float32)
    )
    assert bool((Native(30.0)(x) != Reciprocal(30.0)(x)).all())
    assert differences(results(a), results(a), ((LO, LO + BLOCK),), sign) == []


def test_a_fingerprint_that_only_one_has_is_a_difference() -> None:
    a = part(Native)
    bare = replace(a, fingerprints={})
    start = LO // RANGE * RANGE
    for found in (compare(a, bare), compare(bare, a)):
        assert (found.status, found.ranges) == (DIFFERENT, ((start, start + RANGE),))


def test_other_subjects_and_other_parts_are_not_comparable() -> None:
    a = part(Native)
    for key in (replace(a.key, cap=20.0), replace(a.key, dtype="fp16"), replace(a.key, pass_="backward")):
        assert compare(a, replace(a, key=key)).status == NOT_COMPARABLE
    assert compare(a, part(Native, LO + BLOCK, LO + 2 * BLOCK)).status == NOT_COMPARABLE


def test_another_output_dtype_is_another_function() -> None:
    a = part(Native)
    assert compare(a, replace(a, key=replace(a.key, out_dtype="bf16"))).status == DIFFERENT
