"""The Hypothesis strategies: nothing valid left out, the impossible refused, and exploration that finds and shrinks."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument

from strategies import cases as strategy
from strategies.caps import CAPS, HIGHEST, LOWEST, Cap, as_fp32
from strategies.case import Case
from strategies.dtypes import DTYPES, FORMATS
from strategies.layouts import LAYOUTS, applies
from strategies.shapes import up_to
from strategies.upstream import FINITE_UPSTREAM, UPSTREAM
from strategies.values import FINITE, VALUES

QUIET = settings(
    database=None,
    deadline=None,
    derandomize=True,
    max_examples=1500,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
IMPOSSIBLE: list[dict[str, int]] = [
    {"max_elements": -1},
    {"min_elements": 5, "max_elements": 4},
    {"min_dims": 3, "max_dims": 2},
    {"max_dims": 0, "min_elements": 2},
    {"min_dims": -1},
]


def find(some: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
    """The simplest example with a property; NoSuchExample when there seems to be none."""
    return hypothesis.find(some, wanted, settings=QUIET)


def seen(some: st.SearchStrategy[Any], read: Callable[[Any], Any], examples: int = 500) -> set[Any]:
    """What a few hundred examples hold."""
    found = set()

    @settings(QUIET, max_examples=examples)
    @given(some)
    def look(example: Any) -> None:
        found.add(read(example))

    look()
    return found


def test_each_strategy_shrinks_to_the_simplest() -> None:
    assert find(strategy.shapes(), lambda _: True) == ()
    assert find(strategy.shapes(), lambda shape: len(shape) == 2 and 0 not in shape)[0] == 1
    assert find(strategy.layouts(), lambda _: True) == "contiguous"
    assert find(strategy.caps(), lambda _: True) == 30.0
    simplest = find(strategy.cases(), lambda _: True)
    assert simplest == Case((), "fp32", 30.0, values="constant")


@pytest.mark.parametrize(
    "wanted",
    [(), (0,), (3, 0), (7,), (257, 3), (2, 3, 5), (1, 1, 1, 1, 1), (2, 1, 3, 2, 7), (1025,)],
    ids=str,
)
def test_shapes_leave_nothing_out(wanted: tuple[int, ...]) -> None:
    assert find(strategy.shapes(), lambda shape: shape == wanted) == wanted


@settings(QUIET, max_examples=150)
@given(st.data())
def test_shapes_keep_their_limits(data: st.DataObject) -> None:
    low = data.draw(st.integers(0, 40))
    high = data.draw(st.integers(low, 60))
    dims = sorted(data.draw(st.tuples(st.integers(0, 5), st.integers(0, 5))))
    options = {"min_elements": low, "max_elements": high, "min_dims": dims[0], "max_dims": dims[1]}
    try:
        some = strategy.shapes(**options)
    except InvalidArgument:
        assert dims[1] == 0
        assert not low <= 1 <= high
        return
    shape = data.draw(some)
    assert low <= math.prod(shape) <= high
    assert dims[0] <= len(shape) <= dims[1]


def test_impossible_limits_are_refused() -> None:
    for options in IMPOSSIBLE:
        with pytest.raises(InvalidArgument, match=r"need 0 <=|0-d shape"):
            strategy.shapes(**options)
    for ends in ((0.0, 1.0), (2.0, 1.0), (1.0, 2.0**61), (0.1, 1.0), (math.nan, 1.0)):
        with pytest.raises(InvalidArgument, match=r"caps from"):
            strategy.caps(min_value=ends[0], max_value=ends[1])
    with pytest.raises(InvalidArgument, match="no dtype 'fp8': there are fp16"):
        strategy.literals(dtype="fp8", elements=1)
    with pytest.raises(InvalidArgument, match="examples is 0"):
        strategy.explore(bool, strategy.cases(), examples=0, seed=0)


def test_caps_are_of_every_family_and_kind() -> None:
    some = strategy.caps()
    for name, family in CAPS.items():
        assert find(some, lambda cap, family=family: cap == family(0, 1)) == family(0, 1), name
    assert isinstance(find(some, lambda cap: isinstance(cap, int) and cap > 1000), int)
    assert find(some, lambda cap: as_fp32(cap) != cap)
    assert find(some, lambda cap: as_fp32(cap) < 2.0**-50) < 2.0**-50
    assert find(some, lambda cap: as_fp32(cap) > 2.0**50) > 2.0**50


@settings(QUIET, max_examples=60)
@given(st.data(), st.sampled_from([(LOWEST, HIGHEST), (1.0, 2.0), (0.25, 0.5), (30.0, 30.0), (1.5, 1.75)]))
def test_caps_keep_their_ends(data: st.DataObject, ends: tuple[float, float]) -> None:
    cap: Cap = data.draw(strategy.caps(min_value=ends[0], max_value=ends[1]))
    assert ends[0] <= as_fp32(cap) <= ends[1]


def test_names_reach_every_family() -> None:
    assert seen(strategy.dtypes(), str) == set(DTYPES)
    assert seen(strategy.layouts(), str) == set(LAYOUTS)
    assert seen(strategy.layouts(shape=(3,)), str) == {name for name in LAYOUTS if applies(name, (3,))}
    assert seen(strategy.values(), str) == set(VALUES)
    assert seen(strategy.values(finite=True), str) == set(FINITE)
    assert seen(strategy.upstreams(), str) == set(FINITE_UPSTREAM)
    assert seen(strategy.upstreams(finite=False), str) == {*UPSTREAM, "hashed"}
    assert seen(strategy.shapes(max_elements=70_000), lambda s: s in up_to(70_000)) == {True, False}


def test_cases_reach_every_family() -> None:
    drawn = seen(strategy.cases(), lambda case: case, examples=1500)
    assert {case.layout for case in drawn} == set(LAYOUTS)
    assert {case.dtype for case in drawn} == set(DTYPES)
    assert {case.values for case in drawn if isinstance(case.values, str)} == set(VALUES)
    assert {case.knob("grad_values", "signed") for case in drawn} == set(FINITE_UPSTREAM)
    assert {case.knob("grad_layout", "contiguous") for case in drawn} == set(LAYOUTS)
    assert {len(case.values) for case in drawn if isinstance(case.values, tuple)} >= {0, 1}
    assert {len(case.shape) for case in drawn} == {0, 1, 2, 3, 4, 5}


@settings(QUIET, max_examples=60)
@given(strategy.cases(dtype="bf16", cap=17.3, max_elements=100, min_elements=1, finite=True))
def test_cases_keep_what_is_given_and_build(case: Case) -> None:
    assert (case.dtype, case.cap) == ("bf16", 17.3)
    assert 1 <= case.numel <= 100
    assert applies(case.layout, case.shape)
    assert bool(case.x().isfinite().all())
    assert case.grad_y(torch.bfloat16).shape == case.x().shape


def test_cases_without_gradients_have_no_knobs() -> None:
    assert seen(strategy.cases(gradients=False), lambda case: case.knobs) == {()}
    assert seen(strategy.cases(max_elements=0, gradients=False), lambda case: case.numel) == {0}


@settings(QUIET, max_examples=40)
@given(st.data(), st.sampled_from(DTYPES))
def test_literals_are_patterns(data: st.DataObject, dtype: str) -> None:
    bits = data.draw(strategy.literals(dtype=dtype, elements=5, finite=True))
    assert len(bits) == 5
    assert all((one & (FORMATS[dtype].sign - 1)) <= FORMATS[dtype].largest for one in bits)


def large_somewhere(case: Case) -> bool:
    """A planted fault: wrong for any x above 1000."""
    return not bool((case.x().to(torch.float64) > 1000).any())


def explored(
    check: Callable[[Case], object], *, examples: int = 300, seed: int = 0, **options: Any
) -> Case | None:
    return strategy.explore(check, strategy.cases(), examples=examples, seed=seed, **options)


@pytest.mark.parametrize(
    ("check", "wanted"),
    [
        (lambda case: case.numel <= 1000, lambda case: case.shape == (1001,)),
        (large_somewhere, lambda case: case.shape == (1,) and math.frexp(case.x().item())[0] == 0.5),
        (lambda case: case.x().is_contiguous(), lambda case: case.numel == 2 and case.cap == 30.0),
        (lambda case: case.dtype != "bf16" or len(case.shape) < 2, lambda case: math.prod(case.shape) <= 1),
        (lambda case: case.knob("grad_layout", 0) != "stride_zero", lambda case: len(case.knobs) == 1),
    ],
    ids=["size", "value", "layout", "dtype", "knob"],
)  # fmt: skip
def test_explore_finds_and_shrinks_a_planted_fault(
    check: Callable[[Case], bool], wanted: Callable[[Case], bool]
) -> None:
    found = explored(check)
    assert found is not None
    assert not check(found)
    assert wanted(found), found.dumps()
    assert Case.loads(found.dumps()) == found


def test_explore_is_deterministic_and_finds_nothing_where_nothing_is() -> None:
    calls: list[Case] = []

    def check(case: Case) -> bool:
        calls.append(case)
        return large_somewhere(case)

    first = explored(check, seed=7)
    half = len(calls)
    assert explored(check, seed=7) == first
    assert calls[:half] == calls[half:]
    assert explored(calls.append, examples=50, seed=8) is None
    assert len(calls) - 2 * half == 50
    assert explored(calls.append, examples=50, seed=9) is None
    assert calls[-50:] != calls[-100:-50]


def test_an_assertion_is_a_failure_and_any_other_exception_is_not() -> None:
    def fails(case: Case) -> None:
        assert case.numel < 5

    found = explored(fails)
    assert found is not None
    assert found.numel == 5
    for kind in (ZeroDivisionError, KeyboardInterrupt, SystemExit, MemoryError):
        calls = []

        def raises(case: Case, kind: type[BaseException] = kind, calls: list[Case] = calls) -> None:
            calls.append(case)
            raise kind("planted")

        with pytest.raises(kind, match="planted"):
            explored(raises)
        assert len(calls) == 1


def test_a_flaky_failure_is_a_failure() -> None:
    calls: list[Case] = []

    def flaky(case: Case) -> bool:
        calls.append(case)
        return len(calls) != 5

    assert explored(flaky) == calls[4]


def test_explore_spends_no_more_than_asked_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    calls: list[Case] = []

    def check(case: Case) -> bool:
        calls.append(case)
        return large_somewhere(case)

    found = explored(check, shrinks=10)
    assert found is not None
    first = next(number for number, case in enumerate(calls) if not large_somewhere(case))
    assert len(calls) <= first + 1 + 10
    assert capfd.readouterr() == ("", "")


def test_nothing_is_written_and_the_users_own_storage_stays(tmp_path: Path) -> None:
    """In a process of its own: Hypothesis looks for its table of Unicode once."""
    code = """
from hypothesis.configuration import storage_directory
from strategies.cases import caps, cases, drawn, explore
explore(lambda case: True, cases(), examples=3, seed=0)
drawn(caps(), examples=3, seed=0)
print(storage_directory(intent_to_write=False).home_directory)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert list(tmp_path.iterdir()) == []
    assert done.stdout.strip() == str(tmp_path / ".hypothesis")
