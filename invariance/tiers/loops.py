"""Loops of a kernel as a GPU counts them; the interpreter counts with Python's integers, which have no width."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import index
from typing import Any

import numpy as np
import triton.language as tl
import triton.runtime.interpreter as triton_interpreter


def counted(*bounds: Any, ends: bool = False, **_: Any) -> Iterator[Any]:
    """What stands for `range` and `tl.range`: counters are 32 bits wide, and 64 if a bound is.

    ends: run the first two rounds and the last two.
    """
    values = [index(bound.value if isinstance(bound, tl.constexpr) else bound) for bound in bounds[:3]]
    rounds = range(*values)
    wide = any(isinstance(bound, tl.tensor) and bound.dtype == tl.int64 for bound in bounds)
    wide |= any(not -(2**31) <= value < 2**31 for value in values)
    storage, kind = (np.int64, tl.int64) if wide else (np.int32, tl.int32)
    for value in (*rounds[:2], *rounds[-2:]) if ends and len(rounds) > 4 else rounds:
        yield tl.tensor(triton_interpreter.TensorHandle(np.array([value], dtype=storage), kind), kind)


counted_at_the_ends = partial(counted, ends=True)
