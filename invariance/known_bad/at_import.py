"""A right kernel in a module that seeds torch's generator: only the children that judge it import it."""

from __future__ import annotations

import torch

from invariance.known_bad.kernel import Kernel

torch.manual_seed(0)


def seeded(softcap: float) -> Kernel:
    """Right in itself."""
    return Kernel(softcap)
