"""The laws read off the intermediate code hold for the shipped kernels, and each can be broken."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from invariance.process import Job, run_job
from invariance.tiers.codegen import LAWS, NUM_WARPS, TARGETS, DoesNotCompile, inspect, signature_of
from invariance.tiers.complaints import read, standard_error
from softcap import kernels, triton_op

Mutate = Callable[..., ModuleType]
FORWARD, BACKWARD = kernels.softcap_forward_kernel, kernels.softcap_backward_kernel

SHIPPED = "libdevice.tanh(_quotient(x.to(tl.float32), c, reciprocal))"
APPROXIMATE = (
    "tl.inline_asm_elementwise('tanh.approx.f32 $0, $1;', '=f,f', [tl.div_rn(x.to(tl.float32), c)], "
    "dtype=tl.float32, is_pure=True, pack=1)"
)
RECIPROCAL = (
    "tl.inline_asm_elementwise('rcp.approx.f32 $0, $1;', '=f,f', [c], dtype=tl.float32, is_pure=True, pack=1)"
)


def broken(kernel: Any, *, dtype: str = "bf16", target: str = "sm_90", **options: Any) -> set[str]:
    facts = inspect(kernel, signature_of(kernel, dtype), target=target, **options)
    return {name for name, holds in LAWS.items() if not holds(facts)}


@pytest.fixture(autouse=True, scope="module")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("kernel", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_the_shipped_kernels_hold_every_law(kernel: Any, target: str) -> None:
    assert broken(kernel, target=target) == set()


@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
@pytest.mark.parametrize("kernel", [FORWARD, BACKWARD], ids=["forward", "backward"])
def test_every_dtype_holds_every_law(kernel: Any, dtype: str) -> None:
    assert broken(kernel, dtype=dtype, target="sm_89") == set()


@pytest.mark.parametrize(
    ("edits", "laws"),
    [
        ([(f"c * {SHIPPED}", "c * libdevice.tanh(x.to(tl.float32) / c)")], {"precise_division"}),
        ([(f"c * {SHIPPED}", "c * libdevice.tanh(libdevice.fast_dividef(x.to(tl.float32), c))")], {"precise_division"}),
        ([(f"c * {SHIPPED}", f"c * libdevice.tanh(x.to(tl.float32) * {RECIPROCAL})")], {"precise_division"}),
        ([("tl.program_id(0).to(tl.int64) * BLOCK", "tl.program_id(0) * BLOCK")], {"offsets_64bit"}),
        ([("tl.program_id(0).to(tl.int64) * BLOCK", "(tl.program_id(0) * BLOCK).to(tl.int64)")], {"offsets_64bit"}),
        ([("y_ptr, softcap: tl.float32", "y_ptr, softcap: tl.constexpr")], {"cap_is_runtime", "one_variant"}),
        ([("c = tl.cast(softcap, tl.float32)", "c = tl.cast(30.0, tl.float32)")], {"cap_is_runtime"}),
        ([("n: tl.int64", "n"), ('@triton.jit(do_not_specialize=["n"])', "@triton.jit")],
         {"one_variant"}),
        ([("offsets = tl.max_contiguous(start + tl.arange(0, BLOCK), 4)",
           "offsets = start + 2 * tl.arange(0, BLOCK)")],
         {"offsets_64bit", "vector_access"}),
        ([("if start + BLOCK <= n:", "if start + BLOCK < 0:")], {"vector_access"}),
    ],
    ids=["division", "fast division", "reciprocal", "int32", "late int64", "constexpr cap", "written cap",
         "specialised n", "strided", "masked"],
)  # fmt: skip
def test_each_law_is_broken_by_a_mutant(edits: list[tuple[str, str]], laws: set[str], mutate: Mutate) -> None:
    assert broken(mutate(*edits).softcap_forward_kernel) == laws


def test_an_approximate_tanh_is_seen(mutate: Mutate) -> None:
    mutant = mutate((f"c * {SHIPPED}", f"c * {APPROXIMATE}"))
    assert broken(mutant.softcap_forward_kernel) == {"no_approximate_tanh"}


def test_an_unknown_target_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"unknown target 'sm_1'; known: sm_80, .*gfx950"):
        inspect(FORWARD, signature_of(FORWARD, "fp32"), target="sm_1")


def test_the_operator_is_launched_as_it_is_judged() -> None:
    assert triton_op.NUM_WARPS in NUM_WARPS.values()
    assert triton_op.ENABLE_FP_FUSION is False
    assert {target.backend for target in TARGETS.values()} == set(NUM_WARPS)


def refusal_of(module: str, target: str) -> tuple[str, str]:
    """A job: how the compiler refuses the module's kernel, and what it left on the terminal."""
    mutant = importlib.import_module(module)
    with standard_error() as terminal:
        with pytest.raises(DoesNotCompile) as caught:
            broken(mutant.softcap_forward_kernel, target=target)
        return str(caught.value), read(terminal)


def test_what_the_compiler_says_goes_into_the_failure_and_not_to_the_terminal(
    mutate: Mutate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = mutate((f"c * {SHIPPED}", f"c * {APPROXIMATE}"))
    for folder in (tmp_path, Path(__file__).parent):
        monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    job = Job(f"{Path(__file__).stem}:refusal_of", {"module": mutant.__name__, "target": "gfx942"}, 60.0)
    for _ in range(2):  # again, too: what LLVM made of it after the error is not kept for the next one
        outcome = run_job(job)
        if outcome.kind == "crashed":  # Triton 3.6's LLVM ends the process at assembly that it does not know
            assert outcome.reason == "the process exited with status 1"
            continue
        assert outcome.kind == "done", outcome.failure
        message, terminal = outcome.value
        assert "could not allocate output register" in message
        assert terminal == ""
    assert not (tmp_path / "cache").exists()  # nor for a launch


def test_a_kernel_that_the_front_end_refuses_says_which_line(mutate: Mutate) -> None:
    mutant = mutate(("z = tl.div_rn(x, c)", "z = tl.no_such_division(x, c)"))
    with pytest.raises(DoesNotCompile, match="has no attribute 'no_such_division'"):
        broken(mutant.softcap_forward_kernel, target="gfx942")  # where the kernels divide


def test_standard_error_is_the_terminal_again_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    broken(FORWARD, dtype="fp32")
    os.write(2, b"still here")
    assert capfd.readouterr().err == "still here"
