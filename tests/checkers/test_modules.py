"""What a model does to its modules: copies and moves reach a cap that is a buffer, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invariance.candidate import Candidate, adapt
from invariance.checkers import NotApplicable, load_laws
from invariance.judge import Judgement, judge
from invariance.run import arguments
from strategies.case import Case

CASE = Case((2, 3), "fp32", 30.0)


class Plain(nn.Module):
    """The cap is a Python number."""

    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.hold(float(softcap))

    def hold(self, cap: float) -> None:
        self.cap: Any = cap

    def forward(self, x: Tensor) -> Tensor:
        cap = self.cap.float() if isinstance(self.cap, Tensor) else self.cap
        return cap * torch.tanh(x.float() / cap)


class Buffered(Plain):
    def hold(self, cap: float) -> None:
        self.cap = nn.Buffer(torch.tensor(cap, dtype=torch.float32))


class Learnt(Plain):
    def hold(self, cap: float) -> None:
        self.cap = nn.Parameter(torch.tensor(cap, dtype=torch.float32), requires_grad=False)


class Kept(Buffered):
    """A buffer that no move reaches."""

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        return self


class Locked(Plain):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a lock cannot be copied")


def found(kind: Any, pass_: str) -> Judgement:
    candidate: Candidate = kind if isinstance(kind, Candidate) else adapt(kind.__name__, kind)
    f = candidate.map(CASE.cap, pass_)
    return judge(load_laws()["model_dtype"].check(f, arguments(f, CASE, "cpu"), CASE.pick))


@pytest.mark.parametrize("pass_", ["forward", "inference", "backward"])
@pytest.mark.parametrize("kind", [Plain, Kept])
def test_a_cap_that_no_move_reaches_passes(kind: Any, pass_: str) -> None:
    judged = found(kind, pass_)
    assert judged.mismatch is None
    assert judged.elements == 5 * 6


@pytest.mark.parametrize("kind", [Buffered, Learnt])
def test_a_cap_that_moves_with_the_weights_is_refused(kind: Any) -> None:
    mismatch = found(kind, "inference").mismatch
    assert mismatch is not None
    assert mismatch.label == "after .bfloat16()"


def test_the_candidate_itself_is_not_moved() -> None:
    shared = Buffered(17.3)
    shared.softcap = 17.3  # type: ignore[assignment]  # a configured instance carries its cap
    assert found(adapt("shared", shared), "inference").mismatch is not None
    assert shared.cap.dtype == torch.float32
    assert float(shared.cap) == float(torch.tensor(17.3))


@pytest.mark.parametrize(
    ("kind", "reason"), [(lambda x, cap: x, "not a torch.nn.Module"), (Locked, "a lock cannot be copied")]
)
def test_what_is_no_module_or_cannot_be_copied_is_outside_the_law(kind: Any, reason: str) -> None:
    with pytest.raises(NotApplicable, match=reason):
        found(adapt("it", kind), "inference")
