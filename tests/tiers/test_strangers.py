"""Somebody else's Triton kernel, pointed at by import path: judged in the interpreter, its code told, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from invariance.candidate import CandidateNotLoadable, load
from invariance.offered import ONE_A_VENDOR
from invariance.probing import probed
from invariance.tiers.faults import OutOfBounds
from invariance.tiers.strangers import code_of, launches_of

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def stranger(x, y, cap, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, cap * (1 - 2 / (tl.exp(2 * value / cap) + 1)), mask=at < n)


class Right:
    beyond = 0

    def __init__(self, softcap):
        self.cap = softcap

    def __call__(self, x):
        y = torch.empty_like(x, dtype=torch.float32)
        n = x.numel()
        stranger[(triton.cdiv(n, 256),)](x.contiguous(), y, self.cap, n + self.beyond, B=256, num_warps=2)
        return y


class Beyond(Right):
    beyond = 1


class GpuOnly(Right):
    def __call__(self, x):
        if x.device.type != "cuda":
            raise RuntimeError("give me a GPU\\nplease")
        return super().__call__(x)
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "stranger.py"
    path.write_text(KERNEL, "utf-8")
    return f"interpreted:{path}"


def test_a_stranger_runs_in_the_interpreter(spec: str) -> None:
    candidate = load(f"{spec}:Right")
    x = torch.tensor([-3.0, 0.5, 40.0])
    y = candidate.map(20.0, "inference")(x)
    assert torch.allclose(y, 20 * torch.tanh(x / 20), atol=1e-5)
    assert candidate.convention == "operator"
    assert candidate.name == candidate.spec == f"{spec}:Right"


def test_an_access_outside_is_what_its_cells_say(spec: str) -> None:
    candidate = load(f"{spec}:Beyond")
    with pytest.raises(Exception, match="outside x") as caught:
        candidate.map(20.0, "inference")(torch.ones(300))
    assert isinstance(caught.value.__cause__, OutOfBounds)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("GpuOnly", "called on a CPU tensor it raises RuntimeError: give me a GPU$"),
        ("torch", "takes no cap|not a class"),
    ],
)
def test_what_cannot_be_seen_is_not_applicable(spec: str, name: str, reason: str) -> None:
    with pytest.raises(CandidateNotLoadable, match=reason):
        load(f"{spec}:{name}")


def test_a_formula_launches_nothing() -> None:
    with pytest.raises(CandidateNotLoadable, match="not applicable: its call launches no Triton kernel"):
        load("interpreted:native")


def test_there_is_no_interpreter_on_a_device(spec: str) -> None:
    with pytest.raises(CandidateNotLoadable, match="for the CPU, not for cuda:0"):
        load(f"{spec}:Right", "cuda:0")


def test_its_code_is_told_for_each_vendor(spec: str) -> None:
    factory = load(f"{spec}:Right").factory
    facts = [one for target in ONE_A_VENDOR for one in code_of(factory, target)]
    assert [(one["kernel"], one["target"]) for one in facts] == [
        ("stranger", target) for target in ONE_A_VENDOR
    ]
    assert all(one["approximate_division"] and one["spills"] == 0 for one in facts)
    assert not any(one["approximate_tanh"] or one["vector_access"] for one in facts)
    assert not any(one["compiled_anew_for_every_cap"] for one in facts)


def test_a_cap_that_is_a_constant_of_the_code_is_told(tmp_path: Path) -> None:
    path = tmp_path / "constant.py"
    path.write_text(KERNEL.replace("stranger(x, y, cap, n,", "stranger(x, y, cap: tl.constexpr, n,"), "utf-8")
    (facts,) = code_of(load(f"interpreted:{path}:Right").factory, "sm_90")
    assert facts["compiled_anew_for_every_cap"]


def test_a_compiler_that_ends_its_process_costs_one_target(spec: str, tmp_path: Path) -> None:
    """Triton 3.6's does so for AMD at assembly of NVIDIA; the candidate is judged nevertheless."""
    ending = """
import os
compile_for = triton.compile
triton.compile = lambda source, target, **rest: (
    os._exit(1) if target.backend == "hip" else compile_for(source, target=target, **rest)
)
"""
    with (tmp_path / "stranger.py").open("a", encoding="utf-8") as file:
        file.write(ending)
    found = probed(f"{spec}:Right", "cpu", (30.0,), ("fp32",), 60.0)
    nvidia, amd = found["code"]
    assert (nvidia["target"], nvidia["kernel"]) == ("sm_90", "stranger")
    assert amd == {
        "kernel": "every kernel",
        "target": "gfx942",
        "does_not_compile": "the process exited with status 1",
    }
    assert found["substitutions"]


def test_a_launch_tells_what_a_gpu_would_compile(spec: str) -> None:
    (launch,) = launches_of(load(f"{spec}:Right").factory)
    seen = launch.compiled_as
    assert seen is not None
    assert dict(seen.signature) == {"x": "*fp32", "y": "*fp32", "cap": "fp32", "n": "i32", "B": "constexpr"}
    assert (dict(seen.constants), dict(seen.options)) == ({"B": 256}, {"num_warps": 2})
