"""The shape families: the seams that they promise, and hashed shapes within their limits."""

from __future__ import annotations

from math import prod

import pytest

from strategies.shapes import NAMED, SHAPES, drawn, up_to


def test_every_family_says_what_it_breaks_and_holds_real_shapes() -> None:
    for name, family in SHAPES.items():
        assert family.__doc__ is not None
        assert "breaks" in family.__doc__
        shapes = family()
        assert len(set(shapes)) == len(shapes) > 0, name
        assert all(len(shape) <= 6 and min((0, *shape)) >= 0 for shape in shapes)


def test_the_seams_of_issue_and_bugs_are_there() -> None:
    every = up_to(10**9)
    sizes = {prod(shape) for shape in every}
    assert {0, 1, 7, 8, 9, 255, 256, 257, 1023, 1024, 1025, 2047, 2048, 2049, 65535, 65536, 65537} <= sizes
    assert () in every
    assert {255, 256, 257} <= {shape[0] for shape in every if len(shape) == 2}
    assert {len(shape) for shape in every} == {0, 1, 2, 3, 4, 5, 6}
    assert any(shape[-1] % 128 == 0 and shape[-1] % 256 for shape in SHAPES["vocabularies"]())
    assert any(shape[-1] % 2 for shape in SHAPES["vocabularies"]())


def test_up_to_keeps_within_its_limit() -> None:
    assert {prod(shape) for shape in up_to(0)} == {0}
    assert set(up_to(1)) > {(), (1,), (0,)}
    assert max(prod(shape) for shape in up_to(1000)) <= 1000 < max(prod(shape) for shape in up_to(70000))


def test_named_shapes_hold_the_specification_and_an_odd_vocabulary() -> None:
    assert NAMED["specification"] == (2, 3, 262144)
    assert NAMED["divisible_by_128"][-1] % 256 == 128
    assert any(shape[-1] % 2 for shape in NAMED.values())
    assert prod(NAMED["wide"]) > 1 << 19
    assert NAMED["wide"][-1] > 100_000
    assert prod(NAMED["many_rows"]) > 1 << 20
    assert NAMED["many_rows"][0] > 2 * 65535


@pytest.mark.parametrize("limit", [1, 2, 17, 1000])
def test_drawn_shapes_keep_within_the_limit_and_are_the_same_again(limit: int) -> None:
    shapes = [drawn(3, number, max_elements=limit) for number in range(300)]
    assert shapes == [drawn(3, number, max_elements=limit) for number in range(300)]
    assert max(map(prod, shapes)) <= limit
    assert {len(shape) for shape in shapes} == {0, 1, 2, 3, 4, 5, 6}
    assert len(set(shapes)) > min(limit, 100) // 2
    with pytest.raises(ValueError, match="at least 1 is needed"):
        drawn(0, 0, max_elements=0)
