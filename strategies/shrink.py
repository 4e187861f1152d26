"""Making a failing case small, without Hypothesis and the same way every time.

Greedy passes, each a few calls of the predicate: plain memory, few elements, literal bits, fewer of them,
simpler ones. A change after which nothing fails is not taken, so the result fails whatever the fault was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from strategies.case import MODES, Case, Knob
from strategies.dtypes import FORMATS, TORCH, ordinal, to_bits
from strategies.layouts import LAYOUTS
from strategies.shapes import Shape

__all__ = ["shrink"]

Knobs = tuple[tuple[str, Knob], ...]

_LITERAL_TRIED: Final = 4096  # elements up to which bits are written out, to look for the ones that matter
_LITERAL_KEPT: Final = 64  # elements up to which a report's reader wants to see them
_POLISHED: Final = 8  # elements whose bits are made simpler one by one


def shrink(
    case: Case, fails: Callable[[Case], bool], *, budget: int, caps: bool = False, suspect: int | None = None
) -> Case:
    """The smallest case found that still fails, after at most `budget` calls of `fails`.

    `case` itself is taken to fail and not tried again: a flaky failure must not get lost here. `caps` allows
    a simpler cap too. `suspect` is the flat index of an element that may fail alone: tried first, for one among
    65,536 is a long way to bisect. Exceptions of `fails` propagate.
    """
    search = _Search(case, fails, budget)
    if suspect is not None and 0 <= suspect < case.numel:
        _alone(search, suspect)
    _plain(search)
    _smaller(search)
    _literal(search)
    if caps:
        _any_of(search, "cap", [1.0, 30.0, 20.0, *_shorter_caps(search.best.cap)])
    _plain(search)
    return search.best


class _Search:
    """The best case so far, and what may still be spent."""

    def __init__(self, case: Case, fails: Callable[[Case], bool], budget: int) -> None:
        self.best, self.fails, self.left = case, fails, budget
        self.known = {case: True}

    def attempt(self, **fields: Any) -> bool:
        """Whether the best case with these fields fails too, and is the best now. Tries no case twice."""
        candidate = self.best.replace(**fields)
        if candidate == self.best:
            return False
        if candidate not in self.known:
            if self.left <= 0:
                return False
            self.left -= 1
            self.known[candidate] = self.fails(candidate)
        if self.known[candidate]:
            self.best = candidate
        return self.known[candidate]


def _any_of(search: _Search, field: str, choices: Sequence[Any]) -> bool:
    """Take the first choice, simplest first, that still fails; stop at the one that is there already."""
    for choice in choices:
        if choice == getattr(search.best, field):
            return False
        if search.attempt(**{field: choice}):
            return True
    return False


def _plain(search: _Search) -> None:
    """No knobs, a contiguous layout (or the plainest that fails), seed 0."""
    for name, _ in search.best.knobs:
        search.attempt(knobs=_knobs(search.best, **{name: None}))
    if search.best.mode:
        search.attempt(knobs=_knobs(search.best, mode=MODES[0]))
    _any_of(search, "layout", tuple(LAYOUTS))
    grad_layout = search.best.knob("grad_layout", "contiguous")
    for name in LAYOUTS:
        if name == grad_layout or search.attempt(knobs=_knobs(search.best, grad_layout=name)):
            break
    search.attempt(seed=0)


def _smaller(search: _Search) -> None:
    """One dimension if that still fails, and then the shortest of every dimension, by bisection."""
    if len(search.best.shape) != 1:
        search.attempt(shape=(search.best.numel,))
    for dim in range(len(search.best.shape)):
        low, high = 0, search.best.shape[dim]  # below low it is not known to fail, at high it does
        for size in (1, 2):
            if size < high and _resize(search, dim, size):
                high = size
                break
            low = max(low, min(size, high))
        while high - low > 1 and search.left:
            middle = (low + high) // 2
            low, high = (low, middle) if _resize(search, dim, middle) else (middle, high)


def _resize(search: _Search, dim: int, size: int) -> bool:
    """Whether it still fails with only the first `size` along a dimension."""
    old = search.best.shape
    new = (*old[:dim], size, *old[dim + 1 :])
    return search.attempt(shape=new, **_elements(search.best, partial(_first_along, old, dim, size)))


def _first_along(shape: Shape, dim: int, size: int) -> list[int]:
    """The flat indices of the first `size` along a dimension; asked for only where there is a literal for each."""
    index: list[int] = torch.arange(math.prod(shape)).view(shape).narrow(dim, 0, size).reshape(-1).tolist()
    return index


def _elements(case: Case, index: Callable[[], Sequence[int]]) -> dict[str, Any]:
    """The fields that hold literal bits, with only the elements of the index."""
    fields: dict[str, Any] = {}
    if isinstance(case.values, tuple):
        fields["values"] = tuple(case.values[i] for i in index())
    if isinstance(bits := case.knob("grad_bits", None), tuple):
        fields["knobs"] = _knobs(case, grad_bits=tuple(bits[i] for i in index()))
    return fields


def _alone(search: _Search, flat: int) -> None:
    """The one element as literal bits: with the gradient of 1, or with its own as sent in either dtype.

    The seed stays for now: it is what a law's own choices are made of, and those may be what it takes.
    """
    case = search.best
    bits = int(to_bits(case.x()).reshape(-1)[flat])
    single: dict[str, Any] = {"shape": (1,), "layout": "contiguous", "values": (bits,)}
    bare = case.replace(knobs=())
    if search.attempt(**single, knobs=_knobs(bare, grad_values="ones")):
        return
    for dtype in dict.fromkeys((TORCH[case.dtype], torch.float32)):
        grad_bits = (int(to_bits(case.grad_y(dtype).reshape(-1)[flat].to(torch.float32))),)
        if search.attempt(**single, knobs=_knobs(bare, grad_bits=grad_bits)):
            return


def _literal(search: _Search) -> None:
    """Write the bits out and keep those that matter; with too many of them the place is at fault."""
    if search.best.numel > _LITERAL_KEPT:
        _any_of(search, "values", ("constant", "ramp"))
    recipe = search.best
    most = _LITERAL_KEPT if recipe.values == "constant" else _LITERAL_TRIED
    if not 0 < recipe.numel <= most:
        return
    bits = tuple(to_bits(recipe.replace(layout="contiguous").x()).reshape(-1).tolist())
    if recipe.values != bits and not search.attempt(values=bits):
        return
    _literal_gradient(search)
    _drop(search, reserve=search.left // 3)
    if search.best.numel > _LITERAL_KEPT:
        search.best = recipe
        return
    _polish(search)


def _literal_gradient(search: _Search) -> None:
    """Gradients of 1, or else their bits: as sent for a result in the dtype of x, or in FP32."""
    case = search.best
    if case.knob("grad_values", None) == "ones":
        return
    if case.knob("grad_bits", None) is not None or search.attempt(knobs=_gradients(case, grad_values="ones")):
        return
    for dtype in dict.fromkeys((TORCH[case.dtype], torch.float32)):
        plain = case.with_knobs(grad_layout=None).grad_y(dtype)
        bits = tuple(to_bits(plain.to(torch.float32)).reshape(-1).tolist())
        if search.attempt(knobs=_gradients(case, grad_bits=bits)):
            return


def _gradients(case: Case, **knobs: Knob) -> Knobs:
    """The knobs with another upstream gradient in place of the one that is there."""
    return _knobs(case, **{"grad_values": None, "grad_bits": None, **knobs})


def _knobs(case: Case, **changes: Knob | None) -> Knobs:
    """The knobs with these set, or with None taken away: not a case yet, for a shape may change with them."""
    return tuple((name, knob) for name, knob in {**dict(case.knobs), **changes}.items() if knob is not None)


def _drop(search: _Search, *, reserve: int) -> None:
    """Delta debugging over the elements of a 1-D case: halves alone, then ever shorter runs taken out."""
    if len(search.best.shape) != 1 and not search.attempt(shape=(search.best.numel,)):
        return
    while _half(search, reserve):
        pass
    run = search.best.numel // 2
    while run and search.left > reserve:
        start = 0
        while start < search.best.numel and search.left > reserve:
            count = search.best.numel
            kept = [i for i in range(count) if not start <= i < start + run]
            if not (kept and _keep(search, kept)):
                start += run
        run //= 2


def _half(search: _Search, reserve: int) -> bool:
    """Whether one half of the elements fails alone."""
    count = search.best.numel
    if count < 2 or search.left <= reserve:
        return False
    return _keep(search, range(count // 2)) or _keep(search, range(count // 2, count))


def _keep(search: _Search, index: Sequence[int]) -> bool:
    return search.attempt(shape=(len(index),), **_elements(search.best, lambda: index))


def _polish(search: _Search) -> None:
    """Simpler bits for each element: 0, 1, a power of two, a short significand; the gradient's too."""
    if isinstance(search.best.values, tuple):
        one = ordinal(1.0, search.best.dtype)
        search.attempt(values=(one,) * search.best.numel)
    for place in range(min(search.best.numel, _POLISHED)):
        _polish_one(search, search.best.dtype, place, lambda case: case.values, lambda bits: {"values": bits})
        _polish_one(search, "fp32", place, lambda case: case.knob("grad_bits", None), _grad_fields(search))


