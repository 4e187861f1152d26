"""The inputs: recipes of tensors (`Case`), and the families that they are drawn from."""

from __future__ import annotations

from strategies.case import Case

__all__ = ["Case"]
