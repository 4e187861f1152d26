"""The short launch path: what is remembered, what is launched directly, and when it steps aside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import knobs

from softcap import launch


class Compiled:
    function, packed_metadata = "function", "metadata"

    def __init__(self) -> None:
        self.runs: list[tuple[Any, ...]] = []

    def run(self, *args: Any) -> None:
        self.runs.append(args)


class Kernel:
    """Stands for a JITFunction: records what is launched, gives back what Triton would."""

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.pre_run_hooks: list[Callable[..., None]] = []
        self.launches: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            self.launches.append((grid, args, options))
            return self.compiled

        return run


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Compiled:
    monkeypatch.setattr(launch, "_current_stream", lambda device: f"stream of {device}")
    return Compiled()


def pair(offset: int = 0, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(40, dtype=dtype)[offset : offset + 20], torch.zeros(20)


def test_the_second_launch_goes_through_the_compiled_object(compiled: Compiled) -> None:
    kernel = Kernel(compiled)
    launcher = launch.Launcher(kernel, 8, num_warps=4)
    x, y = pair()
    launcher(20.0, 20, x, y)
    launcher(30.0, 17, x, y)
    options = {"BLOCK": 8, "reciprocal": -1 / (20 * 2.0**64), "num_warps": 4}
    assert kernel.launches == [((3,), (x, y, 20.0, 20), options)]
    pointers = (x.data_ptr(), y.data_ptr())
    assert compiled.runs == [
        (3, 1, 1, "stream of -1", "function", "metadata", None, None, None, *pointers, 30.0, 17, 8,
         -1 / (30 * 2.0**64))
    ]  # fmt: skip


@pytest.mark.parametrize(("n", "programs"), [(1, 1), (64, 1), (65, 2), (1000, 16)])
def test_the_grid_covers_the_elements_in_blocks(n: int, programs: int, compiled: Compiled) -> None:
    kernel = Kernel(compiled)
    launch.Launcher(kernel, 64)(20.0, n, *pair())
    assert kernel.launches[0][0] == (programs,)


def test_another_device_is_made_current_for_the_launch(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    current = [0]

    @contextlib.contextmanager
    def device(index: int) -> Iterator[None]:
        current.append(index)
        yield
        current.pop()

    class OnDevice1(torch.Tensor):
        def get_device(self) -> int:
            return 1

    monkeypatch.setattr(launch, "_current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", device)
    kernel = Kernel(compiled)
    x, y = (tensor.as_subclass(OnDevice1) for tensor in pair())
    launcher = launch.Launcher(kernel, 64)
    for _ in range(2):
        launcher(20.0, 20, x, y)
    assert (current, len(kernel.launches)) == ([0], 1)
    assert compiled.runs[0][3] == "stream of 1"


def test_each_dtype_and_alignment_has_its_own_variant_and_caps_share_it(compiled: Compiled) -> None:
    kernel = Kernel(compiled)
    launcher = launch.Launcher(kernel, 8)
    for tensors in (pair(), pair(1), pair(dtype=torch.bfloat16)):
        for cap in (1.0, 20.0, 30.0):
            launcher(cap, 20, *tensors)
    assert (len(launcher.variants), len(kernel.launches), len(compiled.runs)) == (3, 3, 6)


def test_hooks_are_honoured(compiled: Compiled, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(compiled)
    launcher = launch.Launcher(kernel, 8)
    launcher(20.0, 20, *pair())
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [print])
    launcher(20.0, 20, *pair())
    monkeypatch.setattr(knobs.runtime.launch_enter_hook, "calls", [])
    kernel.pre_run_hooks.append(print)
    launcher(20.0, 20, *pair())
    assert (len(kernel.launches), compiled.runs) == (3, [])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_tensor_without_memory_is_refused_and_meets_no_remembered_variant(
    place: int, compiled: Compiled
) -> None:
    """DTensors, nested tensors and uncollected results have address 0, which is aligned as any other."""
    kernel = Kernel(compiled)
    launcher = launch.Launcher(kernel, 8)
    for _ in range(2):
        launcher(20.0, 20, *pair(), torch.zeros(20))
    tensors = [*pair(), torch.zeros(20)]
    tensors[place] = torch._efficientzerotensor(20)
    with pytest.raises(RuntimeError, match="tensors with memory of their own, got a Tensor without"):
        launcher(20.0, 20, *tensors)
    assert (len(kernel.launches), len(compiled.runs)) == (1, 1)


@pytest.mark.parametrize("result", [None, SimpleNamespace(result=lambda: None)])
def test_what_cannot_be_launched_directly_is_not_remembered(result: object, compiled: Compiled) -> None:
    kernel = Kernel(result)
    launcher = launch.Launcher(kernel, 8)
    launcher(20.0, 20, *pair())
    launcher(20.0, 20, *pair())
    assert (launcher.variants, len(kernel.launches), compiled.runs) == ({}, 2, [])


def test_on_hip_a_storage_past_two_gib_never_meets_a_remembered_variant(
    compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Kernel(compiled)
    launcher = launch.Launcher(kernel, 8)
    monkeypatch.setattr(launch, "_IS_HIP", True)
    launcher(20.0, 20, *pair())
    monkeypatch.setattr(launch, "_HIP_SMALL_STORAGE", 64)
    launcher(20.0, 20, *pair())
    assert (len(kernel.launches), compiled.runs) == (2, [])


class InPython:
    """Stands for Triton's launcher: hands everything to `launch`, with constants in between."""

    def __init__(self, scratch: int | None = None, nested: bool = False) -> None:
        self.scratch, self.nested = scratch, nested
        self.calls = 0
        self.handed: list[tuple[Any, ...]] = []
        self.launch = lambda *given: self.handed.append(given)

    def __call__(self, x: int, y: int, z: int, stream: object, function: str, *rest: Any) -> None:
        self.calls += 1
        if self.nested:
            self.launch(x, y, z, stream, function, False, rest[:4], rest[4:])
        else:
            self.launch(x, y, z, stream, function, False, self.scratch, *rest)


