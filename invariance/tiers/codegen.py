"""Facts about a Triton kernel read off its intermediate code, compiled ahead of time for GPUs that are not there.

The laws hold for the shipped operator.  For a stranger's kernel the facts are information: an approximate
division, for one, can be a right choice there.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from invariance.tiers.complaints import read, standard_error, why

TARGETS: Mapping[str, GPUTarget] = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_89": GPUTarget("cuda", 89, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
}
# 128 threads on both vendors.
NUM_WARPS: Mapping[str, int] = {"cuda": 4, "hip": 2}
# Equal to one, powers of two, integral, and a number that no 16-bit type holds.
CAPS = (1.0, 16.0, 20.0, 30.0, 50.0, 7.3, 2.0**-40)
LENGTHS = (1, 15, 16, 1024, 1025, 2**31 - 1, 2**31, 2**40)

AS_LAUNCHED: Mapping[str, Mapping[str, Any]] = {"cuda": {}, "hip": {"reciprocal": None}}
"""Arguments of the shipped kernels that are constants at the launch, by backend: on HIP they divide by the cap."""

_INEXACT_DIVISIONS = (
    r"arith\.divf|fast_fdividef|f(div|rcp)_r[duz]|native_(recip|divide)|(div|rcp)\.(approx|full)|v_rcp_"
)
_TORCH = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass(frozen=True)
class Facts:
    """What one kernel was compiled to for one target.

    ``precise_division``: every division is rounded correctly.  ``offsets_64bit``: every block
    of pointers is moved by int64 offsets and no product is computed in int32.  ``cap_is_runtime``: the cap
    is an FP32 argument that the code uses.  ``variants_over_caps``, ``variants_over_lengths``: compiled
    variants that Triton would make over ``CAPS`` and ``LENGTHS``, everything else equal.
    ``vector_access``: loads and stores of 8 bytes or more per thread.  ``spills``: bytes (NVIDIA) or
    registers (AMD) in local memory.  ``said``: what the compiler wrote to standard error, which is shown nowhere else.
    """

    target: str
    precise_division: bool
    approximate_tanh: bool
    offsets_64bit: bool
    cap_is_runtime: bool
    variants_over_caps: int
    variants_over_lengths: int
    vector_access: bool
    spills: int
    said: str = ""


class DoesNotCompile(RuntimeError):
    """A kernel that the compiler refuses; the message ends in what the compiler said of it."""


LAWS: Mapping[str, Callable[[Facts], bool]] = {
    "precise_division": lambda facts: facts.precise_division,
    "no_approximate_tanh": lambda facts: not facts.approximate_tanh,
    "offsets_64bit": lambda facts: facts.offsets_64bit,
    "cap_is_runtime": lambda facts: facts.cap_is_runtime,
    "one_variant": lambda facts: facts.variants_over_caps == 1 and facts.variants_over_lengths == 1,
    "vector_access": lambda facts: facts.vector_access,
    "no_spills": lambda facts: facts.spills == 0,
}


def signature_of(kernel: Any, dtype: str) -> dict[str, str]:
    """Triton's signature for a softcap kernel with inputs of ``dtype`` (fp16, bf16, fp32).

    By the names of the shipped kernels: ``y_ptr`` and ``grad_y_ptr`` are FP32, other ``*_ptr`` have the input's dtype,
    ``n`` is int64, and what else is not a constexpr is the cap.
    """
    return {parameter.name: _type_of(parameter, dtype) for parameter in kernel.params}


def inspect(
    kernel: Any,
    signature: Mapping[str, str],
    *,
    target: str = "sm_90",
    cap: str = "softcap",
    constexprs: Mapping[str, Any] | None = None,
    num_warps: int | None = None,
    enable_fp_fusion: bool = False,
) -> Facts:
    """Compile for the target with pointers on 16 bytes and read the facts off.

    ``constexprs`` are the values of the compile-time arguments (``BLOCK`` is 1024 and the cap 30.0 unless
    given). Raises ValueError for an unknown target, DoesNotCompile for whatever the compiler raises.
    """
    if target not in TARGETS:
        raise ValueError(f"unknown target {target!r}; known: {', '.join(TARGETS)}")
    gpu = TARGETS[target]
    given = {**AS_LAUNCHED[gpu.backend], **(constexprs or {})}
    values = {"BLOCK": 1024, cap: 30.0, **given}
    signature = {name: "constexpr" if name in given else type_ for name, type_ in signature.items()}
    options = {
        "num_warps": num_warps or NUM_WARPS[gpu.backend],
        "enable_fp_fusion": enable_fp_fusion,
    }
    asm, said = compiled(kernel, signature, gpu, values, options)
    ttir, machine = asm["ttir"], asm["ptx" if gpu.backend == "cuda" else "amdgcn"]
    return Facts(
        target=target,
        precise_division=not divides_approximately(ttir),
        approximate_tanh=approximates_tanh(ttir + machine),
        offsets_64bit=_wide(ttir),
        cap_is_runtime=signature.get(cap) == "fp32" and len(re.findall(rf"%{cap}\b", ttir)) > 1,
        variants_over_caps=_variants(kernel, signature, gpu, values, {cap: CAPS}),
        variants_over_lengths=_variants(kernel, signature, gpu, values, {"n": LENGTHS}),
        vector_access=vectorised(machine),
        spills=spilled(asm, gpu),
        said=said,
    )


def _type_of(parameter: Any, dtype: str) -> str:
    if parameter.is_constexpr:
        return "constexpr"
    if parameter.name.endswith("_ptr"):
        return "*fp32" if parameter.name in ("y_ptr", "grad_y_ptr") else f"*{dtype}"
    return "i64" if parameter.name == "n" else "fp32"


def compiled(
    kernel: Any,
    signature: Mapping[str, Any],
    gpu: GPUTarget,
    values: Mapping[str, Any],
    options: dict[str, Any],
) -> tuple[Any, str]:
    """The code in every representation, and what the compiler wrote to standard error."""
    names = list(signature)
    constants = {(i,): values[name] for i, name in enumerate(names) if signature[name] == "constexpr"}
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if str(signature[name]).startswith("*")
    }
    source = ASTSource(fn=kernel, signature=dict(signature), constexprs=constants, attrs=aligned)
    # A cache of its own: LLVM goes on after an error, with code that is none, and Triton would keep it for the next one
    # who compiles the same source, to whom the compiler then says nothing.
    with tempfile.TemporaryDirectory(prefix="softcap-verify-") as folder, knobs.cache.scope():
        knobs.cache.dir = folder
        with standard_error() as file:
            try:
                asm = triton.compile(source, target=gpu, options=options).asm
            except Exception as error:
                words = [why(error), read(file)]
                raise DoesNotCompile("; the compiler said: ".join(filter(None, words))) from error
            said = read(file)
    if said.startswith("error:"):
        raise DoesNotCompile(said)
    return asm, said


def _wide(ttir: str) -> bool:
    """No offset of pointers, and no product on the way to one, is narrower than 64 bits."""
    moves = re.findall(r"tt\.addptr .*, (?:tensor<\d+x)?(i\d+)>? loc", ttir)
    return (
        bool(moves) and set(moves) == {"i64"} and not re.search(r"arith\.muli .* : (tensor<\d+x)?i32\b", ttir)
    )


def _variants(
    kernel: Any,
    signature: Mapping[str, str],
    gpu: GPUTarget,
    values: Mapping[str, Any],
    varied: Mapping[str, Sequence[Any]],
) -> int:
    """How many different specialisations Triton's own binder makes of the values of one argument."""
    binder = create_function_from_signature(kernel.signature, kernel.params, make_backend(gpu))
    ((name, choices),) = varied.items()
    fixed = {"n": 1024, **_defaults(kernel), **values, **_pointers(signature)}
    specialisations = {
        str(binder(**{key: {**fixed, name: choice}[key] for key in signature})[1]) for choice in choices
    }
    return len(specialisations)


