"""What only an accelerator has: streams, graphs, load, other devices, compiled code, more than 2^31 elements.

Everything goes through `torch.cuda`, which is HIP on ROCm. Misaligned storage is `alignment` of the transforms, a
fresh process is a law about calls: both run here as well.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from invariance.candidate import CandidateRaised, Map
from invariance.checkers import NotApplicable, Pick, checker
from invariance.checkers import accelerator as gpu
from invariance.checkers.tracing import compiled_by_dynamo, formula_seen
from invariance.checkers.views import Args, each, flat, plain, tiled
from invariance.judge import Claim
from strategies.caps import cap_text

BEYOND = 2**31 + 65543  # elements: past 2^31 by more than a block of any size, and no multiple of one
# A prime: with a period that divides 2^31, an offset that wraps around would meet the value it should have met.
_PERIOD = 65521
_CHUNK = 1 << 26
_MEMORY_GIB = 40  # x, y, grad_y and grad_x are 24 GiB, and the comparison needs a little


@checker("invariance", inputs="device", device=True, each_cap=False)
def another_stream(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A call on another stream waits for that stream's work, and gives the same bits."""
    device = gpu.device_of(args)
    dense = each(args, plain)
    want = f(*dense)
    late = each(dense, torch.zeros_like)
    busy, stream = gpu.busy_tensor(device), gpu.new_stream(device)

    def work(passes: int) -> torch.cuda.Event:
        for place in late:
            place.zero_()
        return gpu.work(busy, passes)  # meanwhile the inputs are still zeros

    def call() -> Tensor:
        for place, values in zip(late, dense, strict=True):
            place.copy_(values)
        return f(*late)

    with gpu.on(stream, device):
        got = gpu.outlasting(work, call)
    yield Claim("inputs written late on that stream", got=got, want=want, of=dense)


