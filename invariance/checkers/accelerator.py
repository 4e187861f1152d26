"""What the device laws do to an accelerator: streams, graphs, load, allocator blocks. Only `torch.cuda`, so HIP too."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar
from unittest import mock

import torch
from torch import Tensor

from invariance.candidate import CandidateRaised, Map
from invariance.checkers import NotApplicable
from invariance.checkers.views import Args

_T = TypeVar("_T")

_BUSY_ELEMENTS = 1 << 24  # 64 MiB in FP32: some 30 us a pass on a data-centre GPU, longer elsewhere
_FEWEST_PASSES, _MOST_PASSES = 64, 512  # a host that launches more than some 1,000 ahead is itself held up


def device_of(args: Args) -> torch.device:
    """The accelerator that the arguments are on."""
    return args[0].device


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A stream of that device, which waits for no other."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's


def busy_tensor(device: torch.device) -> Tensor:
    """Something to work on while time passes."""
    return torch.zeros(_BUSY_ELEMENTS, device=device)


def work(tensor: Tensor, passes: int) -> torch.cuda.Event:
    """Keep the current stream busy, some 2 ms for 64 passes; the event comes to pass halfway."""
    halfway = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
    for number in range(passes):
        if number == passes // 2:
            halfway.record()
        tensor.add_(1.0)
    return halfway


def outlasting(load: Callable[[int], torch.cuda.Event], call: Callable[[], _T]) -> _T:
    """What `call` gives before the device is halfway through the work that it was given just before.

    A host that was held up calls after work of any fixed length, and the law would have seen nothing. So work that did
    not last is doubled; a call that itself waits for the device is late each time, and what it gave last is taken.
    """
    passes = _FEWEST_PASSES
    while True:
        halfway = load(passes)
        result = call()
        came_to_pass = bool(halfway.query())  # type: ignore[no-untyped-call]  # torch's
        if not came_to_pass or passes >= _MOST_PASSES:
            return result
        passes *= 2


@contextlib.contextmanager
def on(stream: torch.cuda.Stream, device: torch.device) -> Iterator[None]:
    """Run on `stream`, after what the current stream was given and before what it will be given."""
    outer = torch.cuda.current_stream(device)
    stream.wait_stream(outer)
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        outer.wait_stream(stream)


def distinct(t: Tensor) -> Tensor:
    """A view in which no element of memory stands twice: dimensions that step onto others are cut to size 1."""
    reach = 0
    for stride, dim in sorted((stride, dim) for dim, stride in enumerate(t.stride()) if t.shape[dim] > 1):
        if stride <= reach:
            t = t.narrow(dim, 0, 1)
        else:
            reach += stride * (t.shape[dim] - 1)
    return t


def changed(t: Tensor) -> Tensor:
    """Other values of t's distinct elements: in reverse order and negated."""
    memory = distinct(t)
    return memory.flip(tuple(range(memory.dim()))).neg()


def captured(f: Map, args: Args) -> tuple[torch.cuda.CUDAGraph, Tensor]:
    """A graph of one call and the tensor that a replay writes; raises CandidateRaised when capturing fails."""
    graph, device = torch.cuda.CUDAGraph(), device_of(args)
    outputs: list[Tensor] = []
    failures: list[CandidateRaised] = []
    try:
        # The outer context restores the stream, which an invalidated capture leaves behind.
        with (
            torch.cuda.device(device),
            torch.cuda.stream(torch.cuda.current_stream(device)),
            torch.cuda.graph(graph),
        ):
            try:
                outputs.append(f(*args))
            except CandidateRaised as error:
                failures.append(error)
    except RuntimeError as error:
        failures.append(CandidateRaised(f"the call cannot be captured: {str(error).splitlines()[0]}"))
    if failures:
        raise failures[0]
    return graph, outputs[0]


def poisoned_blocks(sizes: list[int], device: torch.device, word: int) -> list[Tensor]:
    """Fill the allocator's free blocks of these sizes (16-bit words) with `word`; gives the blocks between them.

    Nine blocks of a size are taken side by side, and every second one is given back: what is allocated next
    comes from those, and the ones in between must stay as they are.
    """
    kept = []
    for size in sizes:
        blocks = [torch.full((size,), word, dtype=torch.int16, device=device) for _ in range(9)]
        kept += blocks[::2]
        del blocks
    return kept


def bands(t: Tensor, fill: float, width: int = 4096) -> tuple[Tensor, Tensor]:
    """t's values, contiguous, between two bands of `width` elements of `fill`; and the whole memory.

    The tensor starts 16-byte aligned and ends where it ends.
    """
    memory = torch.full((t.numel() + 2 * width,), fill, dtype=t.dtype, device=t.device)
    view = memory.narrow(0, width, t.numel()).view(t.shape)
    view.copy_(t)
    return view, memory


@contextlib.contextmanager
def no_synchronisation() -> Iterator[None]:
    """Operations that make the host wait for the device raise RuntimeError."""
    before = torch.cuda.get_sync_debug_mode()

    def refuse(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("an explicit synchronisation")

    with (
        mock.patch.object(torch.cuda, "synchronize", refuse),
        mock.patch.object(torch.cuda.Stream, "synchronize", refuse),
        mock.patch.object(torch.cuda.Event, "synchronize", refuse),
    ):
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


def another(device: torch.device, *, same_kind: bool) -> torch.device:
    """The next device, of the same kind where asked; raises NotApplicable where there is none."""
    count, here = torch.cuda.device_count(), device.index or 0
    kind = torch.cuda.get_device_properties(here).name
    for index in ((here + step) % count for step in range(1, count)):
        if not same_kind or torch.cuda.get_device_properties(index).name == kind:
            return torch.device("cuda", index)
    word = f"second {kind}" if same_kind else "second device"
    raise NotApplicable(f"there is no {word} in this machine")


def out_of_memory(error: CandidateRaised) -> bool:
    """Whether the candidate raised because the device's memory was full."""
    return isinstance(error.__cause__, torch.OutOfMemoryError)


def needs_memory(device: torch.device, gib: int) -> None:
    """Raise NotApplicable on a device that is built with less memory."""
    total = torch.cuda.get_device_properties(device).total_memory / 2**30
    if total < gib:
        raise NotApplicable(f"needs {gib} GiB of device memory, {device} has {math.floor(total)}")
