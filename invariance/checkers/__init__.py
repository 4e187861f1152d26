"""The laws.

A law is one plain function under `@checker`: its name is its id, its docstring's first line its statement.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from invariance.candidate import PASSES, Map
from invariance.judge import Claim
from invariance.offered import DTYPES, NARROW_LAWS

SHRINKS = 200  # attempts on one failure, a few milliseconds each


class Pick(Protocol):
    """`pick(name, lo, hi)`: an integer in [lo, hi] that the case alone decides."""

    def __call__(self, name: str, low: int, high: int, /) -> int:
        """An integer from low to high, both included."""
        ...


class NotApplicable(Exception):
    """Raised by a checker where the law does not speak of the case: a second device is missing, say.

    A cell is "not applicable", with this reason, only when every one of its cases raised it.
    """


Checker = Callable[[Map, tuple[Tensor, ...], Pick], Iterator[Claim]]


@dataclass(frozen=True)
class Law:
    """A checker with what the plan must know of it.

    judgement: "accuracy" or "invariance". passes, dtypes: where it is stated. each_cap: one cell a cap, or one
    cell in all (at the first cap). inputs: the family of cases, a key of `invariance.plan.FAMILIES`. applies:
    given the calling convention, why the candidate is outside the law, or None. device: judged on an accelerator only.
    bugs: public reports that the law answers. explored: Hypothesis adds cases to the plan's. shrinks: how often a
    failing case may be tried again to shrink it; few where one try takes seconds. launches: the law is about launches
    as the interpreter shows them. as_built: why its cases take no turns in the modes of `strategies.case`, or None.
    """

    id: str
    check: Checker
    judgement: str
    passes: tuple[str, ...]
    dtypes: tuple[str, ...]
    each_cap: bool
    inputs: str
    applies: Callable[[str], str | None]
    device: bool
    bugs: tuple[str, ...]
    explored: bool
    shrinks: int = SHRINKS
    launches: bool = False
    as_built: str | None = None

    @property
    def statement(self) -> str:
        """What the law says, in one line."""
        return (self.check.__doc__ or "").strip().splitlines()[0]

    def modes(self, pass_: str) -> tuple[str, ...]:
        """What its cases take turns in, "" for as built: autograd records nothing in inference_mode."""
        if self.as_built is not None:
            return ("",)
        return ("", "inference_mode") if pass_ == "inference" else ("", "eval")

    def verdict(self, pass_: str) -> str:
        """FA, FI, GA or GI."""
        return ("G" if pass_ == "backward" else "F") + ("A" if self.judgement == "accuracy" else "I")


LAWS: dict[str, Law] = {}

# Laws are grouped by what they hold still; `launches` needs the interpreter, `device` an accelerator.
_MODULES = (
    "transforms",
    "calls",
    "history",
    "threads",
    "functional",
    "modules",
    "tracing",
    "accuracy",
    "analytic",
    "hygiene",
    "launches",
    "device",
)


NO_LAUNCHES = "of kernels in Triton's interpreter, and this candidate does not run there"


def every_candidate(convention: str) -> str | None:  # noqa: ARG001 - the default of `applies`
    """No candidate is outside the law."""
    return None


_ARTICLE = {"instance": "an"}


def constructed_candidates(convention: str) -> str | None:
    """Only a class or factory is constructed with a cap, and can refuse one."""
    if convention in ("operator", "unknown"):
        return None
    return f"nothing is constructed with a cap: the candidate is {_ARTICLE.get(convention, 'a')} {convention}"


def checker(
    judgement: str,
    *,
    passes: tuple[str, ...] = PASSES,
    dtypes: tuple[str, ...] | None = None,
    each_cap: bool = True,
    inputs: str = "general",
    applies: Callable[[str], str | None] = every_candidate,
    device: bool = False,
    bugs: tuple[str, ...] = (),
    explored: bool | None = None,
    shrinks: int = SHRINKS,
    launches: bool = False,
    as_built: str | None = None,
) -> Callable[[Checker], Checker]:
    """Register a law under its function's name; a taken name, a wrong judgement and a missing docstring are errors.

    launches: the law is about launches as the interpreter shows them. as_built: why it is judged in no other mode.
    """
    if judgement not in ("accuracy", "invariance"):
        raise ValueError(f"judgement {judgement!r} is not 'accuracy' or 'invariance'")

    def register(check: Checker) -> Checker:
        name = check.__name__
        if name in LAWS:
            raise ValueError(f"two laws are called {name!r}")
        if not (check.__doc__ or "").strip():
            raise ValueError(f"law {name!r} states nothing: give it a docstring")
        seen = inputs == "general" if explored is None else explored
        LAWS[name] = Law(
            name,
            check,
            judgement,
            passes,
            dtypes or NARROW_LAWS.get(name, DTYPES),
            each_cap,
            inputs,
            applies,
            device,
            bugs,
            seen,
            shrinks,
            launches,
            as_built,
        )
        return check

    return register


def load_laws() -> dict[str, Law]:
    """Every law of the suite, by id."""
    for module in _MODULES:
        importlib.import_module(f"invariance.checkers.{module}")
    return LAWS