def launched_twice(run: Any, compiled: Compiled) -> tuple[int, ...]:
    """The pointers of the tensors, launched through the JIT function and then directly."""
    launcher = launch.Launcher(Kernel(SimpleNamespace(run=run, function="f", packed_metadata="m")), 8)
    x, y = pair()
    for _ in range(2):
        launcher(30.0, 17, x, y)
    return x.data_ptr(), y.data_ptr()


def test_a_launcher_that_adds_constants_alone_is_skipped(compiled: Compiled) -> None:
    run = InPython()
    pointers = launched_twice(run, compiled)
    reciprocal = -1 / (30 * 2.0**64)
    expected = (
        3,
        1,
        1,
        "stream of -1",
        "f",
        False,
        None,
        "m",
        None,
        None,
        None,
        *pointers,
        30.0,
        17,
        8,
        reciprocal,
    )
    assert (run.calls, run.handed) == (0, [expected])


@pytest.mark.parametrize("run", [InPython(scratch=1 << 20), InPython(nested=True)], ids=["scratch", "nested"])
def test_a_launcher_that_does_more_is_kept(run: InPython, compiled: Compiled) -> None:
    """Scratch memory belongs to one launch; arguments in a tuple are another convention than the one known here."""
    launched_twice(run, compiled)
    assert (run.calls, len(run.handed)) == (1, 1)


def test_looking_at_a_launcher_launches_nothing_and_leaves_it_as_it_was(compiled: Compiled) -> None:
    run = InPython()
    inner = run.launch
    call, _ = launch._direct(SimpleNamespace(run=run, function="f", packed_metadata="m"), 3)
    assert (run.launch, run.handed, call) == (inner, [], inner)
