"""Somebody else's Triton kernels: seen through one public call, run in the interpreter, compiled ahead of time.

What is read off their code is information: an approximate division can be a right choice in another kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from invariance.process import in_one_line
from invariance.tiers import codegen
from invariance.tiers.faults import MOST_CONFIGURATIONS
from invariance.tiers.interpreter import SUBSTITUTIONS, interpreted, interpreted_factory
from invariance.tiers.launching import Launch, Session, Variant

_CAP, _ANOTHER_CAP = 30.0, 20.0


class OutOfSight(Exception):
    """No launch of a Triton kernel can be seen through the candidate's public call; the message says why."""


def interpreted_stranger(factory: Callable[..., Any]) -> Callable[..., Any]:
    """The factory, whose operators run in the interpreter; raises OutOfSight where nothing is launched in it."""
    return interpreted_factory(factory, (*SUBSTITUTIONS, *_tuning(_seen(factory))))


def _tuning(session: Session) -> Iterator[str]:
    """For each autotuned kernel how many configurations it has, and which are not judged."""
    for kernel, configurations in session.tuned.items():
        left_out = configurations[MOST_CONFIGURATIONS:]
        if len(configurations) > 1:
            rest = f"not judged: {', '.join(left_out)}" if left_out else "each judged by every_configuration"
            yield f"{kernel}: the first of {len(configurations)} configurations, {configurations[0]}; {rest}"


def launches_of(factory: Callable[..., Any], cap: float = _CAP) -> list[Launch]:
    """What a forward and a backward on 1025 elements launch, each kernel once; raises OutOfSight."""
    return list({launch.kernel: launch for launch in _seen(factory, cap).launches}.values())


def _seen(factory: Callable[..., Any], cap: float = _CAP) -> Session:
    x = torch.linspace(-2.0, 2.0, 1025).requires_grad_()
    try:
        with interpreted() as session:
            y = factory(cap)(x)
            if isinstance(y, Tensor) and y.requires_grad:
                y.sum().backward()  # type: ignore[no-untyped-call]  # torch's
    except Exception as error:
        if not session.launches:  # else it is seen, and its cells will say what it did
            raise OutOfSight(f"called on a CPU tensor it raises {in_one_line(error)}") from error
    if not session.launches:
        raise OutOfSight("its call launches no Triton kernel")
    return session


def code_of(factory: Callable[..., Any], target: str) -> list[dict[str, Any]]:
    """For each kernel what its code is like on a target, or why there is none; empty where nothing is seen."""
    try:
        launches = launches_of(factory)
        elsewhere = {launch.kernel: _variant(launch) for launch in launches_of(factory, _ANOTHER_CAP)}
    except OutOfSight:
        return []
    return [_facts(launch, elsewhere.get(launch.kernel), target) for launch in launches]


def _variant(launch: Launch) -> Variant:
    assert launch.compiled_as is not None, "a launch that was interpreted"
    return launch.compiled_as


def _facts(launch: Launch, elsewhere: Variant | None, target: str) -> dict[str, Any]:
    """Of one launch; `elsewhere` is what the kernel was at another cap."""
    gpu, seen = codegen.TARGETS[target], _variant(launch)
    # Fusion is what Triton does unless told; left open, it warns.
    options = {"num_warps": codegen.NUM_WARPS[gpu.backend], "enable_fp_fusion": True, **seen.options}
    facts: dict[str, Any] = {"kernel": launch.kernel, "target": target}
    try:
        asm, _ = codegen.compiled(seen.kernel, seen.signature, gpu, seen.constants, options)
    except codegen.DoesNotCompile as error:
        return {**facts, "does_not_compile": str(error)}
    machine = asm["ptx" if gpu.backend == "cuda" else "amdgcn"]
    return {
        **facts,
        "approximate_division": "arith.divf" in asm["ttir"],
        "approximate_tanh": codegen.approximates_tanh(asm["ttir"] + machine),
        "compiled_anew_for_every_cap": elsewhere is not None and seen.constants != elsewhere.constants,
        "vector_access": codegen.vectorised(machine),
        "spills": codegen.spilled(asm, gpu),
    }
