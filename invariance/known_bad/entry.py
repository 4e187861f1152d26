"""One entry of the catalogue: a kernel, what is wrong with it, and the laws that must notice."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from invariance.offered import TIERS

# A cap that no 16-bit type holds, so that a cap rounded on its way to the kernel is another number.
CAP = 17.3
MOST_ELEMENTS = 64  # of a shrunk case, unless the entry says that the fault needs more

# Modules by what their kernels break; those of Triton are imported too, but load Triton only when one is built.
MODULES = (
    "formulas", "specials", "caps", "gradients", "upstream", "graphs", "positions", "neighbourhood", "layouts",
    "history", "singular", "singular_values", "states", "copies", "functional", "serving", "modes", "damage",
    "refusals", "process", "whole", "launches", "strangers", "binaries",
    "right",
)  # fmt: skip

# For a fault that shows wherever it is looked for: what must fail is named, whatever else fails is no surprise.
ANY = frozenset({"any law"})

# Where a layout is misread: these compare the result of inputs as given, in layouts that a seed has drawn, with that
# of copies in other memory.
AS_GIVEN = frozenset(
    {
        "batch", "exact_value", "grad_mode", "neighbours", "padding", "permutation", "reshaping", "slicing",
        "specification", "splitting", "vocabulary_shards",
    }
)  # fmt: skip

# A batch of vmap is other shapes and another path, and what differentiates a forward finds its faults again: where a
# law on the right may fail, that on the left is no surprise.
_FOLLOWS = {
    "function_transforms": frozenset({"grad_mode", "slicing"}),
    "double_backward": frozenset({"exact_value"}),
    "transformed_derivatives": frozenset({"exact_value", "grad_mode"}),
}

Factory = TypeVar("Factory", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """A kernel of the catalogue.

    tier: the one that judges it, and must kill it where it is wrong. bugs: rows of BUGS.md.
    must and may: laws that have to fail, and that may, at any seed. caps, dtypes: the plan it is judged on. laws: the
    plan cut to these, where every cell costs seconds (a crash, a hang, a million elements), or where another kernel
    shows under the whole plan what this one's law sees alone; empty for all.
    profile: of the plan, where a wrong kernel takes more inputs to show than the smallest has. elements: how many a
    shrunk case of a law in `must` may have. timeout: seconds a cell. spec: the factory itself unless given, for a
    fault of a module that only its judges import.
    """

    name: str
    spec: str
    wrong: bool
    states: str
    tier: str = "plan"
    bugs: tuple[int, ...] = ()
    must: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    caps: tuple[float | int, ...] = (CAP,)
    dtypes: tuple[str, ...] = ("fp32",)
    laws: tuple[str, ...] = ()
    profile: str = ""
    elements: int = MOST_ELEMENTS
    timeout: float = 60.0

    def allows(self, law: str) -> bool:
        """Whether the law may fail."""
        named = self.must | self.may
        return law in named or self.may == ANY or bool(_FOLLOWS.get(law, frozenset()) & named)


CATALOGUE: dict[str, Entry] = {}


def wrong(
    *,
    bugs: tuple[int, ...],
    must: set[str],
    may: set[str] | frozenset[str] = frozenset(),
    tier: str = "plan",
    **plan: Any,
) -> Callable[[Factory], Factory]:
    """Register a wrong kernel: a factory called as `factory(softcap)`, whose docstring says what is wrong."""
    if not must or not bugs:
        raise ValueError(
            "a wrong kernel names the laws that must fail and the public reports it is modelled on"
        )
    return _registering(wrong=True, tier=tier, bugs=bugs, must=frozenset(must), may=frozenset(may), **plan)


def good(*, tier: str = "plan", **plan: Any) -> Callable[[Factory], Factory]:
    """Register a kernel that is right, if in its own way: no law may fail."""
    return _registering(wrong=False, tier=tier, **plan)


def _registering(**fields: Any) -> Callable[[Factory], Factory]:
    if fields["tier"] not in TIERS:
        raise ValueError(f"tier {fields['tier']!r} is not one of {', '.join(TIERS)}")

    def register(factory: Factory) -> Factory:
        name = factory.__name__
        if name in CATALOGUE:
            raise ValueError(f"two kernels of the catalogue are called {name!r}")
        states = (factory.__doc__ or "").strip()
        if not states:
            raise ValueError(f"kernel {name!r} does not say what it does: give it a docstring")
        told = {"spec": f"{factory.__module__}:{name}", **fields}
        CATALOGUE[name] = Entry(name=name, states=states.splitlines()[0], **told)
        return factory

    return register


def load_catalogue() -> dict[str, Entry]:
    """Every kernel of the catalogue, by name."""
    for module in MODULES:
        importlib.import_module(f"invariance.known_bad.{module}")
    return CATALOGUE
