"""How an author's object takes its cap, read off its signature."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

_CAP_NAMES = ("softcap", "cap", "c")


def own_cap(target: Any) -> Any:
    """The cap that an object carries, or that `functools.partial` gave a function."""
    bound = target.keywords if isinstance(target, functools.partial) else {}
    return next(
        (bound[name] for name in _CAP_NAMES if name in bound),
        getattr(target, "softcap", getattr(target, "cap", None)),
    )


def parameters(target: Any) -> list[inspect.Parameter] | None:
    """The parameters of a callable; None where it does not tell them."""
    try:
        return list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):  # builtins and some torch.ops carry no signature
        return None


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def positional(target: Any) -> int:
    """How many positional arguments a callable takes; two where it does not tell."""
    known = parameters(target)
    if known is None or any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in known):
        return 2
    return sum(p.kind in _POSITIONAL for p in known)


def cap_keyword(target: Any) -> str | None:
    """The keyword-only parameter that is the cap: by its name, or the only one that has to be given."""
    known = [p for p in parameters(target) or [] if p.kind is inspect.Parameter.KEYWORD_ONLY]
    names = [p.name for p in known if p.name in _CAP_NAMES] or [p.name for p in known if p.default is p.empty]
    return names[0] if len(names) == 1 else None


def takes_a_tensor_second(target: Any) -> bool:
    """Whether a callable that takes the cap first needs another argument at once, so that it is no factory."""
    known = parameters(target) or []
    return sum(p.kind in _POSITIONAL and p.default is p.empty for p in known) > 1


def takes_the_cap_first(target: Any) -> bool:
    """Whether a callable is a factory: a cap is what it takes first."""
    known = parameters(target) or []
    return bool(known) and known[0].name in _CAP_NAMES


def by_keyword(target: Any) -> Callable[[float | int], Callable[[Tensor], Tensor]]:
    """`factory(softcap=c)`; positionally where the author calls the parameter something else."""
    known = parameters(target)
    keyword = known is None or any(
        p.name == "softcap" or p.kind is inspect.Parameter.VAR_KEYWORD for p in known
    )
    return (lambda cap: target(softcap=cap)) if keyword else target
