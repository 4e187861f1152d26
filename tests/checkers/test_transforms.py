"""The transform laws let every good kernel pass, and each is shown to fail before it is believed."""

from __future__ import annotations

import re

import pytest
import torch

from invariance.candidate import PASSES, adapt
from invariance.checkers import LAWS, load_laws
from invariance.run import arguments
from strategies.case import Case
from strategies.layouts import LAYOUTS
from tests.checkers.faulty import GOOD, bumped, faulty, softcap, verdict

load_laws()

LAW_NAMES = [name for name, law in LAWS.items() if law.check.__module__.endswith(".transforms")]

SHAPES = [(), (0,), (1,), (3, 0), (7,), (300,), (4, 33), (2, 3, 17), (2, 1, 3, 2, 5), (1030,)]


def cases(dtype):
    """Every shape, with layouts and values taking turns; any bit pattern among them, NaN included."""
    layouts = list(LAYOUTS)
    for number, shape in enumerate(SHAPES):
        knobs = (("grad_layout", layouts[-1 - number]), ("grad_values", ("signed", "specials")[number % 2]))
        values = ("bits", "mixed")[number % 2]
        yield Case(shape, dtype, 30.0, layouts[number], values, seed=number, knobs=knobs)


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize("law", LAW_NAMES)
def test_good_kernels_pass(law, pass_):
    for number, kernel in enumerate(GOOD):
        candidate = adapt(kernel.__name__, kernel)
        compared = 0
        for case in cases(LAWS[law].dtypes[number % len(LAWS[law].dtypes)]):
            found = verdict(law, candidate, case, pass_)
            assert found.mismatch is None, (kernel.__name__, case.dumps(), found.mismatch)
            compared += found.elements
        assert compared > 500


def flat_index(t):
    return torch.arange(t.numel()).view(t.shape)


def many_rows(out, args):
    return bumped(out) if out.dim() > 1 and out.shape[0] >= 256 else out


def wide_batches(out, args):
    """Rows of a batch of more than one, but for the first: what a test of row 0 alone never sees."""
    return bumped(out, (flat_index(out) >= out.shape[-1])) if out.dim() > 1 else out


