"""A fingerprint of a function that no order of evaluation changes: a sum modulo 2**64 of mixed (input, output) bits.

The mix is the 64-bit finaliser of MurmurHash3 (Appleby, public domain), a bijection; torch's int64 wraps, and
its arithmetic shift is masked to a logical one.
"""

from __future__ import annotations

import torch
from torch import Tensor

FIRST = 0xFF51AFD7ED558CCD - (1 << 64)
SECOND = 0xC4CEB9FE1A85EC53 - (1 << 64)
SHIFT = 33
MASK = (1 << (64 - SHIFT)) - 1
WORD = (1 << 64) - 1


class Mixer:
    """Fingerprints of chunks of up to `size` elements on `device`, in memory that is allocated once."""

    def __init__(self, size: int, device: torch.device | str) -> None:
        self._word = torch.empty(size, dtype=torch.int64, device=device)
        self._scratch = torch.empty(size, dtype=torch.int64, device=device)

    def __call__(self, x_bits: Tensor, y_bits: Tensor) -> int:
        """The sum over all elements, from 0 to 2**64 - 1.

        x_bits, y_bits: integer tensors of one length; the pair is the word (x << 32) ^ y, y without its sign extension.
        """
        n = x_bits.numel()
        word, scratch = self._word[:n], self._scratch[:n]
        width = 8 * y_bits.element_size()
        scratch.copy_(y_bits)
        if width < 64:
            scratch.bitwise_and_((1 << width) - 1)
        word.copy_(x_bits).bitwise_left_shift_(32).bitwise_xor_(scratch)
        for factor in (FIRST, SECOND):
            self._fold(word, scratch)
            word.mul_(factor)
        self._fold(word, scratch)
        return int(word.sum().item()) & WORD

    @staticmethod
    def _fold(word: Tensor, scratch: Tensor) -> None:
        """word ^= word >>> 33."""
        torch.bitwise_right_shift(word, SHIFT, out=scratch)
        word.bitwise_xor_(scratch.bitwise_and_(MASK))


def mix(x: int, y: int) -> int:
    """The word of one pair of encodings, in Python integers."""
    word = ((x << 32) ^ y) & WORD
    for factor in (FIRST, SECOND):
        word = ((word ^ (word >> SHIFT)) * factor) & WORD
    return word ^ (word >> SHIFT)
