"""What is done to the tensors and must not move a bit: other batches, slices, padding, shapes, orders and memory.

Every law is written over a map and its arguments, `(x,)` or `(x, grad_y)`: the backward of an elementwise operator
is an elementwise map of both. Whatever a law chooses it picks by name, so that the case alone replays it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor

from invariance.candidate import Map
from invariance.checkers import Pick, checker, choices
from invariance.checkers.views import (
    LARGE,
    TOKENS,
    Args,
    View,
    as_rows,
    as_tokens,
    commuting,
    each,
    flat,
    lazily_negated,
    plain,
    refused_or,
    some,
)
from invariance.judge import Claim
from strategies.dtypes import FORMATS, from_bits, name, to_bits
from strategies.layouts import LAYOUTS, VALUE_CHANGING, applies
from strategies.upstream import hashed

# Row counts on both sides of what block-size heuristics ask about (BUGS.md #79), in batches of some 8,192 elements.
_ROW_COUNTS = (2, 100, 255, 256, 257)
_MORE_ROWS = (3, 31, 33, 64, 511, 513, 1023, 1024, 1025)
_BATCH_ELEMENTS = 8192


@checker(
    judgement="invariance",
    bugs=(
        "vllm-project/vllm#48391",
        "vllm-project/vllm#55131",
        "sgl-project/sglang#10651",
        "NVIDIA/TensorRT-LLM#16782",
        "RLinf/RLinf#1534",
    ),
)
def batch(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """A row has the same bits alone, in its batch, and in batches of other sizes with other content."""
    rows = each(args, as_rows)
    count, width = rows[0].shape
    if count == 0 or width == 0:
        return
    whole = as_rows(f(*args))
    for row in sorted({0, pick("row", 0, count - 1), count - 1}):
        yield commuting(f"row {row} alone", f, rows, whole, itemgetter(slice(row, row + 1)))
    for size in (*_ROW_COUNTS, _MORE_ROWS[pick("more rows", 0, len(_MORE_ROWS) - 1)]):
        columns = min(width, max(1, _BATCH_ELEMENTS // size))
        left = pick(f"columns of {size}", 0, width - columns)
        first = pick(f"first of {size}", 0, count - 1)
        index = (torch.arange(size, device=whole.device) + first) % count
        stack = partial(_stack, index=index, columns=slice(left, left + columns))
        yield commuting(f"in a batch of {size} rows", f, rows, whole, stack)


def _stack(t: Tensor, index: Tensor, columns: slice) -> Tensor:
    return t[:, columns][index]


@checker(
    judgement="invariance",
    bugs=("ooples/AiDotNet.Tensors#594", "PrimeIntellect-ai/prime-rl#2497", "vllm-project/vllm#42684"),
)
def slicing(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """The result of a slice is the slice of the result."""
    whole = f(*args)
    for label, index in choices.dimension_slices(tuple(whole.shape), pick):
        yield commuting(label, f, args, whole, itemgetter(index))
    line, whole = each(args, flat), flat(whole)
    for lo, hi in choices.stretches(whole.numel(), pick):
        yield commuting(f"elements [{lo}:{hi}]", f, line, whole, itemgetter(slice(lo, hi)))


@checker(
    judgement="invariance",
    bugs=(
        "flashinfer-ai/flashinfer#3890",
        "verl-project/verl#2899",
        "unslothai/unsloth#10616",
        "huggingface/transformers#32390",
    ),
)
def padding(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Padding rows or the vocabulary, with anything, and taking it off again changes nothing."""
    rows = each(args, as_rows)
    whole = as_rows(f(*args))
    count, width = whole.shape
    for label, fill in choices.fills(args[0].dtype, pick):
        for side, box in choices.boxes(count, width, pick):
            top, left = box[0], box[2]
            boxed = tuple(choices.padded(t, box, choices.within(fill, t.dtype)) for t in rows)
            got = f(*boxed)[top : top + count, left : left + width]
            yield Claim(f"{side} padded with {label}", got=got, want=whole, of=rows)


