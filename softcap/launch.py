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
    """Launches ``kernel(*tensors, softcap, n, BLOCK, reciprocal)`` on the tensors' device and its current stream.

    The first tensor's dtype decides the other dtypes.  ``variants`` holds the compiled kernels by traits.
    """

    def __init__(self, kernel: Any, block: int, **options: int | bool) -> None:
        self.kernel = kernel
        self.block = block
        self.options = options
        self.variants: dict[tuple[object, ...], Any] = {}

    def __call__(self, tensors: tuple[Tensor, ...], softcap: float, n: int) -> None:
        """Launch over ``n >= 1`` elements of tensors that are contiguous and on one device."""
        first = tensors[0]
        device = first.get_device()
        if device >= 0 and device != _current_device():  # below 0: the CPU, in the interpreter
            with torch.cuda.device(device):
                return self(tensors, softcap, n)
        blocks = -(-n // self.block)
        reciprocal = negative_reciprocal(softcap)
        pointers = [tensor.data_ptr() for tensor in tensors]
        key = (device, first.dtype, *[pointer & 15 for pointer in pointers])
        compiled = self.variants.get(key)
        if compiled is None or not self._ordinary(tensors):
            launch = self.kernel[(blocks,)]
            options = {"BLOCK": self.block, "reciprocal": reciprocal, **self.options}
            return self._remember(key, launch(*tensors, softcap, n, **options), tensors)
        stream = _current_stream(device)
        function, metadata = compiled.function, compiled.packed_metadata
        arguments = (*pointers, softcap, n, self.block, reciprocal)
        compiled.run(blocks, 1, 1, stream, function, metadata, None, None, None, *arguments)
        return None

    def _ordinary(self, tensors: tuple[Tensor, ...]) -> bool:
        """No profiler or test has hooked into the launch, and no trait is left that the key does not hold."""
        enter, leave = _runtime.launch_enter_hook, _runtime.launch_exit_hook
        # The default is an empty chain, anything else was put there by somebody.
        if self.kernel.pre_run_hooks or getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            return False
        return not _IS_HIP or all(t.untyped_storage().nbytes() <= _HIP_SMALL_STORAGE for t in tensors)

    def _remember(self, key: tuple[object, ...], launched: Any, tensors: tuple[Tensor, ...]) -> None:
        """Keep what Triton chose for these traits, if it is an object that can be launched directly."""
        # The interpreter gives None, asynchronous compilation a future.
        complete = all(hasattr(launched, name) for name in ("run", "function", "packed_metadata"))
        if complete and self._ordinary(tensors):
            self.variants[key] = launched
