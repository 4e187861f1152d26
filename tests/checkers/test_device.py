"""The device laws as far as a CPU can show them: where they stand in the plan, and what they do to tensors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from invariance import plan, run
from invariance.candidate import Map, adapt
from invariance.checkers import LAWS, NotApplicable, Pick, checker, load_laws
from invariance.checkers import accelerator as gpu
from invariance.judge import Claim
from invariance.launched import kernels_launched
from invariance.plan import Settings, cases, cells, laws
from invariance.verdict import FAIL, NOT_APPLICABLE, PASS, Cell

NAMES = {
    "another_stream", "graph_replay", "concurrent_load", "another_device", "other_current_device", "compiled",
    "beyond_int32", "poisoned_memory", "guarded_inputs", "no_host_synchronisation",
}  # fmt: skip


def test_device_laws_are_in_the_plan_of_a_device_and_in_no_other() -> None:
    known = {name for name, law in load_laws().items() if law.device}
    assert known >= NAMES
    assert not {law.id for law in laws(Settings(device="cpu"))} & known
    assert {law.id for law in laws(Settings(device="cuda:0"))} >= known


def test_the_law_of_large_tensors_has_one_case_a_pass() -> None:
    settings = Settings(device="cuda:0", laws=("beyond_int32",))
    found = cells("x", settings)
    assert [(c.pass_, c.dtype) for c in found] == [("inference", "bf16"), ("backward", "bf16")]
    (case,) = cases(found[0], settings)
    assert case.numel == 1 << 16
    assert len(set(case.x().view(torch.int16).tolist())) == 1 << 16


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_case_of_a_device_law_can_be_built(name: str) -> None:
    law = load_laws()[name]
    for pass_ in law.passes:
        for case in cases(Cell("x", name, pass_, law.dtypes[0], 30.0), Settings(device="cuda:0")):
            assert case.x().shape == case.shape


class Temporary:
    """A law for the time of a test."""

    def __init__(self, says: dict[int, str | None]) -> None:
        self.says = says

    def __call__(self, f: Map, args: tuple[Tensor, ...], pick: Pick) -> Iterator[Claim]:
        reason = self.says.get(args[0].numel())
        if reason is not None:
            raise NotApplicable(reason)
        yield Claim("itself", got=f(*args), want=f(*args))


@pytest.fixture
def temporary(request: pytest.FixtureRequest) -> Iterator[str]:
    load_laws()

    def temporary_law(f: Map, args: tuple[Tensor, ...], pick: Pick) -> Iterator[Claim]:
        """Nothing but a test."""
        yield from Temporary(request.param)(f, args, pick)

    checker("invariance", inputs="small")(temporary_law)
    yield "temporary_law"
    del LAWS["temporary_law"]


@pytest.mark.parametrize(
    ("temporary", "status", "reason"),
    [
        ({}, PASS, None),
        ({6: "too small"}, PASS, None),
        ({6: "too small", 1025: "too odd", 1: "alone"}, NOT_APPLICABLE, "alone"),
    ],
    indirect=["temporary"],
)
def test_a_law_does_not_apply_when_it_says_so_of_every_case(
    temporary: str, status: str, reason: str | None
) -> None:
    cell = Cell("native", temporary, "forward", "fp32", 30.0)
    verdict = run.judge_cell("native", cell, Settings())
    assert (verdict.status, verdict.reason) == (status, reason)
    assert (verdict.elements > 0) == (status == PASS)


@pytest.mark.parametrize("temporary", [{}, {6: "too small"}], indirect=True)
def test_a_replay_says_too_that_a_law_does_not_apply(temporary: str) -> None:
    case = plan.cases(Cell("native", temporary, "forward", "fp32", 30.0), Settings())[0]
    verdict = run.judge_text("native", temporary, "forward", case.dumps(), "cpu")
    assert verdict.status in (PASS, NOT_APPLICABLE)
    assert verdict.status != FAIL
    assert (verdict.reason == "too small") == (verdict.status == NOT_APPLICABLE)


class Event:
    """The event of a device that was faster than the host so many times."""

    def __init__(self, faster: int, given: list[int]) -> None:
        self.faster, self.given = faster, given

    def query(self) -> bool:
        return len(self.given) <= self.faster


@pytest.mark.parametrize(
    ("faster", "given"), [(0, [64]), (2, [64, 128, 256]), (99, [64, 128, 256, 512])], ids=str
)
def test_work_that_a_call_outlasted_is_doubled(faster: int, given: list[int]) -> None:
    passes: list[int] = []

    def work(number: int) -> Event:
        passes.append(number)
        return Event(faster, passes)

    assert gpu.outlasting(work, lambda: len(passes)) == len(given)
    assert passes == given


def test_changed_values_are_others_and_fit_where_they_came_from() -> None:
    rows = torch.arange(1.0, 5.0).expand(3, 4)
    gpu.distinct(rows).copy_(gpu.changed(rows))
    assert rows.tolist() == [[-4.0, -3.0, -2.0, -1.0]] * 3
    windows = torch.arange(1.0, 7.0).unfold(0, 4, 1)
    gpu.distinct(windows).copy_(gpu.changed(windows))
    assert windows.tolist() == [[-3.0, -2.0, -1.0, 4.0], [-2.0, -1.0, 4.0, 5.0], [-1.0, 4.0, 5.0, 6.0]]
    scalar = torch.tensor(0.0)
    assert torch.signbit(gpu.changed(scalar))
    assert gpu.distinct(torch.zeros(())).shape == ()


def test_bands_surround_the_values() -> None:
    view, memory = gpu.bands(torch.arange(6.0).view(2, 3).mT, float("nan"), width=4)
    assert view.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert memory[4:-4].tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    assert memory[:4].isnan().all()
    assert memory[-4:].isnan().all()


def test_poisoned_blocks_are_full_of_the_word() -> None:
    kept = gpu.poisoned_blocks([3, 6], torch.device("cpu"), -1)
    assert [t.numel() for t in kept] == [3] * 5 + [6] * 5
    assert all(t.view(torch.float16).isnan().all() for t in kept)


def test_the_cpu_launches_nothing() -> None:
    with pytest.raises(ValueError, match="not on 'cpu'"):
        kernels_launched(adapt("f", torch.tanh), 30.0, "fp32", "cpu")
