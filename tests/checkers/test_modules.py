"""What is done to models: copies, pickles and moves reach a cap that is kept in the wrong place, and no other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from invariance.candidate import Candidate, adapt
from invariance.checkers import NotApplicable, load_laws
from invariance.checkers.copies import received, sent
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


def found(kind: Any, pass_: str, law: str = "model_dtype") -> Judgement:
    candidate: Candidate = kind if isinstance(kind, Candidate) else adapt(kind.__name__, kind)
    f = candidate.map(CASE.cap, pass_)
    return judge(load_laws()[law].check(f, arguments(f, CASE, "cpu"), CASE.pick))


@pytest.mark.parametrize("pass_", ["forward", "inference", "backward"])
@pytest.mark.parametrize("kind", [Plain, Kept])
def test_a_cap_that_no_move_reaches_passes(kind: Any, pass_: str) -> None:
    judged = found(kind, pass_)
    assert judged.mismatch is None
    assert judged.elements == 5 * 6 + (6 if kind is Plain else 1)  # Kept refuses to leave meta


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


class Held:
    """An operator that is no module; the cap is an attribute."""

    def __init__(self, softcap: float = 30.0) -> None:
        self.cap = softcap

    def __call__(self, x: Tensor) -> Tensor:
        return self.cap * torch.tanh(x.float() / self.cap)

    def method(self, x: Tensor) -> Tensor:
        return self(x)


class Shallow(Held):
    """copy.copy alone forgets."""

    def __copy__(self) -> Shallow:
        return type(self)()


class Deep(Held):
    def __deepcopy__(self, memo: Any) -> Deep:
        return type(self)()


class Pickled(Held):
    """What is pickled has the cap as FP16; copies are made another way."""

    def __getstate__(self) -> dict[str, float]:
        return {"cap": float(torch.tensor(self.cap).half())}

    def __copy__(self) -> Pickled:
        return type(self)(self.cap)

    def __deepcopy__(self, memo: Any) -> Pickled:
        return type(self)(self.cap)


class Second(Held):
    """A copy is right, and one of a copy is not."""

    first = True

    def __deepcopy__(self, memo: Any) -> Second:
        copied = type(self)(self.cap if self.first else 30.0)
        copied.first = False
        return copied


class Warm(Held):
    """An attempt to copy it changes what it remembers of its cap."""

    def __init__(self, softcap: float = 30.0) -> None:
        super().__init__(softcap)
        self.known: list[float] = []

    def __call__(self, x: Tensor) -> Tensor:
        cap = self.known[0] if self.known else self.cap
        self.known[:] = [cap]
        return cap * torch.tanh(x.float() / cap)

    def __deepcopy__(self, memo: Any) -> Warm:
        self.known[:] = [30.0]
        raise TypeError("not to be copied, and changed by the attempt")

    def __reduce__(self) -> Any:
        raise TypeError("not to be copied")


class Raising(Held):
    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("not to be copied")


@pytest.mark.parametrize("pass_", ["forward", "inference", "backward"])
@pytest.mark.parametrize("kind", [Held, Plain, Buffered, Raising, Locked])
def test_operators_that_keep_their_cap_or_refuse_pass(kind: Any, pass_: str) -> None:
    judged = found(kind, pass_, "copied_operator")
    assert judged.mismatch is None
    assert judged.elements > 8


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (Shallow, "copy.copy, of a used operator"),
        (Deep, "copy.deepcopy, of a used operator"),
        (Second, "a deep copy of a deep copy, of a used operator"),
        (Pickled, "pickled and unpickled, of a used operator"),
        (Warm, "the operator, after it was copied"),
    ],
)
def test_a_copy_that_forgets_is_noticed_by_how_it_was_made(kind: Any, label: str) -> None:
    mismatch = found(kind, "inference", "copied_operator").mismatch
    assert mismatch is not None
    assert mismatch.label == label


def test_a_method_is_copied_with_what_it_belongs_to() -> None:
    candidate = Candidate("method", lambda cap: Deep(cap).method, "operator")
    mismatch = found(candidate, "inference", "copied_operator").mismatch
    assert mismatch is not None
    assert mismatch.label == "copy.deepcopy, of a used operator"


def test_of_a_function_there_is_nothing_to_copy() -> None:
    with pytest.raises(NotApplicable, match="nothing to copy"):
        found(adapt("it", lambda x, cap: x), "inference", "copied_operator")


def test_what_cannot_be_pickled_or_unpickled_is_not_sent() -> None:
    assert sent(Raising(17.3)) is None
    assert sent(lambda x: x) is None
    assert received(None) is None
    assert received(b"not a pickle") is None
    data = sent(Held(17.3))
    assert data is not None
    op = received(data)
    assert isinstance(op, Held)
    assert op.cap == 17.3


class Lost(Buffered):
    """A buffer that a checkpoint does not hold, and that no dtype reaches."""

    def hold(self, cap: float) -> None:
        self.cap = nn.Buffer(torch.tensor(cap, dtype=torch.float32), persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        before = self.cap
        super()._apply(fn, recurse)
        self.cap = self.cap if self.cap.dtype == torch.float32 else before
        return self


class InTheCheckpoint(Lost):
    def hold(self, cap: float) -> None:
        self.cap = nn.Buffer(torch.tensor(cap, dtype=torch.float32))


class NotOnMeta(Lost):
    def hold(self, cap: float) -> None:
        super().hold(cap)
        if self.cap.is_meta:
            raise RuntimeError("build me where there is memory")


def test_a_cap_that_a_model_built_on_meta_loses_is_noticed() -> None:
    mismatch = found(Lost, "inference").mismatch
    assert mismatch is not None
    assert mismatch.label == "built on meta, to_empty() and load_state_dict()"


@pytest.mark.parametrize(("kind", "elements"), [(InTheCheckpoint, 6), (NotOnMeta, 1)])
def test_one_that_a_checkpoint_brings_back_or_that_refuses_meta_passes(kind: Any, elements: int) -> None:
    judged = found(kind, "backward")
    assert judged.mismatch is None
    assert judged.elements == 5 * 6 + elements
