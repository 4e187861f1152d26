"""How a launch is run: any order of its programs, typed loops, tensors without memory, and a limit to patience."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from invariance.candidate import load
from invariance.checkers import NO_LAUNCHES, NotApplicable, launches
from invariance.known_bad import stranger_kernels as kernels
from invariance.plan import Settings, cases, cells
from invariance.run import judge_cell
from invariance.tiers.faults import BUDGET, GaveUp, NoLaunch, OutOfBounds, Race
from invariance.tiers.interpreter import InterpretedOp, interpreted
from invariance.tiers.orders import WHOLE, ends, in_order
from invariance.verdict import FAIL, NOT_APPLICABLE, PASS

HERE = "tests.tiers.test_launches"


@triton.jit
def counting_kernel(y, n, B: tl.constexpr):
    for i in range(0, n, B):
        tl.store(y + i.to(tl.int64), i)


@triton.jit
def scalar_condition_kernel(x, y, n, B: tl.constexpr):
    program = tl.program_id(0)
    at = program * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=(program > 0) & (at < n), other=7.0), mask=at < n)


@triton.jit
def endless_kernel(x, y, n):
    i = tl.load(x)
    while i < n:
        i = tl.load(x)
    tl.store(y, i)


@pytest.fixture
def budget() -> Iterator[None]:
    """The count of programs, switched off again."""
    yield
    BUDGET.left = float("inf")


@pytest.mark.parametrize("order", WHOLE)
def test_an_order_has_every_program_once(order):
    assert sorted(order((3, 2, 5))) == sorted(in_order((3, 2, 5)))
    assert len(set(order((3, 2, 5)))) == 30


def test_orders_differ_and_ends_are_few():
    assert len({tuple(order((4, 3, 1))) for order in WHOLE}) == 3
    assert len(ends((2**22, 1, 1))) == 5
    assert (2**22 - 1, 0, 0) in ends((2**22, 1, 1))
    assert len(ends((16, 1, 1))) == 16


def test_a_scalar_condition_joins_a_mask():
    x, y = torch.ones(6), torch.zeros(6)
    with interpreted():
        scalar_condition_kernel[(2,)](x, y, 6, B=4)
    assert y.tolist() == [7.0] * 4 + [1.0] * 2


def test_a_loop_counts_as_a_gpu_does():
    y = torch.zeros(8, dtype=torch.int32)
    with interpreted():
        counting_kernel[(1,)](y, 8, B=4)
    assert y.tolist() == [0, 0, 0, 0, 4, 0, 0, 0]


@pytest.mark.parametrize("order", ["in_order", "hashed"])
def test_a_program_that_reads_what_another_stores_is_a_race(order):
    x, y = torch.ones(2000), torch.zeros(2000)
    with (
        interpreted(races=True, order=order),
        pytest.raises(Race, match=r"in y .* at element offset") as caught,
    ):
        kernels.neighbours(x, y, 30.0)
    assert caught.value.program != caught.value.other


def test_a_tile_that_all_programs_use_is_a_race_and_a_common_flag_is_none():
    x, y = torch.linspace(-9, 9, 600), torch.zeros(600)
    with (
        interpreted(races=True),
        pytest.raises(Race, match=r"store .* stored, in tile .* offset 0$") as caught,
    ):
        kernels.scratch(x, y, 30.0)
    assert (caught.value.program, caught.value.other) == ((1, 0, 0), (0, 0, 0))
    with interpreted(races=True):
        kernels.scratch(torch.full((512,), 7.0), torch.empty(512), 30.0)
        kernels.scratch(x[:256], y[:256], 30.0)


@triton.jit
def overwriting_kernel(x, y):
    program = tl.program_id(0)
    value = tl.load(x)
    tl.store(y + program, value)
    tl.store(x, 5.0, mask=program == 2)


def test_a_store_over_what_another_program_loaded_is_a_race_unless_it_changes_nothing():
    with interpreted(races=True), pytest.raises(Race, match=r"the store .* loaded, in x ") as caught:
        overwriting_kernel[(3,)](torch.ones(1), torch.empty(3))
    assert (caught.value.program, caught.value.other) == ((2, 0, 0), (1, 0, 0))
    with interpreted(races=True):
        overwriting_kernel[(3,)](torch.full((1,), 5.0), torch.empty(3))


def test_an_autotuned_kernel_keeps_no_tensor_and_runs_the_configuration_asked_for():
    x, y = torch.ones(1200), torch.zeros(1200)
    for number, programs in enumerate((5, 2)):
        with interpreted(configuration=number) as session:
            kernels.autotuned(x, y, 30.0)
        assert session.launches[-1].programs == programs
        assert len(session.tuned["tuned_kernel"]) == 2
    assert kernels.TUNED.nargs is None


def test_programs_of_their_own_are_no_race():
    x, y = torch.linspace(-9, 9, 6000), torch.zeros(6000)
    with interpreted(races=True, order="backwards"):
        kernels.blocks(x, x, 30.0)  # in place: each program reads what it overwrites
        kernels.persistent(x, y, 30.0)
    assert bool(y.any())


@pytest.mark.parametrize("launch", [kernels.blocks, kernels.persistent])
@pytest.mark.parametrize("wide", [True, False])
def test_far_tensors_take_no_memory_and_narrow_offsets_leave_them(launch, wide):
    n = 2**31 + 66535
    with interpreted(far=True, order="ends") as session:
        x = session.tensor((n,), (1,), torch.bfloat16)
        x[-1] = 4.0
        y = torch.empty_like(x, dtype=torch.float32)
        assert (y.shape, y.dtype) == (x.shape, torch.float32)
        if not wide:
            with pytest.raises(OutOfBounds, match="offset -2147"):
                launch(x, y, 30.0, wide=False)
            return
        launch(x, y, 30.0)
        assert float(y[-1]) == float(30 * torch.tanh(torch.tensor(4.0) / 30))
        assert session.far is not None
        assert not session.far.computed


def test_a_grid_that_ends_too_early_leaves_the_rest_unwritten():
    with interpreted(far=True, order="ends") as session:
        x = session.tensor((2**31 + 66535,), (1,), torch.bfloat16)
        kernels.at_most(x, torch.empty_like(x, dtype=torch.float32), 30.0)
        assert session.far is not None
        assert session.far.missing() == (
            f"no program stores past element offset {2**28 - 1} of y (torch.float32, {2**31 + 66535} elements)"
        )


@triton.jit
def striding_kernel(y, n, tiles, B: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = tile.to(tl.int64) * B + tl.arange(0, B)
        tl.store(y + at, 1.0, mask=at < n)


@triton.jit
def sharing_kernel(y, n, share, B: tl.constexpr):
    for tile in range(share):
        at = (tl.program_id(0).to(tl.int64) * share + tile) * B + tl.arange(0, B)
        tl.store(y + at, 1.0, mask=at < n)


@triton.jit
def turning_kernel(y, n, tiles, B: tl.constexpr):
    program = tl.program_id(0)
    at = (program % 8 * tl.cdiv(tiles, 8) + program // 8).to(tl.int64) * B + tl.arange(0, B)
    tl.store(y + at, 1.0, mask=at < n)


@pytest.mark.parametrize("how", ["strides", "shares", "turns"])
def test_the_program_that_takes_the_last_elements_is_found(how):
    n, programs = 2**31 + 66535, 65535
    tiles = triton.cdiv(n, 1024)
    with interpreted(far=True, order="ends") as session:
        y = session.tensor((n,), (1,), torch.float32)
        if how == "strides":
            striding_kernel[(programs,)](y, n, tiles, B=1024)
        elif how == "shares":
            sharing_kernel[(programs,)](y, n, triton.cdiv(tiles, programs), B=1024)
        else:
            turning_kernel[(triton.cdiv(tiles, 8) * 8,)](y, n, tiles, B=1024)
    assert float(y[-1]) == 1.0


@pytest.mark.parametrize(
    ("grid", "axis"), [((1, 65536), "1 (y)"), ((1, 2, 70000), "2 (z)"), ((2**31,), "0 (x)")]
)
def test_a_grid_that_cuda_does_not_launch_is_a_fault(grid, axis):
    with interpreted(order="ends"), pytest.raises(NoLaunch, match=re.escape(f"along axis {axis}")) as caught:
        counting_kernel[grid](torch.zeros(1, dtype=torch.int32), 1, B=1)
    assert caught.value.size == grid[caught.value.axis]


@pytest.mark.parametrize("inference", [False, True])  # there composite operations come whole
def test_what_pytorch_does_to_far_tensors_has_the_form_and_nothing_else(inference):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.inference_mode(inference), interpreted(far=True) as session:
        x = session.tensor((2**16, 2**16), (2**16 + 8, 1), torch.bfloat16)
        copy = x.contiguous().float().mul_(2)
        assert (copy.shape, copy.stride(), copy.dtype) == (x.shape, (2**16, 1), torch.float32)
        assert x.reshape(-1).flatten().view(-1, 2).t().contiguous().stride() == (2**31, 1)
        assert float(x.sum()) == 0.0
        assert session.far is not None
        assert session.far.computed
        assert torch.ones(3).sum() == 3  # what is small is computed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 2**20  # KiB: a copy would take 8 GiB


def test_a_loop_that_cannot_be_cut_is_given_up():
    with interpreted(far=True, order="ends"), pytest.raises(GaveUp, match="loop"):
        endless_kernel[(1,)](torch.zeros(1), torch.zeros(1), 1)


def test_more_programs_than_there_is_time_for_are_given_up_before_they_run(budget):
    BUDGET.renew()
    x, y = torch.ones(10_000, 1), torch.zeros(10_000, 1)
    with interpreted(), pytest.raises(GaveUp, match=r"8,000 programs"):
        kernels.rows(x, y, 30.0)
    assert not bool(y.any())
    with interpreted():
        kernels.rows(x[:3], y[:3], 30.0)
    assert bool(y[:3].all())


class Rows:
    """A right kernel, one row a program, and slow here."""

    def __init__(self, softcap):
        self.softcap = softcap

    def __call__(self, x):
        y = torch.empty(x.shape, dtype=torch.float32)
        if x.numel():
            kernels.rows(x, y, self.softcap)
        return y


def interpreted_rows(softcap):
    """The same, in the interpreter."""
    return InterpretedOp(Rows(softcap))


@pytest.fixture
def cell():
    """The cell of a law, in the inference pass, and its settings."""

    def build(spec, law, profile="quick"):
        settings = Settings(caps=(17.3,), dtypes=("bf16",), profile=profile, laws=(law,))
        (found,) = [c for c in cells(spec, settings) if c.pass_ == "inference"]
        return found, settings

    return build


def test_a_slow_kernel_passes_in_part_and_says_so(cell, budget, monkeypatch):
    spec = f"{HERE}:interpreted_rows"
    monkeypatch.setattr("invariance.tiers.faults.MOST_PROGRAMS", 300)
    verdict = judge_cell(spec, *cell(spec, "reshaping"))
    assert (verdict.status, verdict.reason[:21]) == (PASS, "some cases not judged")
    assert 0 < verdict.cases < len(cases(*cell(spec, "reshaping")))


def test_a_law_about_launches_does_not_speak_of_a_formula(cell):
    verdict = judge_cell("native", *cell("native", "program_order"))
    assert (verdict.status, verdict.reason) == (NOT_APPLICABLE, NO_LAUNCHES)


@pytest.mark.parametrize(
    ("name", "law", "status"),
    [
        ("rows_as_programs", "far_offsets", PASS),
        ("rows_in_32_bits", "far_offsets", FAIL),
        ("columns_in_32_bits", "far_offsets", FAIL),
        ("grid_that_ends", "far_offsets", FAIL),
        ("blocks_along_the_second_axis", "far_offsets", FAIL),
        ("one_block_for_all", "far_offsets", FAIL),
        ("persistent_programs", "far_offsets", PASS),
        ("shares_its_scratch", "program_order", FAIL),
        ("division_by_configuration", "every_configuration", FAIL),
        ("autotuned_blocks", "every_configuration", PASS),
        ("cap_in_16_bits", "cap_resolution", FAIL),
    ],
)
def test_a_law_about_launches_judges(cell, name, law, status):
    spec = f"invariance.known_bad.strangers:{name}"
    verdict = judge_cell(spec, *cell(spec, law), shrinks=2)
    assert verdict.status == status
    assert verdict.elements > 0


def test_a_refusal_of_far_tensors_is_no_fault():
    class Refuses(Rows):
        def __call__(self, x):
            if x.numel() >= 2**31:
                raise ValueError("too large")
            return super().__call__(x)

    f = load(f"{HERE}:interpreted_rows").map(30.0, "inference")
    f.op._op = Refuses(30.0)
    with pytest.raises(NotApplicable, match="the candidate raises ValueError: too large"):
        list(launches.far_offsets(f, (torch.ones(4),), lambda *_: 0))


def test_bits_of_bool_masks_stay_bool():
    with interpreted():
        builder = triton.runtime.interpreter.interpreter_builder
        handle = triton.runtime.interpreter.TensorHandle(np.array([False]), tl.int32)
        assert builder.create_splat(tl.block_type(tl.int1, [4]), handle).data.dtype == bool


def test_a_cap_in_16_bits_says_what_should_hold(cell):
    spec = "invariance.known_bad.strangers:cap_in_16_bits"
    found = judge_cell(spec, *cell(spec, "cap_resolution"), shrinks=0).mismatch
    assert found is not None
    assert re.fullmatch(r"caps \d+ and \d+\.\d+ give different results", found.label)
    assert (found.what, found.got, found.want) == ("not as wanted", "equal results", "different results")
