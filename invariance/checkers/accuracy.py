"""Is every output and every input gradient right? Against a certified truth, which is made before the candidate runs.

The truth copies its arguments, so a candidate that writes into its inputs cannot move it (BUGS.md #68).
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from invariance.candidate import Map
from invariance.checkers import NotApplicable, Pick, checker
from invariance.judge import Claim
from oracles.formats import FORMATS, cap_as_fp32
from oracles.tolerances import load_contract
from oracles.truth import Truth

Args = tuple[Tensor, ...]


def outside_judged_domain(cap: float | int) -> str | None:
    """Why accuracy is reported and not judged at this cap, or None where it is judged."""
    contract = load_contract()
    if contract.judges_cap(cap_as_fp32(cap)):
        return None
    low, high = contract.judged_cap_range
    return f"outside the judged domain: caps from {low:.4g} to {high:.4g}"


def judged_cap(f: Map) -> float:
    """The map's cap as the FP32 value that it is; raises NotApplicable where accuracy is not judged."""
    if (reason := outside_judged_domain(f.cap)) is not None:
        raise NotApplicable(reason)
    return cap_as_fp32(f.cap)


@checker(
    judgement="accuracy",
    inputs="domain",
    explored=True,
    bugs=(
        "AMD-AGI/Primus#1057",
        "lightseekorg/tokenspeed#183",
        "vllm-project/vllm#56578",
        "EricLBuehler/mistral.rs#2058",
        "triton-lang/triton#8551",
        "unslothai/unsloth-zoo#593",
        "NVIDIA-NeMo/Megatron-Bridge#4610",
        "volcengine/verl#7991",
        "ROCm/jax#614",
        "tenstorrent/tt-metal#25325",
        "tenstorrent/tt-metal#48328",
        "triton-lang/triton#10661",
        "pytorch/pytorch#161944",
        "unslothai/unsloth#8957",
        "tenstorrent/tt-metal#35885",
        "JuliaDiff/DiffRules.jl#102",
        "linkedin/Liger-Kernel#1268",
        "linkedin/Liger-Kernel#1305",
        "fla-org/flash-linear-attention#1231",
    ),
)
def exact_value(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Every output is within 6 FP32 ulp of the exact value, every gradient within 6 * 2^-24 of |grad_y|."""
    yield from _within("ulp", f, args)


@checker(
    judgement="accuracy",
    inputs="domain",
    bugs=("unslothai/unsloth-zoo#593", "vllm-project/vllm#41779", "sgl-project/sgl-kernel-xpu#491"),
)
def specification(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Every output and gradient is within the specification's atol and rtol for its dtype."""
    yield from _within("specification", f, args)


def _within(rule: str, f: Map, args: Args) -> Iterator[Claim]:
    """One claim on all elements; the rule leaves out upstream gradients outside the judged domain."""
    truth = Truth.of(args[0], judged_cap(f), *args[1:])
    if truth.grad_y is not None and not _judges_any(truth.cap, truth.grad_y):
        raise NotApplicable("every upstream gradient is outside the judged domain")
    yield Claim("the exact value", got=f(*args), want=truth, within=rule)


def _judges_any(cap: float, grad_y: Tensor) -> bool:
    return grad_y.numel() == 0 or bool(load_contract().judges(cap, grad_y).any())


def unfit(result: Tensor, x: Tensor) -> Claim | None:
    """A claim that fails, where a result has a shape or a dtype of which nothing more can be said."""
    if result.shape != x.shape:
        return Claim("the shape", got=tuple(result.shape), want=tuple(x.shape))
    if result.dtype not in FORMATS:
        return Claim("the dtype", got=str(result.dtype), want="one of " + ", ".join(map(str, FORMATS)))
    return None
