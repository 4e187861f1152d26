"""Which backend is chosen, what is passed over and said about it, and the stable names."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from softcap import NativeFinalLogitSoftcapOp, OpBackend, kernel_registry
from softcap.registry import PLATFORMS, STABLE_NAMES, KernelRegistry, load_path, platform_of, registered

NATIVE = "softcap.reference:NativeFinalLogitSoftcapOp"
TRITON = "softcap.triton_op:TritonFinalLogitSoftcapOp"
OP = "final_logit_softcap"


@pytest.mark.parametrize(
    ("platform", "backends"),
    [("cuda", ["triton", "native"]), ("rocm", ["triton", "native"]), ("cpu", ["native"]), ("musa", ["native"]),
     ("npu", ["native"])],
)  # fmt: skip
def test_platform_order_is_the_specification(platform: str, backends: list[str]) -> None:
    assert [backend.value for backend in PLATFORMS[platform]] == backends


def test_cpu_gets_the_reference_at_the_default_cap() -> None:
    op = kernel_registry.get_op(OP, device=torch.device("cpu"))
    assert (type(op), op.softcap) == (NativeFinalLogitSoftcapOp, 30.0)
    assert kernel_registry.resolve(OP, device="cpu").backend is OpBackend.NATIVE


def test_gpu_gets_triton_without_a_gpu_being_touched() -> None:
    resolution = kernel_registry.resolve(OP, device="cuda:0")
    assert (resolution.backend, resolution.rejected) == (OpBackend.TRITON, ())
    assert registered(OP, "cuda")(softcap=7).softcap == 7.0


def test_hip_is_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert platform_of("cuda") == "rocm"


@pytest.mark.parametrize("broken", ["softcap.not_there:Op", "softcap.reference:NotThere", "unbuildable:Op"])
def test_a_backend_that_cannot_be_had_is_passed_over_with_a_warning(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "unbuildable", SimpleNamespace(Op=Unbuildable))
    registry = KernelRegistry({"op": {OpBackend.TRITON: broken, OpBackend.NATIVE: NATIVE}})
    with pytest.warns(RuntimeWarning, match="backend triton passed over"):
        resolution = registry.resolve("op", device="cuda")
    assert resolution.op_class is NativeFinalLogitSoftcapOp
    assert [backend for backend, _ in resolution.rejected] == [OpBackend.TRITON]


class Unbuildable:
    def __init__(self) -> None:
        raise OSError("no driver")


def test_no_backend_left_is_an_error_with_the_reasons() -> None:
    registry = KernelRegistry({"op": {OpBackend.NATIVE: "softcap.not_there:Op"}})
    with pytest.warns(RuntimeWarning), pytest.raises(RuntimeError, match="native: ModuleNotFoundError"):
        registry.get_op("op", device="cpu")


def test_unknown_operators_and_devices_list_the_known() -> None:
    with pytest.raises(ValueError, match=r"unknown operator 'softcap'; known: final_logit_softcap"):
        kernel_registry.get_op("softcap", device="cpu")
    with pytest.raises(ValueError, match="cuda, rocm, musa, cpu, npu"):
        kernel_registry.get_op(OP, device="meta")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("final_logit_softcap.native", NATIVE),
        ("final_logit_softcap.triton", TRITON),
        ("rl_engine.reference.activation:NativeFinalLogitSoftcapOp", NATIVE),
        ("rl_engine.backends.shared.triton.activation:TritonFinalLogitSoftcapOp", TRITON),
        ("rl_engine.kernels.ops.pytorch.activation:NativeFinalLogitSoftcapOp", NATIVE),
        ("rl_engine.kernels.ops.triton.activation:TritonFinalLogitSoftcapOp", TRITON),
    ],
)
def test_the_specification_paths_lead_to_the_operators_of_today(name: str, path: str) -> None:
    assert STABLE_NAMES[name] == path
    assert load_path(path)(softcap=20).softcap == 20.0


def test_softcap_is_imported_without_triton() -> None:
    code = """
import sys, warnings
sys.modules["triton"] = None
import softcap
softcap.NativeFinalLogitSoftcapOp()
warnings.simplefilter("ignore")
print(softcap.kernel_registry.resolve("final_logit_softcap", device="cuda").rejected[0][1])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "import of triton halted" in run.stdout
