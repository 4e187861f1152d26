"""Hints to the compiler: a false one is a fault that says what and where, and one that holds is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from invariance.candidate import CandidateRaised, load
from invariance.tiers.faults import BrokenPromise, Fault
from invariance.tiers.interpreter import interpreted


@triton.jit
def within(value):
    return tl.multiple_of(value, 16)


@triton.jit
def hints_kernel(x, n, HINT: tl.constexpr, HOW: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if HINT == "multiple_of scalar":
        within(n)
    if HINT == "multiple_of":
        tl.multiple_of(at + n, HOW)
    if HINT == "multiple_of each":
        tl.multiple_of(at * n, HOW)
    if HINT == "max_contiguous":
        tl.max_contiguous(at + n * (at // 4), HOW)
    if HINT == "max_constancy":
        tl.max_constancy(at // 4, HOW)
    if HINT == "max_constancy mask":
        tl.max_constancy(at < n, HOW)
    if HINT == "assume":
        tl.assume(n < HOW)
    if HINT == "assume lanes":
        tl.assume(at < HOW)


@triton.jit
def more_hints_kernel(x, n, HINT: tl.constexpr, HOW: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    if HINT == "multiple_of pointers":
        tl.multiple_of(x + at, HOW)
    if HINT == "max_contiguous pointers":
        tl.max_contiguous(x + at + at // 4, HOW)
    if HINT == "max_contiguous rows":
        tl.max_contiguous(x + tl.arange(0, 4)[:, None] * n + tl.arange(0, 8)[None, :], [1, HOW])
    if HINT == "max_contiguous columns":
        tl.max_contiguous(tl.arange(0, 8)[:, None] + tl.arange(0, 4)[None, :] * n, [HOW, 1])


MORE = ("multiple_of pointers", "max_contiguous pointers", "max_contiguous rows", "max_contiguous columns")


def told(hint: str, how: int, n: int = 0, *, first: int = 0, programs: int = 2) -> None:
    x = torch.zeros(64)[first:]
    with interpreted():
        kernel = more_hints_kernel if hint in MORE else hints_kernel
        kernel[(programs,)](x, n, HINT=hint, HOW=how, B=16)


@pytest.mark.parametrize(
    ("hint", "how", "n", "found"),
    [
        ("multiple_of scalar", 16, 33, "multiple_of(16).*: 33 in program (0, 0, 0)"),
        ("multiple_of", 8, 4, "multiple_of(8).*: 4 at lane 0 in"),
        ("multiple_of each", 8, 4, "multiple_of(8).*: 4 at lane 1 in"),
        ("max_contiguous", 8, 1, "max_contiguous(8).*: 5 at lane 4 in"),
        (
            "max_contiguous pointers",
            8,
            0,
            "element offset 5 of x .*, 4 bytes past a multiple of 16 at lane 4 in",
        ),
        ("max_constancy", 8, 0, "max_constancy(8).*: 1 at lane 4 in"),
        ("max_constancy mask", 4, 18, "max_constancy(4).*: 0 at lane 2 in program (1, 0, 0)"),
        ("assume", 7, 7, "assume .*: the condition does not hold in program"),
        ("assume lanes", 20, 0, "the condition does not hold at lane 4 in program (1, 0, 0)"),
    ],
)
def test_a_false_hint_says_what_and_where(hint, how, n, found):
    pattern = ".*".join(re.escape(part) for part in found.split(".*"))
    with pytest.raises(BrokenPromise, match=pattern) as caught:
        told(hint, how, n)
    assert caught.value.kernel.endswith("hints_kernel")
    assert re.fullmatch(r"test_promises\.py:\d+", caught.value.place)


def test_the_line_is_that_of_the_hint_also_in_a_function_that_a_kernel_calls():
    with pytest.raises(BrokenPromise) as caught:
        told("multiple_of scalar", 16, 33)
    line = int(caught.value.place.rpartition(":")[2])
    assert "tl.multiple_of(value, 16)" in Path(__file__).read_text("utf-8").splitlines()[line - 1]


@pytest.mark.parametrize(
    ("hint", "how", "n"),
    [
        ("multiple_of scalar", 16, 32),
        ("multiple_of", 16, 32),  # the first of each contiguous group is asked, not each element
        ("multiple_of each", 4, 4),
        ("multiple_of pointers", 16, 0),
        ("multiple_of pointers", 4096, 0),  # which depends on the allocator
        ("max_contiguous", 4, 1),
        ("max_contiguous", 16, 0),
        ("max_contiguous pointers", 4, 0),
        ("max_contiguous rows", 8, 9),
        ("max_contiguous rows", 16, 9),  # a row has eight, all of which lie side by side
        ("max_contiguous columns", 8, 9),
        ("max_constancy", 4, 0),
        ("max_constancy mask", 4, 20),
        ("assume", 8, 7),
        ("assume lanes", 32, 0),
    ],
)
def test_a_hint_that_holds_is_no_fault(hint, how, n):
    told(hint, how, n)
    assert issubclass(BrokenPromise, Fault)


def test_a_slice_begins_at_no_multiple_of_16_bytes():
    told("multiple_of pointers", 16, first=4)
    with pytest.raises(
        BrokenPromise, match=r"element offset 0 of x .*, 12 bytes past a multiple of 16 at lane 0"
    ):
        told("multiple_of pointers", 16, first=3)
    told("multiple_of pointers", 4, first=3)


def test_a_group_is_as_long_as_all_of_them_can_be():
    with interpreted(), pytest.raises(BrokenPromise, match=r"multiple_of\(8\).*: 2 at lane 2"):
        groups_kernel[(1,)](torch.tensor([0, 1, 2, 3, 4, 5, 8, 9]), 8)
    with interpreted():
        groups_kernel[(1,)](torch.tensor([0, 1, 2, 3, 4, 5, 8, 9]), 2)


@triton.jit
def groups_kernel(x, HOW: tl.constexpr):
    tl.multiple_of(tl.load(x + tl.arange(0, 8)), HOW)


def test_hints_are_forgotten_outside():
    before = triton.runtime.interpreter.TensorHandle.set_attr
    told("assume", 8, 7)
    assert triton.runtime.interpreter.TensorHandle.set_attr is before


def test_a_candidate_with_a_false_hint_raises_from_its_call():
    f = load("invariance.known_bad.strangers:promises_aligned_pointers").map(17.3, "inference")
    assert f(torch.ones(40)).shape == (40,)
    with pytest.raises(CandidateRaised, match="multiple_of") as caught:
        f(torch.ones(40)[1:])
    assert isinstance(caught.value.__cause__, BrokenPromise)
