"""Which sizes and caps the plan has: those of models too, in one law and at one cap; caps of a law's own."""

from __future__ import annotations

from math import prod

import pytest

from invariance.plan import LEAST, Settings, cases, cells
from strategies.caps import TELLING
from strategies.shapes import NAMED


def sizes(profile: str, law: str, caps: tuple[float, ...] = (20.0, 30.0)) -> list[set[tuple[int, ...]]]:
    settings = Settings(caps=caps, dtypes=("bf16",), profile=profile, laws=(law,))
    return [{case.shape for case in cases(cell, settings)} for cell in cells("it", settings)]


@pytest.mark.parametrize("profile", ["quick", "default"])
def test_one_law_sees_the_size_of_a_model_at_the_first_cap(profile: str) -> None:
    first, later = sizes(profile, "splitting")[:2]
    assert ({NAMED["wide"], NAMED["many_rows"]} <= first) == (profile == "default")
    assert max(map(prod, later)) < 1 << 16
    assert not any(NAMED["wide"] in found for found in sizes(profile, "slicing"))


def test_the_default_profile_has_the_sizes_at_which_kernels_take_another_path() -> None:
    seen = {law: sizes("default", law)[0] for law in ("splitting", "layout", "no_aliasing", "memory_released")}
    assert max(map(prod, seen["splitting"])) > 1 << 21
    assert max(shape[-1] for shape in seen["splitting"] if shape) >= 1 << 18
    assert any(prod(shape) % (1 << 16) == 0 and prod(shape) > 1 << 17 for shape in seen["splitting"])
    for law in ("layout", "no_aliasing", "memory_released"):
        assert max(map(prod, seen[law])) > 1 << (17 if law == "layout" else 18)
    assert max(map(prod, sizes("quick", "no_aliasing")[0])) == 1025


def test_the_large_layout_is_a_transposed_one() -> None:
    settings = Settings(caps=(20.0,), dtypes=("bf16",), laws=("layout",))
    for cell in cells("it", settings):
        large = max(cases(cell, settings), key=lambda case: case.numel)
        assert large.x().t().is_contiguous()


def test_the_thorough_profile_takes_every_named_size() -> None:
    assert set(NAMED.values()) <= sizes("thorough", "splitting")[0]


def test_the_interpreter_is_spared() -> None:
    assert max(map(prod, sizes(LEAST, "splitting")[0])) < 1 << 16


def test_a_case_of_the_law_about_caps_has_the_cap_that_is_judged() -> None:
    settings = Settings(caps=(20.0, 30.0), dtypes=("bf16",), laws=("cap_used",))
    for cell in cells("it", settings):
        assert tuple(case.cap for case in cases(cell, settings)) == TELLING
