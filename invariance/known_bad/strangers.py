"""Triton kernels that are no edits of the shipped ones: launches as others write them, wrong and right."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from invariance.known_bad.entry import good, wrong
from invariance.known_bad.kernel import Kernel
from invariance.process import resolve

LAUNCHES = ("cap_resolution", "every_configuration", "far_offsets", "program_order")
_CARELESS = "careless_kernels"
_CALLS = (
    "layout",
    "slicing",
    "inputs_unmodified",
    "guard_bands",
    "freed_memory",
    "empty_and_scalar",
    "bad_caps",
    *LAUNCHES,
)


def _stranger(launch: str, softcap: float, module: str = "stranger_kernels", **how: Any) -> Any:
    """The operator around a launch of such a kernel, in the interpreter; the gradient is PyTorch's."""
    into = partial(resolve(f"invariance.known_bad.{module}:{launch}"), **how)

    def forward(x: Tensor, cap: float) -> Tensor:
        y = torch.empty(x.shape, dtype=torch.float32, device=x.device)
        if x.numel():
            into(x.resolve_neg(), y, cap)  # a kernel sees memory, and no bit that negates it
        return y

    return resolve("invariance.tiers.interpreter:InterpretedOp")(Kernel(softcap, forward))


@wrong(bugs=(74, 75), must={"far_offsets"}, tier="interpreter", laws=LAUNCHES)
def blocks_in_32_bits(softcap: float) -> Any:
    """Program number times block, in 32 bits."""
    return _stranger("blocks", softcap, wide=False)


@wrong(bugs=(75, 78), must={"far_offsets"}, tier="interpreter", laws=LAUNCHES)
def rows_in_32_bits(softcap: float) -> Any:
    """Row times stride, in 32 bits."""
    return _stranger("rows", softcap, wide=False)


@wrong(bugs=(75,), must={"far_offsets"}, tier="interpreter", laws=LAUNCHES)
def persistent_in_32_bits(softcap: float) -> Any:
    """A persistent kernel whose loop counter, 32 bits wide, is multiplied by the block."""
    return _stranger("persistent", softcap, wide=False)


@wrong(bugs=(74, 75), must={"far_offsets"}, tier="interpreter", laws=("far_offsets",))
def queue_in_32_bits(softcap: float) -> Any:
    """A work queue, an atomic addition a tile, whose ticket is multiplied by the block in 32 bits."""
    return _stranger("queue", softcap, wide=False)


@wrong(bugs=(75,), must={"far_offsets"}, tier="interpreter", laws=("far_offsets",))
def columns_in_32_bits(softcap: float) -> Any:
    """Column times stride, in 32 bits: columns of logits that are a transposed view."""
    return _stranger("strided", softcap)


@wrong(bugs=(74, 77), must={"far_offsets"}, tier="interpreter", laws=("far_offsets",))
def grid_that_ends(softcap: float) -> Any:
    """At most 2^20 programs, and none of them takes a second block: the rest is never written."""
    return _stranger("at_most", softcap)


@wrong(bugs=(77,), must={"far_offsets"}, tier="interpreter", laws=("far_offsets",))
def blocks_along_the_second_axis(softcap: float) -> Any:
    """More than 65,535 programs along the second axis of a grid, which CUDA does not launch."""
    return _stranger("second_axis", softcap)


@wrong(bugs=(77,), must={"far_offsets"}, tier="interpreter", laws=("far_offsets",))
def one_block_for_all(softcap: float) -> Any:
    """All elements in one block, which from 2^20 on does not compile."""
    return _stranger("whole", softcap)


@wrong(bugs=(28, 25), must={"slicing"}, tier="interpreter", laws=("slicing",))
def adds_masked_lanes(softcap: float) -> Any:
    """Two masked loads are added up, neither of which says what its other lanes hold."""
    return _stranger("two_loads", softcap, _CARELESS)


@wrong(bugs=(72,), must={"slicing"}, tier="interpreter", laws=("slicing",))
def pairs_at_once(softcap: float) -> Any:
    """Two FP32 elements are one load of 64 bits: half of all slices begin at no multiple of 8 bytes."""
    return _stranger("pairs", softcap, _CARELESS)


@wrong(bugs=(72,), must={"slicing"}, tier="interpreter", laws=("slicing",))
def promises_aligned_pointers(softcap: float) -> Any:
    """The compiler is told that the pointers of a block begin on 16 bytes: a slice does not."""
    return _stranger("hinting", softcap, _CARELESS, hint="pointers")


