"""Hashed integers: the only source of randomness of this package.

A word is a function of a key and an index alone, so that element i of a tensor does not depend on how many
elements follow it, on the device or on the order of evaluation (torch.randn(15) is not a prefix of
torch.randn(16), and a GPU's stream is another one).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

import numpy as np
import torch
from torch import Tensor

__all__ = ["key", "scalar", "words"]

# SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
_GAMMA: Final = 0x9E3779B97F4A7C15
_STEPS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def key(*parts: int | str) -> int:
    """A 64-bit key from integers of any size and strings, the same in every process."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def scalar(low: int, high: int, *parts: int | str) -> int:
    """One hashed integer from `low` to `high`, both included; ValueError when there is none."""
    if low > high:
        raise ValueError(f"no integer from {low} to {high}: the low end must not be above the high end")
    digest = blake2b(key(*parts).to_bytes(8, "little"), digest_size=16).digest()
    return low + int.from_bytes(digest, "little") % (high - low + 1)


def words(index: Tensor, stream: int) -> Tensor:
    """64-bit words (int64, any sign), one per index (int64): SplitMix64 seeded with the 64-bit key."""
    return _on_the_host(index, stream) if index.device.type == "cpu" else _by_torch(index, stream)


def _on_the_host(index: Tensor, stream: int) -> Tensor:
    """By NumPy, whose integers without a sign shift logically: a third of the time."""
    word = index.reshape(-1).numpy().view(np.uint64) + np.uint64(1)
    word *= np.uint64(_GAMMA)
    word += np.uint64(stream)
    for shift, factor in _STEPS:
        word ^= word >> np.uint64(shift)
        word *= np.uint64(factor)
    word ^= word >> np.uint64(31)
    return torch.from_numpy(word.view(np.int64)).view(index.shape)


def _by_torch(index: Tensor, stream: int) -> Tensor:
    word = (index + 1) * _signed(_GAMMA) + _signed(stream)
    for shift, factor in _STEPS:
        word = (word ^ _shifted(word, shift)) * _signed(factor)
    return word ^ _shifted(word, 31)


def _shifted(word: Tensor, count: int) -> Tensor:
    """Logical right shift: torch's >> on int64 drags the sign along."""
    return (word >> count) & ((1 << (64 - count)) - 1)


def _signed(value: int) -> int:
    """The int64 with the same 64 bits."""
    return value - (1 << 64) if value >> 63 else value


def leading(word: Tensor, count: int) -> Tensor:
    """The top `count` bits (1 to 63) of each word, as integers that are not negative."""
    return _shifted(word, 64 - count).to(torch.int64)
