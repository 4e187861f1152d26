"""Replace attributes for a while, and never one that is not there."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class PatchError(RuntimeError):
    """What was to be replaced does not exist: this Triton or torch is not one that the repairs were made for."""


class Patches:
    """A context: ``set`` replaces an attribute, leaving the context restores all of them, latest first."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, bool, Any]] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._undo:
            owner, name, own, old = self._undo.pop()
            if own:
                setattr(owner, name, old)
            else:
                delattr(owner, name)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace ``owner.name``; an inherited attribute is covered and uncovered again.

        Raises PatchError when there is no such attribute.
        """
        if not hasattr(owner, name):
            raise PatchError(f"cannot replace {name!r} of {owner!r}: it does not exist")
        own = name in vars(owner)
        self._undo.append((owner, name, own, vars(owner).get(name)))
        setattr(owner, name, value)
