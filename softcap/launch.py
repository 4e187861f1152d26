"""A short launch path for one kernel with one fixed configuration.

``kernel[grid](...)`` binds and specialises every argument anew on each call, which takes longer than the
kernel for decode-sized rows (14 us against 8.5 through the compiled object, measured on an H200 host).  The
traits that Triton specialises these kernels on are known here: dtypes, 16-byte alignment of each pointer,
device.  So the compiled object is remembered under them and launched directly, with raw addresses, which
also saves the launcher's driver query per pointer.  Whatever is out of the ordinary takes ``kernel[grid]``.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor
from triton import knobs

from softcap.kernels import negative_reciprocal

# On HIP, Triton specialises pointers also on storages up to 2 GiB: larger ones never meet a remembered
# variant.
_IS_HIP = torch.version.hip is not None
_HIP_SMALL_STORAGE = 2**31 - 1

_runtime = knobs.runtime

# What torch.cuda.current_device and Triton's driver come to once a tensor is on a GPU.  In the backward every call
# counts: autograd's thread for the device wakes up on a core that has none of this in its caches, and 6 us of launch
# in the forward are 14 there.
_current_device: Any = getattr(torch._C, "_cuda_getDevice", None)
_current_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


Direct: TypeAlias = tuple[Callable[..., object], tuple[object, ...]]


class Launcher:
    """Launches ``kernel(x, y[, z], softcap, n, BLOCK, reciprocal)`` on the tensors' device and its current stream.

    The dtype of ``x`` decides the other dtypes.  ``variants`` holds by traits what Triton compiled: what to call, and
    with what between the stream and the kernel's own arguments.
    """

    def __init__(self, kernel: Any, block: int, **options: int | bool) -> None:
        self.kernel = kernel
        self.block = block
        self.options = options
        self.variants: dict[tuple[object, ...], Direct] = {}

    def __call__(self, softcap: float, n: int, x: Tensor, y: Tensor, z: Tensor | None = None) -> None:
        """Launch over ``n >= 1`` elements of tensors that are contiguous and on one device."""
        device = x.get_device()
        if device >= 0 and device != _current_device():  # below 0: the CPU, in the interpreter
            with torch.cuda.device(device):
                return self(softcap, n, x, y, z)
        blocks = -(-n // self.block)
        reciprocal = negative_reciprocal(softcap)
        at_x, at_y, at_z = x.data_ptr(), y.data_ptr(), 0 if z is None else z.data_ptr()
        key = (device, x.dtype, at_x & 15, at_y & 15, at_z & 15)
        # Address 0 is that of a tensor without memory of its own, such as a DTensor: it has no launch to remember.
        variant = self.variants.get(key) if at_x and at_y and (z is None or at_z) else None
        # The default hook is an empty chain, anything else was put there by a profiler or a test.
        enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
        hooked = self.kernel.pre_run_hooks or getattr(enter, "calls", enter) or getattr(leave, "calls", leave)
        ordinary = not hooked and (not _IS_HIP or _small(x, y, z))
        if variant is None or not ordinary:
            tensors = (x, y) if z is None else (x, y, z)
            _refuse_without_memory(tensors)
            options = {"BLOCK": self.block, "reciprocal": reciprocal, **self.options}
            launched = self.kernel[(blocks,)](*tensors, softcap, n, **options)
            # The interpreter gives None, asynchronous compilation a future.
            complete = all(hasattr(launched, name) for name in ("run", "function", "packed_metadata"))
            if complete and ordinary:
                self.variants[key] = _direct(launched, len(tensors))
            return None
        call, between = variant
        stream = _current_stream(device)
        if z is None:
            call(blocks, 1, 1, stream, *between, at_x, at_y, softcap, n, self.block, reciprocal)
        else:
            call(blocks, 1, 1, stream, *between, at_x, at_y, at_z, softcap, n, self.block, reciprocal)
        return None


def _refuse_without_memory(tensors: tuple[Tensor, ...]) -> None:
    for tensor in tensors:
        if tensor.data_ptr() == 0:
            kind = type(tensor).__name__
            raise RuntimeError(
                f"a Triton kernel takes tensors with memory of their own, got a {kind} without: take its local tensor"
            )


def _small(*tensors: Tensor | None) -> bool:
    """No storage is so large that Triton would specialise its pointer otherwise on HIP."""
    return all(t is None or t.untyped_storage().nbytes() <= _HIP_SMALL_STORAGE for t in tensors)


def _direct(compiled: Any, pointers: int) -> Direct:
    """How to run what Triton compiled for a kernel of that many pointers.

    Its launcher in Python hands everything to one in C, with constants in between: scratch memory, which these kernels
    do not use, and how to launch.  They are seen by having a copy of it call a recorder, and where nothing but
    constants is seen it is skipped (Triton 3.6: 3 us of 65 on an H200 host; that of 3.9 is kept).
    """
    hooks = (None, None, None)  # with what they are told
    between = (compiled.function, compiled.packed_metadata, *hooks)
    start, arguments = (1, 1, 1, 0), (*range(16, 16 * pointers + 1, 16), 1.0, 1, 1, 1.0)
    try:
        copied, seen = copy.copy(compiled.run), []
        handed_to, copied.launch = copied.launch, lambda *given: seen.append(given)
        copied(*start, *between, *arguments)
    except (AttributeError, TypeError):  # another Triton, with a launcher of another make
        return compiled.run, between
    (given,) = seen
    constants = given[len(start) : -len(arguments)]
    known = all(value is None or isinstance(value, bool) or value in between for value in constants)
    if known and given == (*start, *constants, *arguments):
        return handed_to, constants
    return compiled.run, between