@checker(judgement="invariance", bugs=("flagos-ai/FlagGems#5298", "triton-lang/triton#3299"))
def reshaping(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """The result of a reshaped tensor is the reshaped result."""
    whole = f(*args)
    shapes = choices.other_shapes(tuple(whole.shape), pick)
    for shape in some(shapes, args, pick("first shape", 0, len(shapes) - 1)):
        yield commuting(f"as {list(shape)}", f, args, whole, partial(torch.reshape, shape=shape))


@checker(judgement="invariance", bugs=("ooples/AiDotNet.Tensors#594", "sgl-project/sglang#10651"))
def permutation(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Elements that change places take their results with them."""
    line, whole = each(args, flat), flat(f(*args))
    size = whole.numel()
    if size == 0:
        return
    at = torch.arange(size, device=whole.device)
    shift = pick("shift", 0, size - 1)
    stride = choices.coprime(size, pick("stride", 1, 1 << 20))
    orders: dict[str, Callable[[], Tensor]] = {
        "reversed": lambda: size - 1 - at,
        f"rolled by {shift}": lambda: (at + shift) % size,
        "shuffled": lambda: (at * stride + shift) % size,
        "sorted": lambda: line[0].argsort(stable=True),
        f"with element {shift} everywhere": lambda: torch.full_like(at, shift),
    }
    for label, order in some(list(orders.items()), args, shift, few=2):
        yield commuting(label, f, line, whole, itemgetter(order()))


@checker(judgement="invariance", bugs=("ooples/AiDotNet.Tensors#594", "huggingface/transformers#32390"))
def neighbours(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """An element has the same bits whatever stands around it."""
    line, whole = each(args, flat), flat(f(*args))
    size = whole.numel()
    every = pick("every", 2, 9)
    first = pick("kept", 0, max(0, min(every, size) - 1))
    kept = torch.arange(size, device=whole.device) % every == first
    keep: View = itemgetter(kept)
    largest = torch.finfo(args[0].dtype).max
    fills = {"NaN": math.nan, "inf": math.inf, "-inf": -math.inf, "the largest": largest, "0": 0.0}
    for label, fill in fills.items():
        crowd = tuple(torch.where(kept, t, choices.filler(t, fill)) for t in line)
        got = keep(f(*crowd))
        yield Claim(f"among {label}", got=got, want=keep(whole), of=each(line, keep), where=kept)
    if len(args) == 2:  # the two arguments in different company
        x, grad_y = line
        alone = (
            torch.where(kept, x, choices.filler(x, math.nan)),
            torch.where(kept, grad_y, choices.filler(grad_y, 0.0)),
        )
        got = keep(f(*alone))
        yield Claim("among NaN, gradient 0", got=got, want=keep(whole), of=each(line, keep), where=kept)


@checker(
    judgement="invariance",
    bugs=(
        "vllm-project/vllm#42684",
        "flagos-ai/FlagGems#4831",
        "fla-org/flash-linear-attention#759",
        "ROCm/TransformerEngine#623",
        "pytorch/pytorch#194719",
        "fla-org/flash-linear-attention#871",
        "Dao-AILab/flash-attention#355",
    ),
)
def layout(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """The same values give the same bits from any memory layout of x and grad_y; a negation bit may be refused."""
    dense = each(args, plain)
    whole = f(*dense)
    yield Claim("as given", got=f(*args), want=whole, of=dense)
    for number, name_ in enumerate(("x", "grad_y")[: len(args)]):
        lazy = tuple(lazily_negated(t) if place == number else t for place, t in enumerate(dense))
        yield refused_or(
            f"{name_} negated by a bit, which {name_}.resolve_neg() resolves", partial(f, *lazy), whole, dense
        )
    names = list(LAYOUTS)
    shift = pick("shift", 0, len(names) - 1)
    for number, layout_x in some(list(enumerate(names)), args, shift):
        layouts = (layout_x, names[(number + shift) % len(names)])[: len(args)]
        yield _in_layouts(" and grad_y ".join(layouts), f, dense, whole, layouts)
    if dense[0].numel() and dense[0].dim() < len(TOKENS):
        tokens = each(dense, as_tokens)
        whole = f(*tokens)
        roomier = [one for one in names if applies(one, TOKENS) and not applies(one, tuple(dense[0].shape))]
        for number, layout_x in enumerate(roomier):
            layouts = (layout_x, roomier[number - 1])[: len(args)]
            label = f"as tokens, {' and grad_y '.join(layouts)}"
            yield _in_layouts(label, f, tokens, whole, layouts)


def _in_layouts(label: str, f: Map, dense: Args, whole: Tensor, layouts: tuple[str, ...]) -> Claim:
    """The claim that the arguments in these layouts give the result of contiguous ones, which is `whole`."""
    placed = tuple(LAYOUTS[one](t) for one, t in zip(layouts, dense, strict=True))
    same = VALUE_CHANGING.isdisjoint(layouts)
    values = dense if same else each(placed, plain)
    return Claim(label, got=f(*placed), want=whole if same else f(*values), of=values)


@checker(
    judgement="invariance",
    bugs=(
        "triton-lang/triton#1330",
        "vllm-project/vllm#57667",
        "pytorch/pytorch#151859",
        "intel/torch-xpu-ops#1238",
    ),
)
def alignment(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """A tensor that starts at any address, aligned or not, gives the same bits."""
    dense = each(args, plain)
    whole = f(*dense)
    turn = pick("turn", 0, 15)
    for offset in some(range(1, 16), args, turn):
        offsets = (offset, (offset * 3 + turn) % 16)[: len(args)]
        moved = tuple(choices.moved(t, by) for t, by in zip(dense, offsets, strict=True))
        label = " and grad_y ".join(str(by) for by in offsets)
        yield Claim(f"{label} elements into the allocation", got=f(*moved), want=whole, of=dense)


@checker(judgement="invariance", bugs=("fla-org/flash-linear-attention#871", "pytorch/pytorch#194719"))
def splitting(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """A tensor given in pieces, one call for each, gives the pieces of the result."""
    whole = f(*args)
    for dim, size in enumerate(whole.shape):
        if size > 1:
            length = pick(f"length {dim}", -(-size // 5), size - 1)
            yield from _pieces(f, args, whole, dim, length)
    line, whole = each(args, flat), flat(whole)
    if 1 < whole.numel() <= LARGE:  # of what is larger, the pieces of each dimension are enough to pay for
        blocks = -(-whole.numel() // 4)
        length = min(-(-blocks // 256) * 256 + pick("past the seam", -1, 1), whole.numel() - 1)
        yield from _pieces(f, line, whole, 0, max(length, 1))


def _pieces(f: Map, args: Args, whole: Tensor, dim: int, length: int) -> Iterator[Claim]:
    """One claim for each piece of at most `length` along `dim`; the pieces are views of the whole."""
    size = whole.shape[dim]
    for lo in range(0, size, length):
        view = partial(torch.narrow, dim=dim, start=lo, length=min(length, size - lo))
        yield commuting(f"piece {lo // length} of dimension {dim} by {length}", f, args, whole, view)


@checker(
    judgement="invariance",
    bugs=("PrimeIntellect-ai/prime-rl#2497", "vllm-project/vllm#42684", "flashinfer-ai/flashinfer#4401"),
)
def vocabulary_shards(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Every rank's shard of the padded vocabulary, as a view or as memory of its own, gives its part of the result."""
    rows, whole = each(args, as_rows), as_rows(f(*args))
    vocabulary = whole.shape[1]
    ranks = (2, 4, 8)[pick("ranks", 0, 2)]
    width = -(-max(vocabulary, 1) // ranks)
    right = width * ranks - vocabulary
    padded = tuple(choices.padded(t, (0, 0, 0, right), math.nan) for t in rows)
    together = f(*padded)
    yield Claim(f"{ranks} shards as one", got=together[:, :vocabulary], want=whole, of=rows)
    for rank in range(ranks):
        shard = partial(torch.narrow, dim=1, start=rank * width, length=width)
        yield commuting(f"the view of rank {rank} of {ranks}", f, padded, together, shard)
    own = partial(torch.narrow, dim=1, start=pick("rank", 0, ranks - 1) * width, length=width)
    yield commuting(f"memory of its own, of {ranks}", f, padded, together, lambda t: plain(own(t)))


@checker(judgement="invariance", inputs="table", explored=True)
def table(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Every call reads from one table: the 65,536 results of the dtype, each a function of the input's bits alone."""
    short = name(args[0].dtype)
    patterns = torch.arange(1 << FORMATS[short].width, device=args[0].device)
    results = f(*_with_gradient(from_bits(patterns, short), args))
    call = _with_gradient(args[0], args)
    yield Claim("the call", got=f(*call), want=results[to_bits(args[0])], of=call)
    if pick("all", 0, 3) == 0:
        odd = 2 * pick("stride", 0, 1 << 14) + 1
        order = ((patterns * odd + pick("shift", 0, 1 << 15)) % patterns.numel()).view(256, -1).t()
        call = _with_gradient(from_bits(order, short), args)
        yield Claim("all of them shuffled", got=f(*call), want=results[order], of=call)


def _with_gradient(x: Tensor, args: Args) -> Args:
    """x, and for a backward map the upstream gradient that is a fixed function of its bits."""
    if len(args) == 1:
        return (x,)
    short = name(args[1].dtype)
    return x, from_bits(hashed(x, short), short)
