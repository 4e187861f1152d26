"""Replace attributes for a while, and never one that is not there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType, TracebackType
from typing import Any


class PatchError(RuntimeError):
    """What was to be replaced does not exist: this Triton or torch is not one that the repairs were made for."""


class Patches:
    """A context: ``set`` and ``update`` replace attributes, leaving it restores all of them, latest first."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            self._undo.pop()()

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace ``owner.name``; an inherited attribute is covered and uncovered again.

        Raises PatchError when there is no such attribute.
        """
        if not hasattr(owner, name):
            raise PatchError(f"cannot replace {name!r} of {owner!r}: it does not exist")
        if name in vars(owner):
            self._undo.append(partial(setattr, owner, name, vars(owner)[name]))
        else:
            self._undo.append(partial(delattr, owner, name))
        setattr(owner, name, value)

    def update(self, module: ModuleType, values: Mapping[str, Any]) -> None:
        """Replace many names of a module at once; raises PatchError when it has not all of them."""
        names = vars(module)
        if missing := values.keys() - names.keys():
            raise PatchError(f"cannot replace {', '.join(sorted(missing))} of {module!r}: not there")
        self._undo.append(partial(names.update, {name: names[name] for name in values}))
        names.update(values)
