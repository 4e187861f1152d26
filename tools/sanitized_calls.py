"""A few calls of the operator, for a memory checker to watch.

PYTHONPATH=. compute-sanitizer --tool memcheck python3 tools/sanitized_calls.py

Without PyTorch's caching allocator every tensor is an allocation of its own, so that one byte beyond it is an error;
set PYTORCH_NO_CUDA_MEMORY_CACHING=1, as `tools/evidence.py` does.
"""

from __future__ import annotations

import torch

from softcap import TritonFinalLogitSoftcapOp
from softcap.triton_op import SMALL

# Around the small block and the large one, and beyond SMALL elements, where the large one is used.
SIZES = (1, 2, 17, 511, 512, 513, 4099, SMALL + 1, SMALL + 1023, SMALL + 1024)


def main() -> None:
    """Forward and backward over sizes around the block, aligned and not, contiguous and not, in every dtype."""
    calls = 0
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for size in SIZES:
            for cap in (20, 30):
                plain = torch.linspace(-90, 90, size + 1, device="cuda").to(dtype)
                strided = torch.stack([plain, plain], -1)[..., 0]
                for x in (plain, plain[1:], strided):
                    leaf = x.detach().requires_grad_()
                    y = TritonFinalLogitSoftcapOp(cap)(leaf)
                    torch.autograd.grad(y.sum(), leaf)
                    calls += 1
    torch.cuda.synchronize()
    print(f"{calls} forward and backward calls")


if __name__ == "__main__":
    main()
