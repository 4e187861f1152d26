"""A short launch path for one kernel with one fixed configuration.

``kernel[grid](...)`` binds and specialises every argument anew on each call, which takes longer than the
kernel for decode-sized rows (14 us against 8.5 through the compiled object, measured on an H200 host).  The
traits that Triton specialises these kernels on are known here: dtypes, 16-byte alignment of each pointer,
device.  So the compiled object is remembered under them and launched directly, with raw addresses, which
also saves the launcher's driver query per pointer.  Whatever is out of the ordinary takes ``kernel[grid]``.
"""

from __future__ import annotations

from typing import Any

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


class Launcher:
    """Launches ``kernel(x, y[, z], softcap, n, BLOCK, reciprocal)`` on the tensors' device and its current stream.

    The dtype of ``x`` decides the other dtypes.  ``variants`` holds by traits what Triton compiled: how to run it,
    and with what.
    """

    def __init__(self, kernel: Any, block: int, **options: int | bool) -> None:
        self.kernel = kernel
        self.block = block
        self.options = options
        self.variants: dict[tuple[object, ...], tuple[Any, Any, Any]] = {}

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
        variant = self.variants.get(key)
        if variant is None or not self._ordinary(x, y, z):
            tensors = (x, y) if z is None else (x, y, z)
            options = {"BLOCK": self.block, "reciprocal": reciprocal, **self.options}
            launched = self.kernel[(blocks,)](*tensors, softcap, n, **options)
            # The interpreter gives None, asynchronous compilation a future.
            complete = all(hasattr(launched, name) for name in ("run", "function", "packed_metadata"))
            if complete and self._ordinary(x, y, z):
                self.variants[key] = launched.run, launched.function, launched.packed_metadata
            return None
        run, function, metadata = variant
        stream = _current_stream(device)
        pointers = (at_x, at_y) if z is None else (at_x, at_y, at_z)
        arguments = (*pointers, softcap, n, self.block, reciprocal)
        run(blocks, 1, 1, stream, function, metadata, None, None, None, *arguments)
        return None

    def _ordinary(self, *tensors: Tensor | None) -> bool:
        """No profiler or test has hooked into the launch, and no trait is left that the key does not hold."""
        enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
        # The default is an empty chain, anything else was put there by somebody.
        if self.kernel.pre_run_hooks or getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            return False
        if not _IS_HIP:
            return True
        return all(t is None or t.untyped_storage().nbytes() <= _HIP_SMALL_STORAGE for t in tensors)
