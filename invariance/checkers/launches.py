"""What holds of the launches of a Triton kernel whatever they compute, asked of one that runs in the interpreter.

There programs run one after another, an autotuner has nothing to measure, and tensors take as much memory as there is:
what a GPU does beside that is asked for here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from invariance.candidate import CandidateRaised, Map
from invariance.checkers import NO_LAUNCHES, NotApplicable, Pick, checker
from invariance.checkers.scaling import any_cap
from invariance.checkers.views import Args, each, flat, plain
from invariance.judge import Claim
from invariance.tiers.faults import MOST_CONFIGURATIONS, Fault, GaveUp
from oracles.formats import cap_as_fp32
from strategies.caps import cap_text

# Shape and strides of x. Past 2^31 elements by more than a block of any size, and no multiple of one; the same past
# 2^32, where unsigned offsets end; then rows whose last one begins past 2^31, beside each other and with room in
# between; then a few columns whose last one does.
_ROWS, _COLUMNS = 16385, 131101
_TALL, _FEW = 53687111, 41
FAR = (
    ((2**31 + 66535,), (1,)),
    ((2**32 + 66535,), (1,)),
    ((_ROWS, _COLUMNS), (_COLUMNS, 1)),
    ((_ROWS, _COLUMNS), (_COLUMNS + 27, 1)),
    ((_TALL, _FEW), (1, _TALL)),
)
_STORED = "stored"
_LAST = 4  # elements of the end that are compared


class _NoKernel(NotApplicable):
    """A kernel is none of its language for a form, as one whose block is a whole row longer than a block may be."""


def _launching(f: Map, args: Args, **how: Any) -> AbstractContextManager[Any]:
    launching = getattr(f.op, "launching", None)
    if launching is None or args[0].device.type != "cpu":
        raise NotApplicable(NO_LAUNCHES)
    context: AbstractContextManager[Any] = launching(**how)
    return context


def _called(f: Map, args: Args, **how: Any) -> tuple[Tensor, Any]:
    """The result of a call whose launches are run so, and the session that saw them."""
    with _launching(f, args, **how) as session:
        return f(*args), session


@checker(
    judgement="invariance",
    launches=True,
    passes=("inference", "backward"),
    each_cap=False,
    inputs="one",
    shrinks=0,
    bugs=("deepspeedai/DeepSpeed#8590", "fla-org/flash-linear-attention#1080", "triton-lang/triton#832"),
)
def far_offsets(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Past 2^31 and 2^32 elements too, no access leaves its tensor, and the last ones have the bits of a small call."""
    ends = each(args, lambda t: plain(flat(t)[-_LAST:]))
    want, excuses = f(*ends), []
    broken: _NoKernel | None = None
    for shape, stride in FAR:
        form = f"shape {shape}, strides {stride}"
        try:
            missing, got = _at_the_end(f, ends, shape, stride)
        except (NotApplicable, GaveUp) as excuse:
            excuses.append(f"{form}: {excuse}")
            broken = excuse if isinstance(excuse, _NoKernel) else broken
            continue
        yield Claim(f"results of {form} are stored to their ends", got=missing or _STORED, want=_STORED)
        if got is not None:
            yield Claim(f"the last of {form}", got=got, want=want, of=ends)
    if len(excuses) == len(FAR) and broken is not None:
        yield Claim("a kernel compiles for so many elements", got=str(broken), want="compiles")
    elif len(excuses) == len(FAR):
        raise NotApplicable("; ".join(dict.fromkeys(excuses)))


def _at_the_end(
    f: Map, ends: Args, shape: tuple[int, ...], stride: tuple[int, ...]
) -> tuple[str | None, Tensor | None]:
    """What was never stored, and the last elements of the result, None where PyTorch would have computed some of it.

    Raises NotApplicable, GaveUp.
    """
    with _launching(f, ends, far=True, order="ends") as session:
        far = tuple(session.tensor(shape, stride, t.dtype) for t in ends)
        for t, end in zip(far, ends, strict=True):
            t[(-1,) * (len(shape) - 1)][-_LAST:] = end
        session.launches.clear()
        try:
            result = f(*far)
        except CandidateRaised as error:
            if isinstance(error.__cause__, Fault):
                raise
            raise (_NoKernel if session.raised else NotApplicable)(f"the candidate raises {error}") from error
        if not session.launches:
            raise NotApplicable("the candidate launches nothing")
        if not session.far.computed:
            return session.far.missing(), plain(result[(-1,) * (result.dim() - 1)][-_LAST:])
        if not session.far.reach:
            raise NotApplicable("PyTorch computes the result, and no launch stores to a tensor of that size")
        return session.far.missing(), None


@checker(
    judgement="invariance",
    launches=True,
    passes=("inference", "backward"),
    each_cap=False,
    inputs="device",
    bugs=("NVIDIA/TensorRT-LLM#16782", "pytorch/pytorch#132301"),
)
def program_order(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """No program of a launch meets what another one stored, and any order of the programs gives the same bits."""
    want, session = _called(f, args, races=True)
    if max((launch.programs for launch in session.launches), default=0) < 2:
        raise NotApplicable("no launch of more than one program")
    for order in ("backwards", "hashed"):
        got, _ = _called(f, args, order=order, races=True)
        yield Claim(f"programs {order}", got=got, want=want, of=args)


@checker(
    judgement="invariance",
    launches=True,
    passes=("inference", "backward"),
    dtypes=("bf16", "fp32"),
    each_cap=False,
    inputs="small",
    shrinks=20,
    bugs=("triton-lang/triton#9368",),
)
def every_configuration(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Each configuration that an autotuner may choose, by a clock, gives the same bits, and so does its measuring."""
    want, session = _called(f, args)
    most: list[str] = max(session.tuned.values(), key=len, default=[])
    if len(most) < 2:
        raise NotApplicable("no kernel of the candidate is autotuned over several configurations")
    for number, configuration in enumerate(most[1:MOST_CONFIGURATIONS], 1):
        got, _ = _called(f, args, configuration=number)
        yield Claim(f"configuration {number}, {configuration}", got=got, want=want, of=args)
    got, _ = _called(f, args, measured=True)
    yield Claim("a call in which the autotuner runs several on the same tensors", got=got, want=want, of=args)


@checker(
    judgement="invariance",
    launches=True,
    passes=("inference", "backward"),
    each_cap=False,
    inputs="one",
    applies=any_cap,
    bugs=("sgl-project/sgl-kernel-xpu#491", "pytorch/pytorch#190340"),
)
def cap_resolution(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:
    """Two caps that differ by 2^-13, or by 2^-20 where x is FP32, give different results.

    2^-13 apart they are one number in any 16-bit type, 2^-20 apart in five decimal digits.
    """
    with _launching(f, args):
        cap = _CAPS[pick("cap", 0, len(_CAPS) - 1)]
        near = cap_as_fp32(cap * (1 + (2.0**-20 if args[0].dtype == torch.float32 else 2.0**-13)))
        x = (torch.linspace(-3.0, 3.0, 1024, dtype=torch.float64) * cap).to(args[0].dtype)
        grads = tuple(torch.linspace(1.0, 5.0, 1024, dtype=torch.float64).to(g.dtype) for g in args[1:])
        one, other = f.at(cap)(x, *grads), f.at(near)(x, *grads)
    label = f"caps {cap_text(cap)} and {cap_text(near)} give different results"
    yield Claim(label, got="equal results" if bool((one == other).all()) else _DIFFERENT, want=_DIFFERENT)


_CAPS = (1.0, 20.0, 30.0, 50.0)
_DIFFERENT = "different results"
