"""The three floating formats, by short name, and their encodings as integers.

Everything here is integer arithmetic on bit patterns, so that a CPU and a GPU, whatever their flush-to-zero
settings, agree in every bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor

__all__ = ["DTYPES", "FORMATS", "TORCH", "Format", "encode", "from_bits", "name", "ordinal", "to_bits"]


@dataclass(frozen=True)
class Format:
    """A binary format: `width` bits, `digits` of significand with the hidden one, exponent floor `emin`."""

    width: int
    digits: int
    emin: int
    integer: torch.dtype

    @property
    def sign(self) -> int:
        """The sign bit as a pattern: also the pattern of -0."""
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """The pattern of +inf: the exponent field full, nothing else."""
        return self.sign - (1 << (self.digits - 1))

    @property
    def largest(self) -> int:
        """The pattern of the largest finite number."""
        return self.infinity - 1

    @property
    def smallest_normal(self) -> int:
        """The pattern of 2^emin; below it are the subnormals, and 1 is the smallest of them."""
        return 1 << (self.digits - 1)

    @property
    def quiet_nan(self) -> int:
        """The pattern of the usual quiet NaN."""
        return self.infinity | (1 << (self.digits - 2))


TORCH: Final[dict[str, torch.dtype]] = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
DTYPES: Final[tuple[str, ...]] = tuple(TORCH)
FORMATS: Final[dict[str, Format]] = {
    "fp16": Format(width=16, digits=11, emin=-14, integer=torch.int16),
    "bf16": Format(width=16, digits=8, emin=-126, integer=torch.int16),
    "fp32": Format(width=32, digits=24, emin=-126, integer=torch.int32),
}
_NAMES: Final[dict[torch.dtype, str]] = {dtype: short for short, dtype in TORCH.items()}


def name(dtype: torch.dtype) -> str:
    """The short name of a torch dtype ("fp16", "bf16", "fp32"); ValueError for any other."""
    if dtype not in _NAMES:
        raise ValueError(f"no short name for {dtype}: accepted are {', '.join(str(d) for d in _NAMES)}")
    return _NAMES[dtype]


def encode(value: Tensor, dtype: str) -> Tensor:
    """Bit patterns (int64) of FP64 `value` in `dtype`: one rounding to nearest even, overflow to inf.

    Not a cast: torch's FP64 -> FP16/BF16 cast rounds twice, through FP32. NaN comes out as inf.
    """
    form = FORMATS[dtype]
    raw = value.view(torch.int64)
    exponent = ((raw >> 52) & 0x7FF) - 1023
    significand = (raw & ((1 << 52) - 1)) | (1 << 52)
    # With 54 bits dropped nothing is left; FP64 zero and subnormals (exponent -1023) end there too.
    drop = ((form.emin - exponent).clamp(min=0) + 53 - form.digits).clamp(max=54)
    kept = significand >> drop
    rest = significand - (kept << drop)
    half = torch.ones_like(rest) << (drop - 1)
    kept = kept + ((rest > half) | ((rest == half) & (kept & 1 == 1))).to(torch.int64)
    # The hidden bit in `kept` adds the last 1 to the exponent field, and a carry does the same.
    magnitude = ((exponent - form.emin).clamp(min=0) << (form.digits - 1)) + kept
    return magnitude.clamp(max=form.infinity) + ((raw >> 63) & 1) * form.sign


def ordinal(value: float, dtype: str) -> int:
    """The bit pattern of one number of either sign in `dtype`, rounded once."""
    negative = math.copysign(1.0, value) < 0
    return _magnitude(abs(value), dtype) + negative * FORMATS[dtype].sign


@lru_cache(maxsize=4096)
def _magnitude(value: float, dtype: str) -> int:
    """Kept, since every case asks for the ends of the same ranges: two thirds of the time of building a small one.

    Without a sign, because a cache takes 0.0 and -0.0 for the same.
    """
    return int(encode(torch.tensor([value], dtype=torch.float64), dtype)[0])


def from_bits(bits: Tensor, dtype: str) -> Tensor:
    """The tensor of `dtype` whose patterns are `bits` (int64, 0 to 2^width - 1); same shape and device."""
    form = FORMATS[dtype]
    signed = bits - ((bits >> (form.width - 1)) & 1) * (1 << form.width)
    return signed.to(form.integer).view(TORCH[dtype])


def to_bits(tensor: Tensor) -> Tensor:
    """The patterns of a tensor of a known dtype, as int64 from 0 to 2^width - 1; same shape."""
    form = FORMATS[name(tensor.dtype)]
    stored = tensor.detach().resolve_neg().contiguous().view(form.integer)
    return stored.to(torch.int64) & ((1 << form.width) - 1)
