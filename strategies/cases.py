"""Hypothesis strategies over recipes, and `explore`: the only module that imports Hypothesis.

Recipes are drawn, never tensors: they print, shrink and replay. Everything shrinks towards one element,
contiguous, cap 30, seed 0. What is drawn for a seed depends on what else is imported (Hypothesis feeds
constants of local modules into its draws): an exploration is evidence when it fails, not a list of inputs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.configuration import set_hypothesis_home_dir, storage_directory
from hypothesis.errors import Flaky, InvalidArgument

from strategies.caps import CAPS, HIGHEST, LOWEST, Cap, as_fp32
from strategies.case import Case, Knob
from strategies.dtypes import DTYPES, FORMATS
from strategies.layouts import LAYOUTS, applies
from strategies.shapes import Shape, up_to
from strategies.shrink import shrink
from strategies.upstream import FINITE_UPSTREAM, UPSTREAM
from strategies.values import FINITE, VALUES

__all__ = ["caps", "cases", "drawn", "dtypes", "explore", "layouts", "literals", "shapes", "upstreams", "values"]

_LITERAL_ELEMENTS = (
    16  # literal bits are drawn for tensors up to here: more is slow to shrink and says no more
)


def dtypes() -> st.SearchStrategy[str]:
    """Names of input dtypes, the widest first."""
    return st.sampled_from(DTYPES[::-1])


def shapes(
    *, min_elements: int = 0, max_elements: int = 2048, min_dims: int = 0, max_dims: int = 5
) -> st.SearchStrategy[Shape]:
    """Shapes within the limits: the listed families, and any sides. Shrinks towards () and sides of 1.

    A shape without elements has sides of at most `max_elements` each. InvalidArgument for limits that no
    shape can meet.
    """
    if not 0 <= min_elements <= max_elements:
        raise InvalidArgument(f"{min_elements} to {max_elements} elements: need 0 <= min <= max")
    if not 0 <= min_dims <= max_dims:
        raise InvalidArgument(f"{min_dims} to {max_dims} dimensions: need 0 <= min <= max")
    if max_dims == 0 and not min_elements <= 1 <= max_elements:
        raise InvalidArgument(f"the 0-d shape has one element, which is not {min_elements} to {max_elements}")

    def fits(shape: Shape) -> bool:
        return min_elements <= prod(shape) <= max_elements and min_dims <= len(shape) <= max_dims

    listed = sorted(
        filter(fits, up_to(max_elements)), key=lambda shape: (0 in shape, prod(shape), len(shape))
    )
    free = _shapes(min_elements, max_elements, min_dims, max_dims)
    return st.one_of(free, st.sampled_from(listed)) if listed else free


@st.composite
def _shapes(draw: st.DrawFn, min_elements: int, max_elements: int, min_dims: int, max_dims: int) -> Shape:
    """Side by side, each within the room that is left; the last side makes up for a minimum."""
    zero_dims_fit = min_elements <= 1 <= max_elements
    rank = draw(st.integers(min_dims if zero_dims_fit else max(min_dims, 1), max_dims))
    sides: list[int] = []
    room = max_elements
    for _ in range(rank - 1 if min_elements else rank):
        sides.append(draw(_sides(min(min_elements, 1), room)))
        room //= max(sides[-1], 1)
    if min_elements and rank:
        if prod(sides) * (max_elements // prod(sides)) < min_elements:
            sides = [1] * len(sides)
        sides.append(draw(_sides(-(-min_elements // prod(sides)), max_elements // prod(sides))))
    return tuple(sides)


def _sides(low: int, high: int) -> st.SearchStrategy[int]:
    """One side: 1 first, then a few, then any."""
    return st.integers(max(low, min(1, high)), max(low, min(9, high))) | st.integers(low, high)


def layouts(*, shape: Shape | None = None) -> st.SearchStrategy[str]:
    """Names of layouts, of those that a shape has room for when it is given; the plain one first."""
    return st.sampled_from([name for name in LAYOUTS if shape is None or applies(name, shape)])


def caps(*, min_value: float = LOWEST, max_value: float = HIGHEST) -> st.SearchStrategy[Cap]:
    """Caps from `min_value` to `max_value`, of every family: ints, FP32 and FP64 floats. Shrinks towards 30.

    InvalidArgument unless the ends are FP32 numbers, in order, and inside the judged range of 2^-60 to 2^60.
    """
    if not LOWEST <= min_value <= max_value <= HIGHEST:
        raise InvalidArgument(
            f"caps from {min_value} to {max_value}: need {LOWEST} <= min <= max <= {HIGHEST}"
        )
    if as_fp32(min_value) != min_value or as_fp32(max_value) != max_value:
        raise InvalidArgument(f"caps from {min_value} to {max_value}: the ends must be FP32 numbers")
    listed = [family(0, number) for family in CAPS.values() for number in range(10)]
    inside = [cap for cap in listed if min_value <= cap <= max_value]
    ranges: list[st.SearchStrategy[Cap]] = [
        st.floats(min_value, max_value, width=32, allow_subnormal=False),
        st.floats(min_value, max_value, allow_subnormal=False),
    ]
    if -(-min_value // 1) <= max_value // 1:
        ranges.insert(0, st.integers(int(-(-min_value // 1)), int(max_value // 1)))
    return st.one_of(*([st.sampled_from(inside)] if inside else []), *ranges)


def values(*, finite: bool = False) -> st.SearchStrategy[str]:
    """Names of distributions of x; with `finite`, of those without NaN and inf."""
    return st.sampled_from(FINITE if finite else tuple(VALUES))


def upstreams(*, finite: bool = True) -> st.SearchStrategy[str]:
    """Names of distributions of grad_y; with `finite` (the default), of those without NaN and inf."""
    return st.sampled_from(
        FINITE_UPSTREAM if finite else (*FINITE_UPSTREAM, *UPSTREAM.keys() - {*FINITE_UPSTREAM})
    )


def literals(*, dtype: str, elements: int, finite: bool = False) -> st.SearchStrategy[tuple[int, ...]]:
    """Tuples of bit patterns of a dtype, one for each element; with `finite`, without NaN and inf."""
    if dtype not in DTYPES:
        raise InvalidArgument(f"no dtype {dtype!r}: there are {', '.join(DTYPES)}")
    form = FORMATS[dtype]
    top = form.largest if finite else form.sign - 1
    signed = st.builds(
        lambda magnitude, sign: magnitude + sign * form.sign, st.integers(0, top), st.integers(0, 1)
    )
    return st.lists(signed, min_size=elements, max_size=elements).map(tuple)


def cases(
    *,
    dtype: str | None = None,
    cap: Cap | None = None,
    min_elements: int = 0,
    max_elements: int = 2048,
    finite: bool = False,
    gradients: bool = True,
    modes: tuple[str, ...] = ("",),
) -> st.SearchStrategy[Case]:
    """Cases: shape, dtype, cap, layout, values, seed, and with `gradients` knobs of the upstream gradient.

    What is given is not drawn. `finite` leaves NaN and inf out of x; grad_y is always in the judged domain.
    modes: what the operator may be served in, "" for as built.
    InvalidArgument for limits that no shape can meet, ValueError for a dtype or cap that no case can have.
    """
    Case((), dtype or "fp32", 30 if cap is None else cap)
    return _cases(
        shapes(min_elements=min_elements, max_elements=max_elements),
        dtypes() if dtype is None else st.just(dtype),
        caps() if cap is None else st.just(cap),
        finite,
        gradients,
        st.sampled_from(modes),
    )


@st.composite
def _cases(
    draw: st.DrawFn,
    shape_of: st.SearchStrategy[Shape],
    dtype_of: st.SearchStrategy[str],
    cap_of: st.SearchStrategy[Cap],
    finite: bool,
    gradients: bool,
    mode_of: st.SearchStrategy[str],
) -> Case:
    """One recipe; what every case has is asked for in the same order, so that one part shrinks without the others."""
    shape, dtype = draw(shape_of), draw(dtype_of)
    placed = layouts(shape=shape)
    knobs: dict[str, Knob] = {}
    if gradients:
        drawn = {"grad_values": draw(upstreams()), "grad_layout": draw(placed)}
        knobs.update({name: knob for name, knob in drawn.items() if knob not in ("signed", "contiguous")})
    if mode := draw(mode_of):
        knobs["mode"] = mode
    # Asked for every shape, also where it means nothing: a shape must be able to shrink past the limit.
    spelled = draw(st.booleans()) and prod(shape) <= _LITERAL_ELEMENTS
    named: st.SearchStrategy[Any] = values(finite=finite)
    if spelled:
        named = literals(dtype=dtype, elements=prod(shape), finite=finite)
    return Case(
        shape=shape,
        dtype=dtype,
        cap=draw(cap_of),
        layout=draw(placed),
        values=draw(named),
        seed=draw(st.integers(0, 2**32 - 1)),
        knobs=tuple(knobs.items()),
    )


def drawn(strategy: st.SearchStrategy[Any], *, examples: int, seed: int) -> list[Any]:
    """Up to `examples` different examples of a strategy, in the order Hypothesis draws them. No database."""
    if examples < 1:
        raise InvalidArgument(f"examples is {examples}: at least 1 is needed")
    found: dict[Any, None] = {}
    quiet = settings(
        database=None,
        deadline=None,
        max_examples=examples,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )

    def note(example: Any) -> None:
        found.setdefault(example)

    with _nothing_kept():
        seeded(seed)(quiet(given(strategy)(note)))()
    return list(found)


@contextmanager
def _nothing_kept() -> Iterator[None]:
    """Hypothesis writes its table of Unicode under .hypothesis/ in the current folder even without a database."""
    kept = storage_directory(intent_to_write=False).home_directory
    with tempfile.TemporaryDirectory(prefix="hypothesis-") as folder:
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(kept)


class _Found(Exception):
    """Raised from one place for every failure, so that Hypothesis takes them all for the same one."""


class _Left(BaseException):
    """Leaves Hypothesis at once: it neither shrinks nor repeats what is not an Exception."""


def explore(
    check: Callable[[Case], object],
    strategy: st.SearchStrategy[Case],
    *,
    examples: int,
    seed: int,
    shrinks: int = 600,
) -> Case | None:
    """Look for a case that `check` fails (AssertionError or False), and return it shrunk; None without one.

    At most `examples` cases are tried before the first failure and `shrinks` after it. Prints nothing, keeps
    no database. A failure that does not come back is returned as it was seen: a flaky failure is a failure.
    Any other exception of `check` propagates at once.
    """
    if examples < 1:
        raise InvalidArgument(f"examples is {examples}: at least 1 is needed")
    hunt = _Hunt(check, shrinks // 2)
    quiet = settings(
        database=None,
        deadline=None,
        max_examples=examples,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=Verbosity.quiet,
    )
    try:
        with _nothing_kept():
            seeded(seed)(quiet(given(strategy)(hunt.once)))()
    except (_Found, _Left, Flaky) as end:
        hunt.flaky = isinstance(end, Flaky)
        if hunt.crash is not None:
            raise hunt.crash from None
        if hunt.found is None:
            raise
    if hunt.found is None or hunt.flaky:
        return hunt.found
    # Hypothesis finds the simpler dtype, cap and family; what is left in shape and bits is cut without it.
    return shrink(hunt.found, hunt.fails, budget=shrinks - shrinks // 2)


class _Hunt:
    """What one exploration remembers between the calls of Hypothesis."""

    def __init__(self, check: Callable[[Case], object], shrinks: int) -> None:
        self.check, self.left = check, shrinks
        self.found: Case | None = None
        self.crash: BaseException | None = None
        self.flaky = False

    def once(self, case: Case) -> None:
        """Run the check on one case; after a failure, as long as there is something left to spend."""
        if self.found is not None:
            self.left -= 1
            if self.left < 0:
                raise _Left
        try:
            failed = self.fails(case)
        except BaseException as error:  # noqa: BLE001 - kept whole and raised again outside Hypothesis
            self.crash = error
            raise _Left from None
        if failed:
            self.found = case
            raise _Found

    def fails(self, case: Case) -> bool:
        """Whether the check fails on the case: an AssertionError, or the result False."""
        try:
            return self.check(case) is False
        except AssertionError:
            return True
