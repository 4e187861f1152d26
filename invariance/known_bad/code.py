"""The code generation tier, for one kernel of the catalogue: which of its laws the compiled kernels break."""

from __future__ import annotations

import sys

from invariance.candidate import load
from invariance.tiers import codegen

KERNELS = {"forward": "softcap_forward_kernel", "backward": "softcap_backward_kernel"}

Broken = tuple[str, str, str, str]  # law, pass, dtype, what


def broken_laws(spec: str, dtypes: tuple[str, ...], target: str) -> tuple[list[Broken], int]:
    """The laws that any kernel breaks on a target, each once, and how many facts were judged.

    A kernel that does not compile breaks the law `compiles`, by which this tier stands.
    """
    kind = load(spec).factory(30.0).kind  # type: ignore[attr-defined]  # an Edited
    module = sys.modules[kind.__module__]
    found: dict[str, Broken] = {}
    judged = 0
    for pass_, name in KERNELS.items():
        for dtype in dtypes:
            broken = _broken(module, name, dtype, target)
            judged += len(codegen.LAWS) + 1
            for law, what in broken.items():
                found.setdefault(law, (law, pass_, dtype, f"{name} for {target}: {what}"))
    return list(found.values()), judged


def _broken(module: object, name: str, dtype: str, target: str) -> dict[str, str]:
    kernel = getattr(module, name)
    try:
        facts = codegen.inspect(
            kernel,
            codegen.signature_of(kernel, dtype),
            target=target,
            constexprs={"BLOCK": getattr(module, "BLOCK", 1024)},
            enable_fp_fusion=bool(getattr(module, "ENABLE_FP_FUSION", False)),
        )
    except codegen.DoesNotCompile as error:
        return {"compiles": str(error)}
    return {law: repr(facts) for law, holds in codegen.LAWS.items() if not holds(facts)}
