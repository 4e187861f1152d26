"""The instruments can fail too: judge, laws that yield nothing or raise, oracles, shrinker, report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from invariance import run
from invariance.candidate import Candidate, Map, adapt
from invariance.checkers import LAWS, load_laws
from invariance.judge import Claim, judge
from invariance.known_bad.kernel import Kernel, capped
from invariance.plan import Settings
from invariance.report.model import Report
from invariance.verdict import FAIL, NOT_RUN, PASS, Cell, Verdict
from oracles import exact, fp64
from oracles.rounding import neighbour
from oracles.truth import Truth
from strategies.case import Case
from strategies.shrink import shrink

ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("got", "want", "said"),
    [
        (torch.tensor([0.0]), torch.tensor([-0.0]), "differ in bits"),
        (torch.tensor([-0.0]), torch.tensor([0.0]), "differ in bits"),
        (torch.tensor([torch.nan]), torch.tensor([1.0]), "differ in bits"),
        (torch.tensor([1.0]), torch.tensor([torch.nan]), "differ in bits"),
        (ONES.double(), ONES, "has another dtype"),
        (ONES.bfloat16(), ONES.half(), "has another dtype"),
        (ONES.view(3, 1), ONES, "has another shape"),
        (ONES[:0], ONES, "has another shape"),
        (ONES.to("meta"), ONES, "is on another device"),
        (1.0, ONES, "is not a tensor"),
        (None, ONES, "is not a tensor"),
        (1, True, "not as wanted"),
        ((2, 3), [2, 3], "not as wanted"),
    ],
    ids=lambda value: str(value).replace("\n", " ")[:30],
)
def test_the_judge_sees_every_difference(got: object, want: object, said: str) -> None:
    found = judge([Claim("it", got, want)])
    assert found.mismatch is not None
    assert said in found.mismatch.what


def test_the_judge_takes_any_nan_for_a_nan() -> None:
    other = torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert judge([Claim("it", other, torch.tensor([torch.nan]))]).mismatch is None


@pytest.mark.parametrize("at", [0, 123_456, 999_999])
def test_one_element_in_a_million_is_found(at: int) -> None:
    want = torch.linspace(-5.0, 5.0, 1_000_000)
    got = want.clone()
    got[at] = torch.nextafter(got[at], torch.tensor(9.0))
    found = judge([Claim("it", got, want)]).mismatch
    assert found is not None
    assert (found.flat, found.wrong, found.total, found.ulps) == (at, 1, 1_000_000, 1.0)


@pytest.mark.parametrize(("got", "want"), [(-1.0, 1.0), (0.0, -0.0)])
def test_a_wrong_sign_is_no_number_of_ulps(got: float, want: float) -> None:
    found = judge([Claim("it", torch.tensor([got]), torch.tensor([want]))]).mismatch
    assert found is not None
    assert (found.what, found.ulps) == ("differ in bits", None)


def test_a_later_claim_counts_too() -> None:
    claims = [Claim("first", ONES, ONES), Claim("second", ONES, 2 * ONES)]
    found = judge(claims).mismatch
    assert found is not None
    assert found.label == "second"


def judged(monkeypatch: pytest.MonkeyPatch, check: object, kernel: object = Kernel) -> Verdict:
    """The verdict of a cell of `exact_value` with its checker replaced."""
    law = replace(load_laws()["exact_value"], check=check)
    monkeypatch.setitem(LAWS, "exact_value", law)
    candidate: Candidate = adapt("mine", kernel)
    monkeypatch.setattr(run, "loaded", lambda *_: candidate)
    settings = Settings(caps=(17.3,), dtypes=("fp32",), profile="quick", laws=("exact_value",))
    return run.judge_cell("mine", Cell("mine", "exact_value", "forward", "fp32", 17.3), settings)


def test_a_law_that_yields_nothing_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, lambda f, args, pick: iter(()))
    assert found.status == FAIL
    assert "compared nothing" in str(found)


def test_a_checker_that_raises_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(f: object, args: object, pick: object) -> Iterator[Claim]:
        yield Claim("fine", 1, 1)
        raise ZeroDivisionError("in the law")

    found = judged(monkeypatch, check)
    assert found.status == FAIL
    assert "ZeroDivisionError: in the law" in str(found)


@pytest.mark.parametrize("where", ["the law", "the candidate"])
def test_after_an_error_the_device_is_asked_whether_it_lives(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def check(f: Map, args: tuple[Tensor, ...], pick: object) -> Iterator[Claim]:
        yield Claim("it", f(*args), f(*args))
        raise ZeroDivisionError

    class Raising:
        def __init__(self, softcap: float) -> None:
            self.softcap = softcap

        def __call__(self, x: Tensor) -> Tensor:
            raise RuntimeError("CUDA error: misaligned address")

    asked: list[str] = []
    monkeypatch.setattr(run.process, "leave_a_lost_device", asked.append)
    found = judged(monkeypatch, check, Kernel if where == "the law" else Raising)
    assert found.status == FAIL
    assert asked[0] == "cpu"


def test_an_honest_law_passes_in_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judged(monkeypatch, load_laws()["exact_value"].check).status == PASS


X = torch.tensor([0.3, 5.0, -17.0, 40.0, 170.0])


def test_an_oracle_off_by_one_ulp_is_told_from_the_other_one() -> None:
    for value in X.tolist():
        enclosure = exact.forward(value, 17.3)
        right = fp64.forward(torch.tensor([value]), 17.3)
        bound = Fraction(float(Truth.of(torch.tensor([value]), 17.3).error[0]))
        assert enclosure.lo - bound <= Fraction(float(right)) <= enclosure.hi + bound
        shifted = right * (1 + 2.0**-23)
        assert not enclosure.lo - bound <= Fraction(float(shifted)) <= enclosure.hi + bound


@pytest.mark.parametrize("steps", [7, -7])
def test_a_result_past_the_rule_is_refused_and_one_inside_is_not(steps: int) -> None:
    truth = Truth.of(X[:3], 17.3)
    nearest = truth.value.to(torch.float32)
    assert judge([Claim("it", neighbour(nearest, steps), truth, "ulp")]).mismatch is not None
    assert judge([Claim("it", neighbour(nearest, steps // 2), truth, "ulp")]).mismatch is None


def test_a_shrunk_case_still_fails_and_is_small() -> None:
    def fails(case: Case) -> bool:
        return bool((case.x().float().abs() > 20.0).any())

    large = Case((257, 3), "fp32", 17.3, values="mixed", seed=3)
    assert fails(large)
    small = shrink(large, fails, budget=200)
    assert fails(small)
    assert small.numel == 1


def test_a_shrinker_does_not_believe_a_case_that_passes() -> None:
    only = Case((257, 3), "fp32", 17.3, values="mixed", seed=3)
    assert shrink(only, lambda case: case == only, budget=200) == only


def one_pattern(softcap: float) -> Kernel:
    """Wrong for one magnitude of BF16."""

    def forward(x: Tensor, c: float) -> Tensor:
        return torch.where((x.view(torch.int16) & 0x7FFF) == 0x4123, 2.0, 1.0) * capped(x, c)

    return Kernel(softcap, forward)


def test_one_input_in_65536_shrinks_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = adapt("mine", one_pattern)
    monkeypatch.setattr(run, "loaded", lambda *_: candidate)
    settings = Settings(caps=(17.3,), dtypes=("bf16",), profile="quick")
    found = run.judge_cell("mine", Cell("mine", "exact_value", "inference", "bf16", 17.3), settings)
    assert found.case is not None
    assert Case.loads(found.case).values in ((0x4123,), (0xC123,))


@pytest.mark.parametrize(
    ("statuses", "verdict", "exit_status"),
    [((PASS, PASS), PASS, 0), ((PASS, FAIL), FAIL, 1), ((PASS, NOT_RUN), FAIL, 1), ((), "incomplete", 1)],
)
def test_a_report_hides_nothing(statuses: tuple[str, ...], verdict: str, exit_status: int) -> None:
    cells = [Cell("mine", f"law{i}", "forward", "fp32", 30.0) for i in range(len(statuses))]
    verdicts = tuple(Verdict(cell, "FI", status, 1, 1) for cell, status in zip(cells, statuses, strict=True))
    report = Report(Settings(), ("mine",), verdicts, (), {})
    assert (report.verdict, report.exit_status) == (verdict, exit_status)
    assert len(report.as_json()["failures"]) == statuses.count(FAIL)


def test_a_mismatch_among_some_elements_is_named_by_its_place_among_all() -> None:
    where = torch.tensor([[False, True, False], [True, False, True]])
    got, want = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 4.0])
    found = judge([Claim("it", got, want, where=where)]).mismatch
    assert found is not None
    assert (found.index, found.flat, found.got) == ((1, 2), 5, "3.0 (0x40400000)")