def last_partial_block(out, args):
    return bumped(out, flat_index(out) >= out.numel() // 64 * 64)


def vector_body(out, args):
    return bumped(out, flat_index(out) < out.numel() // 8 * 8)


def lone_element(out, args):
    return bumped(out) if out.dim() == 0 else out


def whole_vectors(out, args):
    return bumped(out) if out.dim() and out.shape[-1] % 64 == 0 else out


def nan_aware(out, args):
    return bumped(out) if any(bool(t.isnan().any()) for t in args) else out


def three_dimensions(out, args):
    return bumped(out) if out.dim() >= 3 else out


def first_element(out, args):
    return bumped(out, flat_index(out) == 0)


def uniform_branch(out, args):
    """A cheaper path where all elements are alike, as a warp that votes takes it."""
    return bumped(out) if out.numel() and bool((args[0].abs() <= args[0].abs().flatten()[0]).all()) else out


def large_among_them(out, args):
    return bumped(out) if bool((args[-1].abs() > 3e4).any()) else out


def last_argument_strided(out, args):
    return bumped(out) if not args[-1].is_contiguous() else out


def stride_zero(out, args):
    return bumped(out) if 0 in args[-1].stride() else out


def zero_in_the_middle(out, args):
    t = args[-1]
    return bumped(out) if t.dim() == 3 and t.stride(1) == 0 != t.stride(0) else out


def rows_that_overlap(out, args):
    t = args[-1]
    return bumped(out) if t.dim() > 1 and t.stride()[-2:] == (1, 1) else out


def off_the_storage_start(out, args):
    return bumped(out) if args[-1].storage_offset() else out


def misaligned(out, args):
    return bumped(out) if args[-1].data_ptr() % 16 else out


def row_stride_wider(out, args):
    t = args[-1]
    return bumped(out) if t.dim() > 1 and t.stride(0) > t.shape[1] else out


def odd_places(out, args):
    return bumped(out, flat_index(out) % 2 == 1)


def own_memory(out, args):
    t = args[-1]
    return bumped(out) if t.untyped_storage().nbytes() == t.numel() * t.element_size() else out


FAULTS = [
    ("batch", many_rows, (5, 12), "in a batch of 256 rows"),
    ("batch", wide_batches, (5, 12), "row .* alone"),
    ("slicing", last_partial_block, (1027,), "."),
    ("slicing", vector_body, (3, 5), "."),
    ("slicing", lone_element, (3, 5), "element .* alone"),
    ("padding", whole_vectors, (3, 50), "vocabulary of 50 to 64 padded with NaN|vocabulary of 50 to 1024"),
    ("padding", nan_aware, (3, 50), "padded with NaN"),
    ("reshaping", three_dimensions, (6, 10), r"as \[\d+, \d+, \d+"),
    ("permutation", first_element, (40,), "reversed"),
    ("permutation", uniform_branch, (40,), "everywhere|reversed|sorted|rolled|shuffled"),
    ("neighbours", nan_aware, (40,), "among NaN"),
    ("neighbours", large_among_them, (40,), "among (inf|the largest)"),
    ("layout", last_argument_strided, (6, 10), "."),
    ("layout", stride_zero, (6, 10), "expanded|stride_zero"),
    ("layout", zero_in_the_middle, (2, 3, 5), "tokens_expanded"),
    ("layout", zero_in_the_middle, (40,), "as tokens, .*tokens_expanded"),
    ("layout", rows_that_overlap, (6, 10), "windows"),
    ("alignment", misaligned, (40,), "elements into the allocation"),
    ("splitting", off_the_storage_start, (6, 10), "piece 1 of dimension 0"),
    ("splitting", last_partial_block, (6, 100), "piece"),
    ("vocabulary_shards", row_stride_wider, (3, 50), "the view of rank 0"),
    ("vocabulary_shards", own_memory, (3, 50), "."),
    ("table", odd_places, (50,), "the call"),
]


@pytest.mark.parametrize("pass_", PASSES)
@pytest.mark.parametrize(
    ("law", "fault", "shape", "label"), FAULTS, ids=[f"{law}-{fault.__name__}" for law, fault, _, _ in FAULTS]
)
def test_each_law_catches_its_fault_in_the_pass_that_has_it(law, fault, shape, label, pass_):
    case = Case(shape, "fp16", 30.0, values="transition", seed=5)
    for judged in PASSES:
        found = verdict(law, faulty(fault, pass_), case, judged)
        if judged != pass_:
            assert found.mismatch is None, (judged, found.mismatch)
            continue
        assert found.mismatch is not None
        assert found.mismatch.what == "differ in bits"
        assert re.search(label, found.mismatch.label), found.mismatch.label


def test_every_transform_law_has_a_fault_that_it_catches():
    assert {law for law, *_ in FAULTS} == set(LAW_NAMES)


def test_layout_tries_the_upstream_gradient_in_every_layout():
    seen = set()

    def watched(out, args):
        seen.add((args[0].stride(), args[1].stride()))
        return out

    case = Case((4, 6, 2), "fp32", 20.0, seed=1)
    assert verdict("layout", faulty(watched, "backward"), case, "backward").mismatch is None
    x_strides, grad_strides = ({pair[i] for pair in seen} for i in (0, 1))
    assert x_strides == grad_strides
    assert (0, 0, 0) in grad_strides


@pytest.mark.parametrize("law", LAW_NAMES)
def test_a_case_alone_decides_what_is_claimed(law):
    case = Case((5, 41), "bf16", 20.0, seed=9)
    f = adapt("softcap", softcap).map(20.0, "inference")

    def labels():
        return [claim.label for claim in LAWS[law].check(f, arguments(f, case, "cpu"), case.pick)]

    first = labels()
    assert first == labels()
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("law", LAW_NAMES)
def test_inputs_are_left_alone(law):
    case = Case((5, 41), "bf16", 20.0, seed=9)
    f = adapt("softcap", softcap).map(20.0, "backward")
    args = arguments(f, case, "cpu")
    before = [t.clone() for t in args]
    list(LAWS[law].check(f, args, case.pick))
    assert all(torch.equal(t, kept) for t, kept in zip(args, before, strict=True))
