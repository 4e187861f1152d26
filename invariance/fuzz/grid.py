"""The inputs of a campaign: magnitudes of one dtype, each with both signs; for 16 bits all of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from strategies.dtypes import FORMATS, TORCH, from_bits, to_bits
from strategies.stratified import stratified
from strategies.upstream import hashed

BLOCK = 1 << 15  # magnitudes of one call on a CPU: FP64 scratch of a block stays in the second-level cache
SAMPLE = 1 << 17  # magnitudes of FP32 for a cap: 2^18 inputs


class Grid:
    """Inputs in the order: every magnitude positive, then every one negative.

    positive: the magnitudes as numbers of `dtype`, 1-D; both: all inputs; special: indices of infinity among the
    magnitudes; nan: of NaN.
    """

    def __init__(self, dtype: str, patterns: Tensor) -> None:
        form = FORMATS[dtype]
        self.dtype = dtype
        self.positive = from_bits(patterns, dtype)
        self.special = (patterns == form.infinity).nonzero().flatten()
        self.nan = (patterns > form.infinity).nonzero().flatten()
        self.both = torch.cat([self.positive, from_bits(patterns + form.sign, dtype)])
        self._gradients: dict[tuple[str, torch.dtype], Tensor] = {}

    @property
    def elements(self) -> int:
        """Inputs, of both signs."""
        return self.both.numel()

    @property
    def tensor_dtype(self) -> torch.dtype:
        """The dtype as torch's."""
        return TORCH[self.dtype]

    def tensor(self) -> Tensor:
        """The inputs in memory of their own: a candidate may write into them."""
        return self.both.clone()

    def pattern(self, index: int) -> int:
        """The bit pattern of one input."""
        return int(to_bits(self.both[index]))

    def gradient(self, kind: str, dtype: torch.dtype) -> Tensor:
        """The upstream gradient of the magnitudes: "ones", or "hashed" by their bits, with sizes of 2^-4 to 2^4."""
        key = (kind, dtype)
        if key not in self._gradients:
            short = {full: short for short, full in TORCH.items()}[dtype]
            ones = torch.ones_like(self.positive, dtype=dtype)
            made = ones if kind == "ones" else from_bits(hashed(self.positive, short), short)
            self._gradients[key] = made
        return self._gradients[key]


@lru_cache(maxsize=8)
def whole(dtype: str, device: str) -> Grid:
    """All 65,536 inputs of a 16-bit dtype."""
    return Grid(dtype, torch.arange(1 << 15, dtype=torch.int64, device=device))


def sample(cap: float, seed: int, device: str) -> Iterator[Grid]:
    """At least 2^18 inputs of FP32 for a cap, in blocks: every stretch of the format and every seam."""
    block = BLOCK if device == "cpu" else 1 << 24
    patterns = stratified(cap, seed, SAMPLE, device)
    for start in range(0, patterns.numel(), block):
        yield Grid("fp32", patterns[start : start + block])


def grids(dtype: str, cap: float, seed: int, device: str) -> Iterator[Grid]:
    """The inputs of one dtype at a cap."""
    return sample(cap, seed, device) if dtype == "fp32" else iter([whole(dtype, device)])
