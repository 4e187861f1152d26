"""The fingerprint: the sum that it says, in any order and cut."""

from __future__ import annotations

import random

import torch

from invariance.sweep.fingerprint import Mixer, mix

GENERATOR = random.Random(3)
X = [GENERATOR.getrandbits(32) for _ in range(1000)]
Y = [GENERATOR.getrandbits(32) for _ in range(1000)]


def tensor(words: list[int], width: int = 32) -> torch.Tensor:
    signed = [w - (1 << width) * (w >> (width - 1)) for w in words]
    return torch.tensor(signed, dtype=torch.int32 if width == 32 else torch.int16)


def test_it_is_the_sum_of_the_mixed_pairs_as_python_integers_have_it() -> None:
    mask = (1 << 64) - 1
    want = sum(mix((x << 32 >> 32) & 0xFFFFFFFF, y) for x, y in zip(X, Y, strict=True)) & mask
    assert Mixer(1000, "cpu")(tensor(X), tensor(Y)) == want


def test_it_is_the_same_in_any_order_and_any_cut() -> None:
    mixer, order = Mixer(1000, "cpu"), list(range(1000))
    GENERATOR.shuffle(order)
    x, y = tensor(X), tensor(Y)
    whole = mixer(x, y)
    assert mixer(x[order], y[order]) == whole
    assert (mixer(x[:137], y[:137]) + mixer(x[137:], y[137:])) % (1 << 64) == whole


def test_one_bit_of_one_output_and_two_outputs_exchanged_change_it() -> None:
    mixer, x, y = Mixer(1000, "cpu"), tensor(X), tensor(Y)
    other, swapped = y.clone(), y.clone()
    other[500] ^= 1
    swapped[[3, 4]] = swapped[[4, 3]]
    assert len({mixer(x, y), mixer(x, other), mixer(x, swapped)}) == 3


def test_the_mix_is_known() -> None:
    """MurmurHash3's published finaliser, by hand for the word 1."""
    word = 0xFF51AFD7ED558CCD
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 % (1 << 64)
    assert mix(0, 1) == word ^ (word >> 33)


def test_sixteen_bit_outputs_count_without_their_sign_extension() -> None:
    mixer = Mixer(1, "cpu")
    assert mixer(tensor([5]), tensor([0x8001], 16)) == mix(5, 0x8001)
