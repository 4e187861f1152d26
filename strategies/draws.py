"""`Draw`: what a distribution is given, and the few exact operations that it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strategies.dtypes import FORMATS, Format, encode, ordinal
from strategies.words import key, leading, words

__all__ = ["Draw"]


@dataclass(frozen=True)
class Draw:
    """The elements asked for: `index` (int64, any shape), and what their bits may depend on besides.

    `role` keeps x and the upstream gradient independent under one seed; `cap` is the FP32 value of the cap.
    Every operation is on integers, or on FP64 numbers short enough that it is exact: z has at most 28 bits
    and the cap 24, so z * cap fits FP64.
    """

    index: Tensor
    seed: int
    dtype: str
    cap: float
    role: str = "x"

    @property
    def form(self) -> Format:
        """The format drawn for."""
        return FORMATS[self.dtype]

    def at(self, index: Tensor) -> Draw:
        """The same draw for other elements."""
        return replace(self, index=index)

    def bits(self, stream: str, count: int) -> Tensor:
        """`count` random bits (1 to 63) per element, as integers that are not negative."""
        return leading(words(self.index, key(self.seed, self.role, stream)), count)

    def below(self, stream: str, bound: int) -> Tensor:
        """An integer from 0 to bound - 1 per element (bound up to 2^32: the bias is below 2^-30)."""
        return self.bits(stream, 62) % bound

    def uniform(self, low: float, high: float) -> Tensor:
        """FP64 numbers from `low` to `high` (ends of few bits), on a grid of 2^-24 of the width."""
        return self.bits("uniform", 24).to(torch.float64) * ((high - low) * 2.0**-24) + low

    def between(self, low: int, high: int) -> Tensor:
        """Magnitude patterns from `low` to `high`, both included: nearly log-uniform."""
        return self.below("between", max(high - low, 0) + 1) + low

    def signed(self, magnitude: Tensor) -> Tensor:
        """Patterns with the magnitude given and a random sign."""
        return magnitude + self.bits("sign", 1) * self.form.sign

    def scaled(self, z: Tensor) -> Tensor:
        """Magnitude patterns of z * cap (z >= 0, FP64), rounded once, at most the largest finite number."""
        return encode(z * self.cap, self.dtype).clamp(max=self.form.largest)

    def scale(self, z: float) -> int:
        """The magnitude pattern of one z * cap, at most the largest finite number."""
        return min(ordinal(z * self.cap, self.dtype), self.form.largest)

    def chosen(self, stream: str, table: Sequence[int]) -> Tensor:
        """One pattern of the table per element."""
        patterns = torch.tensor(table, dtype=torch.int64, device=self.index.device)
        return patterns[self.below(stream, len(table))]
