"""The modes that operators are served in: who takes turns in them, what a call finds there, and what is put back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invariance.candidate import Candidate, adapt
from invariance.checkers import load_laws
from invariance.plan import Settings, cases, cells
from invariance.run import Trial, explore, judge_cell, judge_text
from invariance.serving import learns, serving
from invariance.verdict import FAIL, PASS
from strategies.case import Case

HERE = "tests.invariance.test_serving"
X = torch.tensor([0.5, 3.0])


class Seeing(nn.Module):
    """Notes what a call finds."""

    seen: list[tuple[bool, bool, bool, bool]] = []  # noqa: RUF012 - of all of them

    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.cap, self.inner = softcap, nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
        self.seen.append((self.training, self.inner.training, *modes))
        return self.cap * torch.tanh(x.float() / self.cap)


class ServedWrong(Seeing):
    """Another function in eval()."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.0 if self.training else 1.5)


class WrongInInferenceMode(Seeing):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (1.5 if torch.is_inference_mode_enabled() else 1.0)


def found(pass_: str, mode: str) -> tuple[bool, bool, bool, bool]:
    with serving(adapt("seeing", Seeing), pass_, mode) as candidate:
        f = candidate.map(30.0, pass_)
        f.at(20.0)(X, *([torch.ones(2)] if pass_ == "backward" else []))
    return Seeing.seen[-1]


def test_a_call_finds_the_mode_of_its_case() -> None:
    assert found("inference", "") == (True, True, False, False)
    assert found("inference", "eval") == (False, False, False, False)
    assert found("inference", "inference_mode") == (False, False, True, False)
    assert found("forward", "eval") == (False, False, False, True)
    assert found("backward", "eval") == (False, False, False, True)
    assert not torch.is_inference_mode_enabled()


def test_another_thread_finds_it_too() -> None:
    with serving(adapt("seeing", Seeing), "inference", "inference_mode") as candidate:
        f = candidate.map(30.0, "inference")
        with ThreadPoolExecutor(1) as pool:
            y = pool.submit(f, X.clone()).result()
    assert Seeing.seen[-1] == (False, False, True, False)
    assert y.is_inference()


@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_no_graph_is_asked_for_in_inference_mode(pass_: str) -> None:
    with (
        pytest.raises(ValueError, match=f"for the pass inference, not {pass_}"),
        serving(adapt("it", Seeing), pass_, "inference_mode"),
    ):
        pass


def test_a_module_that_is_handed_out_again_is_put_back_also_after_an_error() -> None:
    shared = Seeing(30.0)
    shared.inner.eval()
    candidate = Candidate("shared", lambda cap: shared, "operator")

    def fails_when_served() -> None:
        with serving(candidate, "inference", "inference_mode") as served:
            served.map(30.0, "inference")
            assert not shared.training
            raise KeyError

    with pytest.raises(KeyError):
        fails_when_served()
    assert shared.training
    assert not shared.inner.training


def test_what_learns_is_a_module_with_parameters_that_do() -> None:
    layer = nn.Linear(2, 2)
    assert learns(layer)
    assert learns(layer.forward)
    assert not learns(Seeing(30.0))
    assert not learns(layer.requires_grad_(False))
    assert not learns(lambda x: x)


def modes(law: str, pass_: str, profile: str = "default") -> list[list[str]]:
    settings = Settings(dtypes=("fp32", "bf16"), profile=profile, laws=(law,))
    every = [cell for cell in cells("it", settings) if cell.pass_ == pass_]
    return [[case.mode for case in cases(cell, settings)] for cell in every]


@pytest.mark.parametrize("law", ["slicing", "exact_value", "no_aliasing", "many_calls", "cap_used"])
def test_every_cell_of_inference_is_judged_in_either_mode(law: str) -> None:
    for of_a_cell in modes(law, "inference"):
        assert set(of_a_cell) == {"", "inference_mode"}
        assert abs(of_a_cell.count("") - len(of_a_cell) / 2) <= 0.5


def test_cells_begin_in_different_modes_so_that_no_layout_is_always_in_one() -> None:
    assert {
        of_a_cell[0] for law in ("slicing", "batch", "layout") for of_a_cell in modes(law, "inference")
    } == {
        "",
        "inference_mode",
    }


def test_modules_are_judged_in_eval_where_a_graph_is_recorded() -> None:
    for pass_ in ("forward", "backward"):
        assert all(set(of_a_cell) == {"", "eval"} for of_a_cell in modes("slicing", pass_))


def test_a_law_that_enters_the_modes_itself_takes_no_turns() -> None:
    laws = load_laws()
    for name in ("grad_mode", "traced"):
        assert laws[name].as_built
        assert {mode for of_a_cell in modes(name, "inference") for mode in of_a_cell} == {""}


def test_a_failure_replays_in_its_mode_and_a_case_without_one_is_as_built() -> None:
    spec = f"{HERE}:WrongInInferenceMode"
    settings = Settings(caps=(30.0,), dtypes=("fp32",), profile="quick", laws=("exact_value",))
    (cell,) = [cell for cell in cells(spec, settings) if cell.pass_ == "inference"]
    verdict = judge_cell(spec, cell, settings)
    assert verdict.status == FAIL
    assert verdict.case is not None
    case = Case.loads(verdict.case)
    assert case.mode == "inference_mode"
    assert '"mode":"inference_mode"' in str(verdict)
    assert judge_text(spec, "exact_value", "inference", verdict.case, "cpu").status == FAIL
    plain = case.with_knobs(mode=None).dumps()
    assert judge_text(spec, "exact_value", "inference", plain, "cpu").status == PASS


def test_a_fault_of_eval_alone_is_shrunk_to_eval() -> None:
    spec = f"{HERE}:ServedWrong"
    settings = Settings(caps=(30.0,), dtypes=("fp32",), profile="quick", laws=("exact_value",))
    (cell,) = [cell for cell in cells(spec, settings) if cell.pass_ == "inference"]
    verdict = judge_cell(spec, cell, settings)
    assert verdict.case is not None
    assert Case.loads(verdict.case).mode == "eval"


def test_exploration_draws_the_mode() -> None:
    settings = Settings(caps=(30.0,), dtypes=("fp32",), profile="quick")
    wrong = explore(f"{HERE}:WrongInInferenceMode", "exact_value", "inference", settings, (30.0,), 25).verdict
    assert wrong is not None
    assert wrong.case is not None
    assert Case.loads(wrong.case).mode == "inference_mode"


def test_a_mode_that_the_pass_has_not_is_said() -> None:
    trial = Trial(adapt("it", Seeing), load_laws()["slicing"], "backward", "cpu")
    _, reason = trial.judge(Case((3,), "fp32", 30.0, knobs=(("mode", "inference_mode"),)))
    assert reason is not None
    assert "for the pass inference" in reason


@pytest.mark.parametrize("mode", ["", "train", 1])
def test_a_mode_that_there_is_not_is_no_case(mode: Any) -> None:
    with pytest.raises(ValueError, match="knob mode is"):
        Case((3,), "fp32", 30.0, knobs=(("mode", mode),))
