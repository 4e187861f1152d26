"""The judgement: laws, the plan over them, and the report. `verify` is the command `check` from Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from invariance.session import verify

__all__ = ["verify"]


def __getattr__(name: str) -> Any:
    """`verify`, imported when it is asked for: the command starts its children before anything imports torch."""
    if name != "verify":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from invariance.session import verify  # noqa: PLC0415

    return verify
