"""Wrong caps: another number than the one given, or the one given to somebody else."""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from invariance.known_bad.entry import wrong
from invariance.known_bad.kernel import Kernel, capped, gradient
from oracles.formats import cap_as_fp32


def _with_cap(softcap: Any, change: Any) -> Kernel:
    """The right kernel at a changed cap; what must be refused still is."""
    return Kernel(softcap, cap=lambda given: change(cap_as_fp32(given)))


@wrong(
    bugs=(13, 7),
    must={
        "bound",
        "cap_scaling",
        "cap_used",
        "double_backward",
        "exact_value",
        "saturation",
        "special_values",
        "specification",
    },
)
def hard_coded(softcap: float) -> Kernel:
    """30 stands in the kernel, whatever cap is asked for."""
    return _with_cap(softcap, lambda _: 30.0)


@wrong(bugs=(91,), must={"cap_used", "exact_value", "saturation", "special_values", "specification"})
def rounded_to_bf16(softcap: float) -> Kernel:
    """The cap is kept in BF16."""
    return _with_cap(softcap, lambda c: float(torch.tensor(c, dtype=torch.float32).bfloat16()))


@wrong(bugs=(4, 91), must={"cap_used"}, caps=(20.0,))
def rounded_to_fp16(softcap: float) -> Kernel:
    """The cap is kept in FP16: the usual caps survive, others lose digits, large ones become infinite."""
    return _with_cap(
        softcap, lambda c: min(max(float(torch.tensor(c, dtype=torch.float32).half()), 2.0**-60), 2.0**60)
    )


@wrong(
    bugs=(91,),
    must={
        "cap_scaling",
        "cap_used",
        "double_backward",
        "exact_value",
        "saturation",
        "special_values",
        "specification",
    },
)
def truncated_to_int(softcap: float) -> Kernel:
    """The cap is an int argument of the kernel."""
    return _with_cap(softcap, lambda c: float(max(int(c), 1)))


@wrong(bugs=(91,), must={"bad_caps", "cap_used"})
def ints_misread(softcap: float) -> Kernel:
    """A cap given as a Python int arrives as the default."""
    return Kernel(
        softcap, cap=lambda given: 30.0 if isinstance(given, int) and given > 0 else cap_as_fp32(given)
    )


@wrong(
    bugs=(17,),
    must={
        "bound",
        "cap_used",
        "double_backward",
        "exact_value",
        "saturation",
        "special_values",
        "specification",
    },
)
def doubled(softcap: float) -> Kernel:
    """The configuration's cap and the layer's own are added."""
    return _with_cap(softcap, lambda c: c + c)


@wrong(
    bugs=(7,),
    must={"cap_scaling", "cap_used", "double_backward", "exact_value", "special_values", "specification"},
)
def gradient_at_30(softcap: float) -> Kernel:
    """The backward was compiled for a cap of 30 and not again."""
    return Kernel(softcap, backward=lambda x, g, _: gradient(x, g, 30.0))


class _Buffered(torch.nn.Module):
    """The right kernel, whose cap is a buffer of the model."""

    def __init__(self, softcap: float) -> None:
        super().__init__()
        self.kernel = Kernel(softcap)
        self.cap = torch.nn.Buffer(torch.tensor(self.kernel.softcap, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return self.kernel.replace(cap=lambda _: float(self.cap))(x)


@wrong(bugs=(91, 4), must={"model_dtype"})
def cap_in_a_buffer(softcap: float) -> Any:
    """The cap is a buffer of a module: `model.bfloat16()` rounds it with the weights."""
    return _Buffered(softcap)


_first: list[float] = []


@wrong(bugs=(7, 14), must={"cap_scaling", "cap_used", "fresh_process"})
def first_cap_sticks(softcap: float) -> Kernel:
    """The first cap that a process asks for is compiled in, and all others get it too."""

    def compiled(c: float) -> float:
        _first.append(c)
        return _first[0]

    return _with_cap(softcap, compiled)


_seen: dict[float, None] = {}


@wrong(bugs=(7, 31), must={"cap_scaling", "cap_used", "fresh_process"})
def stale_from_the_third(softcap: float) -> Kernel:
    """From the third cap of a process on, the second one's code is reused."""

    def compiled(c: float) -> float:
        if len(_seen) < 2 or c in _seen:
            _seen[c] = None
            return c
        return list(_seen)[1]

    return _with_cap(softcap, compiled)


_last: list[float] = [0.0]


@wrong(bugs=(7,), must={"fresh_process", "interleaved_caps"})
def last_built_wins(softcap: float) -> Kernel:
    """The cap lives in the module, not in the operator: whoever is built last sets it for all."""
    kernel = Kernel(softcap, lambda x, _: capped(x, _last[0]), lambda x, g, _: gradient(x, g, _last[0]))
    _last[0] = kernel.softcap
    return kernel


_taken = count()
_sixteen, _thirty_two = [0.0] * 16, [0.0] * 32


def _in_its_place(softcap: float, places: list[float]) -> Kernel:
    """A kernel that reads its cap from one of the places, which operators take in turn."""
    place = next(_taken) % len(places)
    places[place] = cap_as_fp32(softcap)
    return Kernel(
        softcap,
        lambda x, _: capped(x, places[place]),
        lambda x, g, _: gradient(x, g, places[place]),
    )


@wrong(bugs=(7,), must={"interleaved_caps"})
def one_of_sixteen_places(softcap: float) -> Kernel:
    """The caps of a process have sixteen places: the seventeenth operator overwrites the first one's."""
    return _in_its_place(softcap, _sixteen)


@wrong(bugs=(7,), must={"interleaved_caps"})
def one_of_thirty_two_places(softcap: float) -> Kernel:
    """The caps of a process have 32 places: the 33rd operator overwrites the first one's."""
    return _in_its_place(softcap, _thirty_two)


_alive: WeakValueDictionary[int, Kernel] = WeakValueDictionary()


@wrong(bugs=(7,), must={"interleaved_caps"}, may={"cap_scaling"})
def beside_its_double(softcap: float) -> Kernel:
    """One buffer for operators of a cap and of its double: the smaller one is wrong while the larger one lives."""

    def own(c: float) -> float:
        return c * 1.01 if any(other.softcap == 2 * c for other in list(_alive.values())) else c

    kernel = Kernel(softcap, lambda x, c: capped(x, own(c)), lambda x, g, c: gradient(x, g, own(c)))
    _alive[id(kernel)] = kernel
    return kernel


_by_key: dict[str, float] = {}


@wrong(bugs=(7,), must={"fresh_process"})
def coarse_cache_key(softcap: float) -> Kernel:
    """Compiled code is cached under the cap printed with four digits: a neighbour gets the first one's code."""
    return _with_cap(softcap, lambda c: _by_key.setdefault(f"{c:.4g}", c))


@wrong(bugs=(7, 106), must={"interleaved_caps", "threads_at_once"})
def backward_of_the_last_forward(softcap: float) -> Kernel:
    """The backward takes the cap of whatever forward ran last."""
    current = _last_forward

    def forward(x: Tensor, c: float) -> Tensor:
        current[0] = c
        return capped(x, c)

    return Kernel(softcap, forward, lambda x, g, _: gradient(x, g, current[0]))


_last_forward: list[float] = [0.0]
