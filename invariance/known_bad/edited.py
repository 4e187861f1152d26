"""Operators of edited Triton kernels, which go where their tensors are: the interpreter on a CPU, else the device."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from invariance.known_bad.edits import Edit, operator


class Edited:
    """An edited operator at one cap; on CPU tensors it runs in the repaired interpreter with every access checked."""

    def __init__(self, name: str, softcap: float, edits: tuple[Edit, ...]) -> None:
        self.kind = operator(name, edits)
        self.on_device = self.kind(softcap)
        self.interpreted: Any = None
        self.softcap = softcap

    def __call__(self, x: Tensor) -> Tensor:
        """The edited operator's own result."""
        op = self.on_device if x.device.type != "cpu" else self._interpreted()
        result: Tensor = op(x)
        return result

    @property
    def launching(self) -> Any:
        """How the interpreter runs launches, for laws about them."""
        return self._interpreted().launching

    def _interpreted(self) -> Any:
        if self.interpreted is None:
            from invariance.tiers.interpreter import InterpretedOp  # noqa: PLC0415 - needs Triton

            self.interpreted = InterpretedOp(self.on_device)
        return self.interpreted


def edited_operator(name: str, softcap: float, *edits: Edit) -> Edited:
    """The shipped Triton operator with edits, at a cap."""
    return Edited(name, softcap, edits)