def _defaults(kernel: Any) -> dict[str, Any]:
    parameters = kernel.signature.parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _pointers(signature: Mapping[str, str]) -> dict[str, torch.Tensor]:
    # Memory from torch's CPU allocator starts on 64 bytes.
    return {
        name: torch.empty(16, dtype=_TORCH[kind[1:]])
        for name, kind in signature.items()
        if kind.startswith("*")
    }


def divides_approximately(ttir: str) -> bool:
    """Whether a division or a reciprocal is not rounded correctly: `/`, a vendor's fast one, or assembly.

    Read before the vendor's own functions are linked in: NVIDIA's precise tanh has an approximate reciprocal inside.
    """
    return bool(re.search(_INEXACT_DIVISIONS, ttir))


def approximates_tanh(code: str) -> bool:
    """Whether the hardware's approximate tanh, or a vendor's fast one, stands in the code."""
    return bool(re.search(r"tanh\.approx|fast_tanh", code))


def vectorised(machine: str) -> bool:
    """Whether there are loads and stores of 8 bytes or more a thread."""

    def any_of(verb: str, amd: str) -> bool:
        return bool(re.search(rf"\b{verb}\.global\S*\.v[248]\b|\b(global|buffer)_{amd}_dwordx[24]", machine))

    return any_of("ld", "load") and any_of("st", "store")


def spilled(asm: Any, gpu: GPUTarget) -> int:
    """Bytes (NVIDIA) or registers (AMD) in local memory."""
    if gpu.backend == "hip":
        return sum(int(count) for count in re.findall(r"_spill_count:\s*(\d+)", asm["amdgcn"]))
    return _local_bytes(asm["cubin"])


def _local_bytes(cubin: bytes) -> int:
    """Stack and local memory of the kernel in bytes, as the bundled cuobjdump reads them off the binary."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = subprocess.run(
            [str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.findall(r"STACK:(\d+).*?LOCAL:(\d+)", usage)
    if not found:
        raise RuntimeError(f"cuobjdump reports no resource usage: {usage!r}")
    return sum(int(part) for pair in found for part in pair)
