"""Timers: device events, the host's clock, CUDA graphs; and extra peak memory. `torch.cuda` only, so HIP too.

Contenders take turns within each repetition, in an order that moves on, so that clocks and temperature are shared.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping

import torch

Call = Callable[[], object]
Calls = Mapping[str, Call]
Samples = dict[str, list[float]]

_FLUSH_BYTES, _FLUSH_READS = 1 << 30, 4
_HOST_CALLS, _HOST_ROUNDS = 50, 36
_GRAPH_CALLS, _GRAPH_REPLAYS = 20, 25


class Flush:
    """Reads one GiB before a sample, several times.

    That empties the L2 cache of a contender's own data without leaving dirty lines to write back, and takes the
    device longer than the host needs to queue the call: the events then time the device and not the host. One read is
    0.25 ms on an H200, and a forward and a backward under autograd are 0.1 to 0.4 ms of host time there: after a single
    read single samples had up to 0.1 ms of the host in them.
    """

    def __init__(self, device: str) -> None:
        self.buffer = torch.ones(_FLUSH_BYTES // 4, device=device)
        self.total = torch.zeros((), device=device)

    def __call__(self) -> None:
        """Queue the read on the current stream."""
        for _ in range(_FLUSH_READS):
            torch.sum(self.buffer, dim=0, out=self.total)


def event_times(calls: Calls, *, warmup: int, repeat: int, flush: Flush) -> Samples:
    """Milliseconds between device events around each call, `repeat` samples of each; garbage is collected before."""
    for call in calls.values():
        for _ in range(max(1, warmup)):  # the first call compiles
            call()
    torch.cuda.synchronize()
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in calls}
    with _no_collection():
        for name, call in _turns(calls, repeat):
            start, end = _event(), _event()
            flush()
            start.record()
            call()
            end.record()
            events[name].append((start, end))
        torch.cuda.synchronize()
    return {name: [start.elapsed_time(end) for start, end in pairs] for name, pairs in events.items()}


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """A collection takes longer than a read of the flush."""
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def host_times(calls: Calls) -> Samples:
    """Microseconds of host time a call, one sample for each round of many calls without a synchronisation."""
    samples: Samples = {name: [] for name in calls}
    for name, call in _turns(calls, _HOST_ROUNDS + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_HOST_CALLS):
            call()
        samples[name].append((time.perf_counter() - start) / _HOST_CALLS * 1e6)
    return {name: rounds[1:] for name, rounds in samples.items()}


def graph_times(calls: Calls) -> tuple[Samples, dict[str, str]]:
    """Microseconds of device time a call inside a CUDA graph of many calls; and who could not be captured, and why."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    refused: dict[str, str] = {}
    for name, call in calls.items():
        graph = _graph(call)
        if isinstance(graph, str):
            refused[name] = graph
        else:
            graphs[name] = graph
    return event_times_of_graphs(graphs), refused


def event_times_of_graphs(graphs: Mapping[str, torch.cuda.CUDAGraph]) -> Samples:
    """Microseconds a call, one sample a replay; the first two replays are not counted."""
    events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]] = {name: [] for name in graphs}
    for name, replay in _turns({name: graph.replay for name, graph in graphs.items()}, _GRAPH_REPLAYS + 2):
        start, end = _event(), _event()
        start.record()
        replay()
        end.record()
        events[name].append((start, end))
    torch.cuda.synchronize()
    return {
        name: [start.elapsed_time(end) * 1e3 / _GRAPH_CALLS for start, end in pairs[2:]]
        for name, pairs in events.items()
    }


def _graph(call: Call) -> torch.cuda.CUDAGraph | str:
    """A graph of many calls, or why there is none."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        # The outer context restores the stream, which an invalidated capture leaves behind.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph):
            for _ in range(_GRAPH_CALLS):
                call()
    except RuntimeError as error:
        return str(error).splitlines()[0]
    return graph


def extra_peak_bytes(call: Call, device: str) -> int:
    """Bytes that one call allocates at its peak, beyond what was allocated before it."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    result = call()
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - before
    del result
    return peak


def summary(samples: list[float]) -> dict[str, float]:
    """Median and sample standard deviation (0 for a single sample)."""
    deviation = statistics.stdev(samples) if len(samples) > 1 else 0.0
    return {"median": statistics.median(samples), "stdev": deviation}


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's


def _turns(calls: Calls, rounds: int) -> Iterator[tuple[str, Call]]:
    """Everybody once a round, starting with another one each time."""
    items = list(calls.items())
    for number in range(rounds if items else 0):
        first = number % len(items)
        yield from items[first:] + items[:first]
