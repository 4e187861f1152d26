"""All inputs of a cap at once: the same verdict and the same worst error as the certificate of the sweep."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from invariance.candidate import adapt
from invariance.fuzz import every, rounds
from invariance.fuzz.again import shrunk_cap
from invariance.fuzz.asked import Asked
from invariance.fuzz.rounds import Judged, Subject
from invariance.sweep.api import sweep
from invariance.sweep.subject import subject
from strategies.campaign import CapRange

PLANTED = Path(__file__).with_name("planted.py")


@pytest.fixture
def small(monkeypatch):
    """BF16 stands in for FP32: the same engine, 2^16 inputs."""
    monkeypatch.setattr(
        every, "subject", lambda c, cap, _, pass_, device: subject(c, cap, "bf16", pass_, device)
    )


def right(x, cap):
    return cap * torch.tanh(x.float() / cap)


def one_wrong(x, cap):
    y = right(x, cap)
    return torch.where(x == -1.2421875, y + 1, y)


def test_a_right_kernel_gives_its_worst_error(small):
    seen = every.every_fp32(adapt("right", right), 17.3, "cpu")
    certificate = sweep(adapt("right", right), 17.3, "bf16")
    assert (seen.inputs, seen.wrong, seen.first) == (65536, 0, ())
    assert (seen.error, seen.at) == (certificate.worst.error, certificate.worst.pattern)


def test_one_wrong_input_of_all_is_named(small):
    seen = every.every_fp32(adapt("one", one_wrong), 2.0, "cpu")
    assert (seen.wrong, seen.first) == (1, (0x3F9F,))
    judged = Judged(Asked(2.0))
    rounds._take_every(judged, seen)
    (broken,) = judged.broken
    assert (broken.law, broken.dtype, broken.inputs) == ("exact_value", "fp32", (0x3F9F,))
    assert (broken.wrong, broken.total) == (1, 65536)
    assert judged.elements == 65536


def test_an_input_that_no_sample_holds_is_looked_at_again(tmp_path):
    (tmp_path / "k.py").write_text(
        "import torch\n"
        "def one(x, cap):\n"
        "    y = cap * torch.tanh(x / cap)\n"
        "    return torch.where(x.float() == 1.23456789, y + 1, y)\n"
    )
    broken = rounds.Broken("exact_value", "forward", "fp32", Asked(30.0), inputs=(0x3F9E0652,))
    look = Subject(f"{tmp_path}/k.py:one", dtypes=("fp32",), passes=("forward",))
    seen = shrunk_cap(look, broken, CapRange(16.0, 64.0))
    assert seen is not None
    assert (seen.element.x, seen.asked.cap) == (0x3F9E0652, 16.0)
    assert shrunk_cap(look, rounds.Broken("exact_value", "forward", "fp32", Asked(30.0)), CapRange()) is None


@pytest.mark.gpu
def test_on_a_device_it_agrees_with_the_certificate():
    for spec, wrong in (("native", False), (f"{PLANTED}:wrong_at_powers_of_two", True)):
        seen = every.every_fp32(rounds.candidate_of(Subject(spec, "cuda")), 2.0, "cuda")
        certificate = sweep(spec, 2.0, device="cuda")
        assert seen.inputs == certificate.inputs == 2**32
        assert bool(seen.wrong) is wrong
        assert seen.wrong == certificate.count("violations")
        assert wrong or math.isclose(seen.error, certificate.worst.error, rel_tol=1e-3)
