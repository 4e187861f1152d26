"""Wrong by place: tails, blocks, first elements, counts of rows. All by one ulp, which no accuracy rule sees."""

from __future__ import annotations

from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient, nudged, place


@wrong(
    bugs=(43,),
    must={"batch", "padding", "permutation", "saturation", "slicing", "splitting", "vocabulary_shards"},
)
def vector_tail(softcap: float) -> Kernel:
    """The last elements, those past a multiple of 8, take a scalar path."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), place(x) >= x.numel() // 8 * 8))


@wrong(
    bugs=(28, 43),
    must={"batch", "padding", "permutation", "saturation", "slicing", "splitting", "vocabulary_shards"},
    elements=1200,
)
def last_partial_block(softcap: float) -> Kernel:
    """The last partial block of a tensor of more than 1024 elements differs by one ulp."""

    def forward(x: Tensor, c: float) -> Tensor:
        whole = x.numel() // 1024 * 1024
        return nudged(capped(x, c), (place(x) >= whole) & (whole > 0))

    return Kernel(softcap, forward)


@wrong(
    bugs=(28,),
    must={"batch", "padding", "permutation", "vocabulary_shards"},
    may={"slicing", "splitting"},
    elements=1200,
    profile="quick",
)
def gradient_of_the_last_block(softcap: float) -> Kernel:
    """Only the backward treats the last partial block another way."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        whole = x.numel() // 1024 * 1024
        return nudged(gradient(x, g, c), (place(x) >= whole) & (whole > 0))

    return Kernel(softcap, backward=backward)


@wrong(
    bugs=(97,),
    must={
        "batch", "cap_used", "function_transforms", "padding", "permutation", "saturation", "slicing",
        "splitting", "vocabulary_shards",
    },
    may={"empty_and_scalar"},
)  # fmt: skip
def first_element(softcap: float) -> Kernel:
    """The first element is a header."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), (place(x) == 0) & (x.numel() > 1)))


@wrong(
    bugs=(79,),
    must={"batch", "neighbours", "permutation", "reshaping", "slicing", "splitting"},
    elements=300,
    profile="quick",
)
def many_rows(softcap: float) -> Kernel:
    """From 256 rows on another block size is chosen."""

    def forward(x: Tensor, c: float) -> Tensor:
        rows = x.shape[:-1].numel() if x.dim() > 1 else 1
        return nudged(capped(x, c), rows >= 256)

    return Kernel(softcap, forward)


@wrong(
    bugs=(79, 95),
    must={"batch", "grad_mode", "neighbours", "permutation", "reshaping", "slicing", "splitting"},
    elements=300,
    profile="quick",
)
def many_rows_in_inference(softcap: float) -> Kernel:
    """From 256 rows on inference takes another kernel; training does not."""

    def inference(x: Tensor, c: float) -> Tensor:
        rows = x.shape[:-1].numel() if x.dim() > 1 else 1
        return nudged(capped(x, c), rows >= 256)

    return Kernel(softcap, inference=inference)


@wrong(
    bugs=(80,),
    must={"batch", "cap_used", "empty_and_scalar", "padding", "slicing", "splitting", "vocabulary_shards"},
    profile="quick",
)
def powers_of_two(softcap: float) -> Kernel:
    """Sizes that are powers of two take a fast path."""

    def forward(x: Tensor, c: float) -> Tensor:
        n = x.numel()
        return nudged(capped(x, c), n > 1 and n & (n - 1) == 0)

    return Kernel(softcap, forward)


@wrong(bugs=(79,), must={"batch", "padding"}, profile="quick", elements=512)
def large_tensors(softcap: float) -> Kernel:
    """From 4096 elements on another kernel is chosen."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), x.numel() >= 4096))


@wrong(bugs=(79,), must={"batch", "padding", "reshaping", "vocabulary_shards"}, may={"splitting"})
def one_row(softcap: float) -> Kernel:
    """A single row of two dimensions, as in decoding, takes another kernel."""

    def forward(x: Tensor, c: float) -> Tensor:
        return nudged(capped(x, c), x.dim() == 2 and x.shape[0] == 1)

    return Kernel(softcap, forward)


@wrong(bugs=(57, 79), must={"reshaping"})
def four_dimensions(softcap: float) -> Kernel:
    """From four dimensions on indices are computed another way."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), x.dim() >= 4))


@wrong(bugs=(79, 15), must={"exact_value"}, laws=("exact_value",), profile="default", elements=1 << 16)
def many_rows_uncapped(softcap: float) -> Kernel:
    """From 2048 rows on the kernel that is chosen has no cap."""
    return Kernel(
        softcap, lambda x, c: x.float() if x.dim() > 1 and x.numel() // max(1, x.shape[-1]) >= 2048 else capped(x, c)
    )


@wrong(bugs=(28, 43), must={"exact_value"}, laws=("exact_value",), profile="default", elements=1 << 16)
def last_vector_unwritten(softcap: float) -> Kernel:
    """In large tensors the last half vector of eight is left at zero."""

    def forward(x: Tensor, c: float) -> Tensor:
        half = x.numel() > 8192 and x.numel() % 8 == 4
        return capped(x, c).masked_fill((place(x) >= x.numel() - 4) & half, 0.0)

    return Kernel(softcap, forward)


@wrong(
    bugs=(57, 79),
    must={
        "batch", "exact_value", "neighbours", "padding", "permutation", "reshaping", "slicing", "specification",
        "splitting", "vocabulary_shards",
    },
    may={"result_form"},
    profile="quick",
)  # fmt: skip
def six_dimensions(softcap: float) -> Kernel:
    """Of more dimensions than five nothing is capped."""
    return Kernel(softcap, lambda x, c: x.float() if x.dim() > 5 else capped(x, c))


@wrong(bugs=(78, 79), must={"splitting"}, laws=("splitting",), profile="default", elements=700_000)
def half_a_million_elements(softcap: float) -> Kernel:
    """From 2^19 elements on, which no test of the author has, the work is cut into other blocks."""
    return Kernel(softcap, lambda x, c: nudged(capped(x, c), x.numel() >= 1 << 19))


@wrong(bugs=(77, 78), must={"splitting"}, laws=("splitting",), profile="default", elements=1_200_000)
def tail_of_a_million_elements(softcap: float) -> Kernel:
    """Above 2^20 elements the grid is a power of two, and the last partial share of the work is not done."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.numel() > 1 << 20:
            y.view(-1)[x.numel() // 65536 * 65536 :] = 0
        return y

    return Kernel(softcap, forward)


@wrong(bugs=(77,), must={"splitting"}, laws=("splitting",), profile="default", elements=1_200_000)
def rows_past_two_axes(softcap: float) -> Kernel:
    """Rows are spread over two launches of 65,535, and there may be more."""

    def forward(x: Tensor, c: float) -> Tensor:
        y = capped(x, c)
        if x.dim() > 1:
            y.view(-1, x.shape[-1])[2 * 65535 :] = 0
        return y

    return Kernel(softcap, forward)


@wrong(bugs=(28, 57), must={"splitting"}, laws=("splitting",), profile="default", elements=700_000)
def gradient_of_a_wide_vocabulary(softcap: float) -> Kernel:
    """Rows of 100,000 and more take another path, in the backward only."""

    def backward(x: Tensor, g: Tensor, c: float) -> Tensor:
        return nudged(gradient(x, g, c), x.dim() > 1 and x.shape[-1] >= 100_000)

    return Kernel(softcap, backward=backward)
