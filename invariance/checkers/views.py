"""Views of all arguments of a map at once: whatever a law does to x it does to the upstream gradient too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from invariance.candidate import CandidateRaised, GraphLost, Map, Operator
from invariance.judge import Claim

Args = tuple[Tensor, ...]
View = Callable[[Tensor], Tensor]

T = TypeVar("T")

# Above this many elements a law that would call the map once for each of many settings takes a few of them.
LARGE = 1 << 17

# Batch, tokens, vocabulary: the fewest dimensions of which one is in the middle.
TOKENS = (2, 3, 5)


def each(args: Args, view: View) -> Args:
    """The view of every argument."""
    return tuple(view(t) for t in args)


def commuting(label: str, f: Map, args: Args, whole: Tensor, view: View) -> Claim:
    """The claim that the map of a view of the arguments is the view of `whole`, their result."""
    seen = each(args, view)
    return Claim(label, got=f(*seen), want=view(whole), of=seen)


def through(f: Map, way: Callable[[Operator, Tensor], Tensor]) -> Map:
    """The same map with its operator called as `way(op, x)`."""
    return replace(f, op=partial(way, f.op))


def interpreted(f: Map) -> bool:
    """Whether the operator runs in Triton's interpreter, which takes milliseconds a call and knows no threads."""
    return bool(getattr(f.op, "substitutions", ()))


def plain(t: Tensor) -> Tensor:
    """The same values in contiguous memory of their own."""
    return t.clone(memory_format=torch.contiguous_format)


def lazily_negated(t: Tensor) -> Tensor:
    """The same values: their opposites in memory, and the bit set that negates them, as in `z.conj().imag`."""
    return torch._neg_view(plain(t).neg())


def flat(t: Tensor) -> Tensor:
    """All elements in logical order, shape (numel,)."""
    return t.reshape(t.numel())


def as_rows(t: Tensor) -> Tensor:
    """The tensor as (rows, columns): its last dimension is a row; a 0-d tensor is one row of one element."""
    columns = t.shape[-1] if t.dim() else 1
    return t.reshape(t.shape[:-1].numel() if t.dim() else 1, columns)


def refused_or(label: str, call: Callable[[], Tensor], want: Tensor, of: Args) -> Claim:
    """The claim that a call raises, when it does; else that it gives the bits of `want`. A lost graph is no refusal."""
    try:
        return Claim(label, got=call(), want=want, of=of)
    except GraphLost:
        raise
    except CandidateRaised:
        return Claim(label, got="raised", want="raised")


def tiled(t: Tensor, count: int) -> Tensor:
    """`count` elements that repeat those of t (one or more) over and over, shape (count,)."""
    return flat(t).repeat(-(-count // t.numel()))[:count]


def as_tokens(t: Tensor) -> Tensor:
    """The elements of t (one or more) over and over, as a small batch of tokens: shape TOKENS."""
    return tiled(t, math.prod(TOKENS)).view(TOKENS)


def some(items: Sequence[T], args: Args, start: int, few: int = 4) -> list[T]:
    """All items; for large arguments a few of them, counted from `start` around."""
    if args[0].numel() <= LARGE:
        return list(items)
    return [items[(start + i * max(1, len(items) // few)) % len(items)] for i in range(few)]
