"""Faults that one law alone can see: without it each of them would pass. The transforms' part."""

from __future__ import annotations

import torch
from torch import Tensor

from invariance.known_bad.entry import AS_GIVEN, wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged


@wrong(bugs=(79,), must={"batch"})
def five_hundred_rows(softcap: float) -> Kernel:
    """From 500 rows of several columns on another block size is chosen."""

    def forward(x: Tensor, c: float) -> Tensor:
        return nudged(capped(x, c), x.dim() == 2 and x.shape[0] >= 500 and x.shape[1] > 1)

    return Kernel(softcap, forward)


@wrong(bugs=(28, 80), must={"slicing"}, elements=1200)
def exactly_one_block(softcap: float) -> Kernel:
    """A vector of exactly 1024 elements takes a path without masks."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), tuple(x.shape) == (1024,)))


@wrong(bugs=(5,), must={"padding"})
def padded_batch(softcap: float) -> Kernel:
    """Several rows of which the last is NaN, as padding leaves it, are taken for a padded batch."""

    def forward(x: Tensor, c: float) -> Tensor:
        padded = x.dim() == 2 and x.shape[0] > 2 and x.shape[1] > 0 and bool(x[-1].isnan().all())
        return nudged(capped(x, c), padded)

    return Kernel(softcap, forward)


@wrong(bugs=(90,), must={"permutation"})
def sorted_input(softcap: float) -> Kernel:
    """A sorted vector takes a path that saves a comparison."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.dim() != 1 or x.numel() < 64:
            return capped(x, c)
        return nudged(capped(x, c), bool((x[1:] >= x[:-1]).all()) and bool(x[0] < x[-1]))

    return Kernel(softcap, forward)


@wrong(bugs=(43,), must={"neighbours"})
def between_the_largest(softcap: float) -> Kernel:
    """An element of a vector between two of the largest numbers is computed with their exponent."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.dim() != 1 or x.numel() < 3:
            return y
        largest = x == torch.finfo(x.dtype).max
        between = torch.zeros_like(largest)
        between[1:-1] = largest[:-2] & largest[2:] & ~largest[1:-1]
        return nudged(y, between)

    return Kernel(softcap, forward)


@wrong(bugs=(59, 60), must={"layout"}, may=AS_GIVEN, profile="quick")
def transposed_one_ulp(softcap: float) -> Kernel:
    """A transposed matrix is walked by columns, with another rounding."""

    def forward(x: Tensor, c: float) -> Tensor:
        walked = x.dim() == 2 and min(x.shape) > 1 and x.stride(0) == 1 and x.stride(1) == x.shape[0]
        return nudged(capped(x, c), walked)

    return Kernel(softcap, forward)


@wrong(bugs=(72,), must={"alignment"})
def one_address_in_sixteen(softcap: float) -> Kernel:
    """A tensor 15 elements into an allocation that is 16 longer than it takes another first step."""

    def forward(x: Tensor, c: float) -> Tensor:
        spare = x.untyped_storage().nbytes() // x.element_size() - x.numel()
        return nudged(capped(x, c), spare == 16 and x.storage_offset() == 15)

    return Kernel(softcap, forward)


@wrong(bugs=(92,), must={"splitting"}, may={"slicing"})
def continued(softcap: float) -> Kernel:
    """A vector that begins where the last one ended is taken for its continuation."""
    end = [0]

    def forward(x: Tensor, c: float) -> Tensor:
        continues = x.dim() == 1 and x.numel() > 0 and x.data_ptr() == end[0]
        end[0] = x.data_ptr() + x.numel() * x.element_size() if x.dim() == 1 and x.is_contiguous() else 0
        return nudged(capped(x, c), continues)

    return Kernel(softcap, forward)


@wrong(bugs=(57, 28), must={"vocabulary_shards"})
def recognised_shard(softcap: float) -> Kernel:
    """The first of two equal column shards of a matrix, or one of eight, takes a path for tensor parallelism."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.dim() != 2 or min(x.shape) < 1 or x.shape[0] < 2 or x.stride(1) != 1:
            return capped(x, c)
        ranks, rest = divmod(x.stride(0), x.shape[1])
        first_of_two, one_of_eight = ranks == 2 and x.storage_offset() == 0, ranks == 8
        return nudged(capped(x, c), rest == 0 and (first_of_two or one_of_eight))

    return Kernel(softcap, forward)


@wrong(bugs=(79, 97), must={"table"}, dtypes=("bf16",))
def sixty_five_thousand(softcap: float) -> Kernel:
    """From 65,536 elements on a scan picks the kernel: a zero in front and a NaN at the end cost an ulp."""

    def forward(x: Tensor, c: float) -> Tensor:
        if x.numel() < 65536:
            return capped(x, c)
        line = x.reshape(-1)
        return nudged(capped(x, c), (line[0] == 0) & line[-1].isnan())

    return Kernel(softcap, forward)


@wrong(bugs=(90,), must={"repeat"}, profile="quick")
def after_a_long_call(softcap: float) -> Kernel:
    """After a call of twice as many elements and one, the workspace fits so well that it is used again."""
    last = [0]

    def forward(x: Tensor, c: float) -> Tensor:
        before, last[0] = last[0], x.numel()
        return nudged(capped(x, c), before == 2 * x.numel() + 1 > 17)

    return Kernel(softcap, forward)


@wrong(bugs=(63,), must={"autograd_gradients"}, dtypes=("bf16", "fp32"))
def stacked_upstream(softcap: float) -> Kernel:
    """The upstream gradient of a stack, every second element from the second one on, takes another path."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        stacked = g.dim() > 0 and g.numel() > 1 and g.stride(-1) == 2 and g.storage_offset() == 1
        return nudged(gradient(x, g, c), stacked)

    return Kernel(softcap, backward=backward)