def _grad_fields(search: _Search) -> Callable[[tuple[int, ...]], dict[str, Any]]:
    return lambda bits: {"knobs": _knobs(search.best, grad_bits=bits)}


def _polish_one(
    search: _Search,
    dtype: str,
    place: int,
    read: Callable[[Case], object],
    write: Callable[[tuple[int, ...]], dict[str, Any]],
) -> None:
    """The simplest pattern in one place that still fails: first without its sign, then the size of it."""
    bits = read(search.best)
    if not isinstance(bits, tuple):
        return
    before, after, sign = bits[:place], bits[place + 1 :], bits[place] & FORMATS[dtype].sign
    magnitude = bits[place] - sign
    if sign and search.attempt(**write((*before, magnitude, *after))):
        sign = 0
    for simpler in _simpler(magnitude, dtype):
        if search.attempt(**write((*before, sign + simpler, *after))):
            return


def _simpler(magnitude: int, dtype: str) -> list[int]:
    """Simpler magnitude patterns than the one given, the simplest first."""
    form = FORMATS[dtype]
    whole = [0, ordinal(1.0, dtype), *_powers(magnitude, dtype)]
    if magnitude >= form.infinity:
        whole += [form.infinity, form.quiet_nan]
    cuts = [(magnitude >> k) << k for k in range(form.digits - 1, 0, -1)]
    ranked = list(dict.fromkeys([*whole, *cuts, magnitude]))
    return ranked[: ranked.index(magnitude)]


def _powers(magnitude: int, dtype: str) -> list[int]:
    """2 to the power of 1, 2, 4, ... (or -1, -2, -4, ...) up to the binade of the magnitude."""
    form, one = FORMATS[dtype], ordinal(1.0, dtype)
    distance = (magnitude - one) >> (form.digits - 1)
    sign = 1 if distance >= 0 else -1
    steps = [1 << j for j in range(8) if 1 << j < abs(distance)]
    return [one + sign * (step << (form.digits - 1)) for step in steps]


def _shorter_caps(cap: float) -> list[float]:
    """The cap with ever more of its significant bits, from one on."""
    mantissa, exponent = math.frexp(cap)
    return [math.ldexp(round(mantissa * 2**digits), exponent - digits) for digits in range(1, 24)]