@checker("invariance", inputs="device", device=True, each_cap=False, shrinks=20)
def graph_replay(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Captured in a CUDA graph, the call gives the same bits at each replay, also from inputs changed in place."""
    want = plain(f(*args))
    stream = gpu.new_stream(gpu.device_of(args))
    with gpu.on(stream, gpu.device_of(args)):
        f(*args)  # whatever is set up on first use belongs outside of a capture
    graph, out = gpu.captured(f, args)
    for number in (1, 2):
        graph.replay()
        yield Claim(f"replay {number}", got=plain(out), want=want, of=args)
    for t in args:
        gpu.distinct(t).copy_(gpu.changed(t))
    want = f(*args)
    graph.replay()
    yield Claim("a replay on changed inputs", got=out, want=want, of=args)


@checker("invariance", inputs="device", device=True, each_cap=False)
def concurrent_load(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """The same bits while other kernels keep the device busy."""
    device = gpu.device_of(args)
    want = f(*args)
    busy, stream = gpu.busy_tensor(device), gpu.new_stream(device)
    side = torch.full((1024, 1024), 1e-3, device=device)
    stream.wait_stream(torch.cuda.current_stream(device))

    def work(passes: int) -> torch.cuda.Event:
        with torch.cuda.stream(stream):
            for _ in range(passes // 2):
                torch.tanh(side @ side)
            return gpu.work(busy, passes)

    results = gpu.outlasting(work, lambda: [f(*args) for _ in range(16)])
    torch.cuda.current_stream(device).wait_stream(stream)
    for number, got in enumerate(results, 1):
        yield Claim(f"call {number} under load", got=got, want=want, of=args)


@checker("invariance", inputs="device", device=True)
def another_device(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Another device of the same kind gives the same bits."""
    other = gpu.another(gpu.device_of(args), same_kind=True)
    want = f(*args)
    moved = each(args, lambda t: t.to(other))
    with torch.cuda.device(other):
        got = f(*moved)
    yield Claim("the device of the result", got=got.device, want=other)
    yield Claim(f"on {other}", got=got.to(want.device), want=want, of=args)


@checker("invariance", inputs="device", device=True, each_cap=False)
def other_current_device(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A tensor on a device that is not the current one is worked on where it is."""
    other = gpu.another(gpu.device_of(args), same_kind=False)
    want = f(*args)
    with torch.cuda.device(other):
        got = f(*args)
        yield Claim("the current device stays", got=torch.cuda.current_device(), want=other.index)
    yield Claim(f"with {other} current", got=got, want=want, of=args)


@checker(
    "invariance",
    inputs="small",
    device=True,
    each_cap=False,
    shrinks=4,
    bugs=("linkedin/Liger-Kernel#1362", "linkedin/Liger-Kernel#1350", "pytorch/pytorch#161944"),
)
def compiled(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Under torch.compile a kernel of its own gives the same bits, at one cap after another.

    A formula of PyTorch operations is outside the law: the compiler writes another kernel for it, with another
    division and tanh (0.2% of inputs differ on a CPU), and no good implementation could promise these bits.
    """
    caps = (f.cap, f.cap * 2, f.cap * 0.75, f.cap * 1.25)
    dense = each(args, plain)
    if formula_seen(f, dense):
        raise NotApplicable(
            "torch.compile sees a formula of PyTorch operations and writes a kernel of its own for it"
        )
    call = compiled_by_dynamo()
    for cap in caps:
        at = f.at(cap)
        through = replace(at, op=partial(call, op=at.op))
        yield Claim(f"compiled at cap {cap_text(cap)}", got=through(*dense), want=at(*dense), of=dense)


@checker(
    "invariance",
    passes=("inference", "backward"),
    each_cap=False,
    inputs="patterns",
    device=True,
    shrinks=0,
    bugs=(
        "deepspeedai/DeepSpeed#8590",
        "fla-org/flash-linear-attention#1080",
        "triton-lang/triton#832",
        "linkedin/Liger-Kernel#1246",
        "ml-explore/mlx#2267",
    ),
)
def beyond_int32(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """Past 2^31 elements every element, the last ones first, has the bits that it has in a small tensor."""
    gpu.needs_memory(gpu.device_of(args), _MEMORY_GIB)
    pattern = each(args, lambda t: flat(t)[:_PERIOD])
    chunk = _CHUNK - _CHUNK % pattern[0].numel()
    want = tiled(f(*pattern), chunk)
    got = _of_many(f, pattern)
    yield Claim("the shape", got=tuple(got.shape), want=(BEYOND,))
    for low in reversed(range(0, BEYOND, chunk)):
        part = got[low : low + chunk]
        yield Claim(f"elements from {low}", got=part, want=want[: part.numel()])


def _of_many(f: Map, args: Args) -> Tensor:
    """The map of the patterns repeated to BEYOND elements; memory that earlier laws left cached is freed first."""
    gc.collect()
    torch.cuda.empty_cache()
    try:
        return f(*(tiled(t, BEYOND) for t in args))
    except CandidateRaised as error:
        if gpu.out_of_memory(error):
            raise NotApplicable(f"the candidate needs more memory than the device has: {error}") from error
        raise


@checker("invariance", inputs="device", device=True, each_cap=False)
def poisoned_memory(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """What the allocator's blocks held before does not show in the result, and blocks beside it stay as they are."""
    want = f(*args)
    size = max(1, want.numel())
    for label, word in (("NaN", -1), ("finite numbers", 0x4141)):
        between = gpu.poisoned_blocks([size, 2 * size], want.device, word)
        got = f(*args)
        yield Claim(f"from memory full of {label}", got=got, want=want, of=args)
        for block in between:
            yield Claim("a block beside the result", got=block, want=torch.full_like(block, word))


@checker("invariance", inputs="device", device=True, each_cap=False)
def guarded_inputs(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """What stands before and after the inputs in device memory is neither used nor written."""
    want = f(*args)
    for fill in (float("nan"), 0.0):
        placed = [gpu.bands(t, fill) for t in args]
        before = [memory.clone() for _, memory in placed]
        got = f(*(view for view, _ in placed))
        yield Claim(f"between bands of {fill}", got=got, want=want, of=args)
        for (_, memory), kept in zip(placed, before, strict=True):
            yield Claim(f"an input between bands of {fill}, afterwards", got=memory, want=kept)


@checker("invariance", inputs="device", device=True, each_cap=False)
def no_host_synchronisation(f: Map, args: Args, pick: Pick) -> Iterator[Claim]:  # noqa: ARG001 - nothing to choose
    """A call does not make the host wait for the device."""
    want = f(*args)  # the first call may wait: it compiles and loads
    torch.cuda.synchronize(gpu.device_of(args))
    with gpu.no_synchronisation():
        got = f(*args)
    yield Claim("without synchronisation", got=got, want=want, of=args)
