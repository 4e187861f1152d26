"""What a fresh process computes, at several caps and by an operator that was sent to it."""

from __future__ import annotations

import pytest
import torch

from invariance import process
from invariance.candidate import PASSES, load
from invariance.checkers import load_laws
from invariance.checkers.calls import results
from invariance.checkers.copies import sent
from strategies.case import Case
from tests.checkers.faulty import verdict

load_laws()

KERNELS = """
import torch

def good(x, cap):
    return (cap * torch.tanh(x.float() / cap)).to(x.dtype)

class FirstCapSticks:
    cap = None
    def __init__(self, softcap):
        self.softcap = softcap
    def __call__(self, x):
        if type(self).cap is None:
            type(self).cap = self.softcap
        return good(x, type(self).cap)

class SecondCapSticks:
    seen = []
    def __init__(self, softcap):
        self.softcap = softcap
    def __call__(self, x):
        if self.softcap not in self.seen:
            self.seen.append(self.softcap)
        return good(x, self.seen[min(self.seen.index(self.softcap), 1)])
"""


@pytest.fixture
def kernels(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return path


FOUR = Case((4,), "bf16", 20.0, values="transition")


@pytest.mark.parametrize("pass_", PASSES)
def test_fresh_process_passes_a_good_kernel_and_compares_it_at_three_caps(kernels, pass_):
    found = verdict("fresh_process", load(f"{kernels}:good"), FOUR, pass_)
    assert found.mismatch is None
    assert found.elements == 3 * 1025


@pytest.mark.parametrize("pass_", ["inference", "backward"])
@pytest.mark.parametrize("kernel", ["FirstCapSticks", "SecondCapSticks"])
def test_fresh_process_catches_a_cap_that_sticks(kernels, kernel, pass_):
    found = verdict("fresh_process", load(f"{kernels}:{kernel}"), FOUR, pass_)
    assert found.mismatch is not None
    assert "cap" in found.mismatch.label


def test_a_crash_of_the_fresh_process_is_an_error_and_no_pass(kernels):
    kernels.write_text("import os\n\ndef crash(x, cap):\n    return x if __name__ in () else os._exit(3)\n")
    with pytest.raises(RuntimeError, match="status 3"):
        process.fresh(
            "invariance.checkers.calls:results",
            spec=f"{kernels}:crash",
            device="cpu",
            pass_="inference",
            caps=(20.0,),
            given=[("float32", (1,), b"\0\0\0\0")],
            pickles=[None],
        )


def test_results_are_in_the_order_of_the_caps(kernels):
    one = ("float32", (1,), b"\0\0\x80\x3f")
    both = results(f"{kernels}:good", "cpu", "inference", (1.0, 30.0), [one], [None, None])
    values = [torch.frombuffer(bytearray(raw), dtype=torch.float32).item() for (_, _, raw), _ in both]
    assert values == pytest.approx([0.76159416, 0.99963], rel=1e-5)
    assert [other for _, other in both] == [None, None]


def test_an_operator_that_was_sent_answers_beside_the_one_that_is_built(kernels):
    one = ("float32", (1,), b"\0\0\x80\x3f")
    pickles = [sent(torch.nn.Threshold(0.5, 7.0)), sent(torch.nn.Threshold(2.0, 7.0)), b"no pickle"]
    answers = results(f"{kernels}:good", "cpu", "inference", (1.0, 20.0, 30.0), [one], pickles)
    others = [
        other and torch.frombuffer(bytearray(other[2]), dtype=torch.float32).item() for _, other in answers
    ]
    assert others == [1.0, 7.0, None]