@wrong(bugs=(28, 72), must={"slicing"}, tier="interpreter", laws=("slicing",))
def promises_a_multiple_of_16(softcap: float) -> Any:
    """The compiler is told that the number of elements is a multiple of 16."""
    return _stranger("hinting", softcap, _CARELESS, hint="n")


@wrong(bugs=(28,), must={"slicing"}, tier="interpreter", laws=("slicing",))
def promises_whole_vectors(softcap: float) -> Any:
    """The compiler is told that four lanes are masked or none is: the last vector is stored past the end."""
    return _stranger("hinting", softcap, _CARELESS, hint="mask")


@wrong(bugs=(57, 60), must={"slicing"}, tier="interpreter", laws=("slicing",))
def promises_neighbours(softcap: float) -> Any:
    """The compiler is told that four elements of a row lie side by side, whatever the strides."""
    return _stranger("neighbourly", softcap, _CARELESS)


@wrong(bugs=(74, 75), must={"far_offsets"}, tier="interpreter", laws=("far_offsets",))
def promises_few_elements(softcap: float) -> Any:
    """The compiler may assume that there are fewer than 2^31 elements."""
    return _stranger("hinting", softcap, _CARELESS, hint="few")


@wrong(bugs=(90,), must={"program_order"}, tier="interpreter", laws=LAUNCHES, elements=300)
def looks_at_its_neighbour(softcap: float) -> Any:
    """A program loads what the one before it stores."""
    return _stranger("neighbours", softcap)


@wrong(bugs=(90,), must={"program_order"}, tier="interpreter", laws=("program_order",), elements=300)
def shares_its_scratch(softcap: float) -> Any:
    """All programs keep what they compute in one tile, each for a moment."""
    return _stranger("scratch", softcap)


@wrong(bugs=(90,), must={"program_order"}, tier="interpreter", laws=("program_order",))
def clamps_its_lanes(softcap: float) -> Any:
    """Lanes before the beginning store to the first element too, each its own value; here the last one stays."""
    return _stranger("clamped", softcap, _CARELESS)


@wrong(bugs=(88,), must={"every_configuration"}, tier="interpreter", laws=LAUNCHES)
def division_by_configuration(softcap: float) -> Any:
    """The autotuner chooses between a division and a reciprocal."""
    return _stranger("autotuned_fast", softcap)


@wrong(bugs=(88, 92), must={"every_configuration"}, tier="interpreter", laws=("every_configuration",))
def measured_in_place(softcap: float) -> Any:
    """An autotuned kernel works in place, and is run again and again while the autotuner measures."""
    return _stranger("autotuned_in_place", softcap)


@wrong(bugs=(91, 13), must={"cap_resolution"}, tier="interpreter", laws=LAUNCHES)
def cap_in_16_bits(softcap: float) -> Any:
    """The cap goes through BF16 on its way to the kernel."""
    return _stranger("blocks", float(torch.tensor(softcap, dtype=torch.bfloat16)))


@wrong(bugs=(91, 13), must={"cap_resolution"}, tier="interpreter", laws=LAUNCHES)
def cap_in_five_digits(softcap: float) -> Any:
    """The cap is printed into the kernel's source, to five digits."""
    return _stranger("blocks", float(f"{softcap:.5g}"))


@good(tier="interpreter", laws=_CALLS)
def rows_as_programs(softcap: float) -> Any:
    """One row a program, whatever the stride between rows."""
    return _stranger("rows", softcap)


@good(tier="interpreter", laws=_CALLS)
def persistent_programs(softcap: float) -> Any:
    """A few programs share all blocks."""
    return _stranger("persistent", softcap)


@good(tier="interpreter", laws=("layout", "slicing", "far_offsets"))
def work_queue(softcap: float) -> Any:
    """A few programs take tiles from a counter, as many as each gets."""
    return _stranger("queue", softcap)


@good(tier="interpreter", laws=_CALLS)
def autotuned_blocks(softcap: float) -> Any:
    """Two block sizes, and the autotuner's choice shows in no bit."""
    return _stranger("autotuned", softcap)


@good(tier="interpreter", laws=("layout", "slicing", "far_offsets"))
def promises_that_hold(softcap: float) -> Any:
    """What the compiler is told of a block is so for every block."""
    return _stranger("hinting", softcap, _CARELESS, hint="block")


@good(tier="interpreter", laws=("layout", "every_configuration"))
def measured_and_restored(softcap: float) -> Any:
    """It works in place too, and the autotuner is told to restore what it finds."""
    return _stranger("autotuned_in_place", softcap, restored=True)
