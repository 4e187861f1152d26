"""The hash: known answers, independence of position and size, and a spread that is not visibly wrong."""

from __future__ import annotations

import pytest
import torch

from strategies.words import _by_torch, _on_the_host, key, leading, scalar, words

MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """The published generator (Vigna's splitmix64.c), on Python's integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return state ^ (state >> 31)


@pytest.mark.parametrize("stream", [0, 1, 1234567, (1 << 63) + 5, MASK])
def test_words_are_splitmix64(stream: int) -> None:
    index = torch.tensor([0, 1, 2, 1023, 2**31, 2**40])
    expected = [splitmix64((stream + (i + 1) * 0x9E3779B97F4A7C15) & MASK) for i in index.tolist()]
    assert [word & MASK for word in words(index, stream).tolist()] == expected


@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 5)])
def test_the_host_and_torch_make_the_same_words(shape: tuple[int, ...]) -> None:
    index = torch.arange(-40, 215).view(-1, 5)[::3].reshape(-1)[: torch.Size(shape).numel()].view(shape)
    for stream in (0, 1 << 63, MASK):
        assert torch.equal(_on_the_host(index, stream), _by_torch(index, stream))
    transposed = torch.arange(12).view(3, 4).t()
    assert torch.equal(_on_the_host(transposed, 7), _by_torch(transposed, 7))


def test_the_published_first_output_of_seed_1234567() -> None:
    assert words(torch.tensor([0]), 1234567).tolist() == [6457827717110365317]


@pytest.mark.parametrize("count", [1, 8, 24, 53, 62, 63])
def test_leading_bits_are_not_negative_and_reach_both_ends(count: int) -> None:
    top = leading(words(torch.arange(4096), 7), count)
    assert int(top.min()) >= 0
    assert int(top.max()) < 1 << count
    assert abs(float(top.to(torch.float64).mean()) / 2.0**count - 0.5) < 0.5


def test_each_bit_of_a_word_is_set_about_half_the_time() -> None:
    some = words(torch.arange(1 << 14), key(0, "x", "pattern"))
    for bit in range(64):
        share = float(((some >> bit) & 1).to(torch.float64).mean())
        assert abs(share - 0.5) < 0.02, bit


def test_keys_tell_text_from_numbers_and_parts_apart() -> None:
    keys = [key(1, 2), key(12), key("1", 2), key(1, "2"), key(2, 1), key(1), key(), key("1\x1f2")]
    assert len(set(keys)) == len(keys)
    assert all(0 <= one <= MASK for one in keys)


def test_scalars_cover_their_range_and_nothing_else() -> None:
    assert {scalar(-2, 2, seed, "a") for seed in range(200)} == {-2, -1, 0, 1, 2}
    assert scalar(5, 5, 0) == 5
    with pytest.raises(ValueError, match="no integer from 3 to 2"):
        scalar(3, 2, 0)
