"""What a candidate must refuse, caps in every stretch and dtypes at every size; and that it uses the cap it takes."""

from __future__ import annotations

import pytest
import torch

from invariance.candidate import adapt
from invariance.checkers import LAWS, load_laws
from strategies.case import Case
from tests.checkers.faulty import verdict
from tests.checkers.good import PlainAutograd, WideOutput

load_laws()


def test_bad_caps_are_those_a_candidate_is_ever_given_and_only_of_constructed_candidates():
    tried = []

    class Recording(PlainAutograd):
        def __init__(self, softcap):
            tried.append(softcap)
            super().__init__(softcap)

    assert (
        verdict("bad_caps", adapt("recording", Recording), Case((4,), "fp32", 30), "forward").mismatch is None
    )
    assert all(type(cap) in (int, float) for cap in tried)
    assert len(tried) > 8
    assert LAWS["bad_caps"].applies("function") is not None
    assert LAWS["bad_caps"].applies("operator") is None


class Lenient(PlainAutograd):
    """Takes what a rule lets through, and refuses the rest as it should."""

    takes = staticmethod(lambda x: False)

    def __call__(self, x):
        return self.value(x) if self.takes(x) else super().__call__(x)


@pytest.mark.parametrize(
    ("takes", "label"),
    [
        (lambda x: x.numel() == 0, "of shape (0,)"),
        (lambda x: x.dim() == 0, "of shape ()"),
        (lambda x: x.numel() > 1000, "of shape (1025,)"),
        (lambda x: x.dtype == torch.float64 and x.dim() == 2, "torch.float64 of shape (2, 3)"),
        (lambda x: x.dtype == torch.int16, "torch.int16 of shape (4,)"),
        (lambda x: x.dtype == torch.uint16, "torch.uint16 of shape (4,)"),
        (lambda x: x.dtype == torch.float8_e5m2, "torch.float8_e5m2 of shape (4,)"),
    ],
)
def test_a_dtype_is_refused_at_every_size(takes, label):
    candidate = adapt("lenient", type("Taking", (Lenient,), {"takes": staticmethod(takes)}))
    found = verdict("bad_dtypes", candidate, Case((4,), "fp32", 30), "inference").mismatch
    assert found is not None
    assert label in found.label


@pytest.mark.parametrize(("low", "high"), [(-0.5, 0.0), (-1e6, -1000.0), (-1e-30, -1e-36), (1e50, 1e60)])
def test_no_stretch_of_bad_caps_is_overlooked(low, high):
    class Taking(PlainAutograd):
        def __init__(self, softcap):
            super().__init__(30 if low < softcap < high else softcap)

    for seed in range(3):
        case = Case((4,), "fp32", 30, seed=seed)
        assert verdict("bad_caps", adapt("taking", Taking), case, "forward").mismatch is not None


def test_the_caps_tried_do_not_depend_on_the_cap_asked_for():
    class OnlyThirty(WideOutput):
        def __init__(self, softcap):
            super().__init__(30)

    for cap in (30, 17.3):
        case = Case((4,), "bf16", cap)
        assert verdict("cap_used", adapt("thirty", OnlyThirty), case, "inference").mismatch is not None
    assert LAWS["cap_used"].applies("instance") is not None
