"""What an interpreted launch can end in, beside its result; without Triton, for laws and the runner know these."""

from __future__ import annotations

import math
from typing import Any

MOST_PROGRAMS = 8_000  # a cell: half a millisecond each on an idle core, where a cell has 60 s

MOST_CONFIGURATIONS = 16  # of an autotuned kernel; each costs a law a call


class Fault(RuntimeError):
    """What a GPU would have done in silence: a launch that is wrong whatever it computed."""


class OutOfBounds(Fault):
    """Lanes of one access fell outside the tensor.

    ``what`` (load, store, atomic), ``tensor`` (parameter name) and ``offset`` (first bad lane, in elements
    from the tensor's first one, may be negative), None where a pointer comes from no argument, ``lanes`` and
    ``active`` (bad and all active lanes), ``program`` (x, y, z).  An address would be another one in each process.
    """

    def __init__(
        self, what: str, extent: Any, offset: int | None, lanes: int, active: int, program: Any
    ) -> None:
        self.what, self.tensor, self.offset = what, None if extent is None else extent.name, offset
        self.lanes, self.active, self.program = lanes, active, program
        where = "every tensor of the launch" if extent is None else extent
        first = "the first" if offset is None else f"the first at element offset {offset}"
        super().__init__(
            f"{what}: {lanes} of {active} active lanes outside {where}; {first} in program {program}"
        )


class Misaligned(Fault):
    """Lanes of one access are wider than their addresses allow: a GPU faults, a CPU does not mind.

    ``what``, ``tensor``, ``offset``, ``program`` as those of OutOfBounds; ``width``: bytes of a lane.
    """

    def __init__(self, what: str, extent: Any, offset: int | None, width: int, program: Any) -> None:
        self.what, self.tensor, self.offset = what, None if extent is None else extent.name, offset
        self.width, self.program = width, program
        where = "" if extent is None else f", the first at element offset {offset} of {extent},"
        super().__init__(
            f"{what}: lanes of {width} bytes{where} at no multiple of {width} in program {program}"
        )


class Race(Fault):
    """One program of a launch met what another one stored, or loaded; on a GPU nothing says which comes first.

    Where `other` is None, lanes of one store met: they have one address and different values.
    """

    def __init__(
        self, what: str, extent: Any, offset: int | None, program: Any, other: Any, did: str = "stored"
    ) -> None:
        self.what, self.tensor, self.offset = what, None if extent is None else extent.name, offset
        self.program, self.other = program, other
        who = f"the {what} of program {program} meets what program {other} of the same launch {did}"
        if other is None:
            who = f"lanes of one {what} of program {program} give different values to one element"
        super().__init__(f"race: {who}, in {extent or 'a tensor'} at element offset {offset}")


class BrokenPromise(Fault):
    """A hint to the compiler is false: ``hint``, ``kernel``, ``place`` (file and line), ``program`` (x, y, z).

    On a GPU the code is made for what was promised, and nobody looks whether it holds.
    """

    def __init__(self, kernel: str, hint: str, what: str, program: Any, place: str) -> None:
        self.kernel, self.hint, self.program, self.place = kernel, hint, program, place
        super().__init__(f"{hint} is a false hint in {kernel} ({place}): {what} in program {program}")


class NoLaunch(Fault):
    """A GPU would not have launched it: more programs along an axis of the grid than CUDA knows."""

    def __init__(self, kernel: str, axis: int, size: int, most: int) -> None:
        self.kernel, self.axis, self.size, self.most = kernel, axis, size, most
        super().__init__(
            f"the launch of {kernel} asks for {size:,} programs along axis {axis} ({'xyz'[axis]}) of the grid, where "
            f"CUDA allows {most:,}"
        )


class GaveUp(BaseException):
    """The interpreter is too slow for this; nothing is known of the candidate.

    No Exception, so that neither a candidate that falls back nor a law that expects a refusal takes it for one.
    """


class Budget:
    """The programs that may still be interpreted before the runner goes on to something else; any, until renewed."""

    def __init__(self) -> None:
        self.left: float = math.inf

    def renew(self) -> None:
        """Start counting anew: another cell, or the explanation of its failure."""
        self.left = MOST_PROGRAMS

    def require(self, programs: int) -> None:
        """Raises GaveUp where so many do not fit; asked between programs, so one that never ends is no excuse."""
        if programs > self.left:
            raise GaveUp(
                f"more than {MOST_PROGRAMS:,} programs, which the interpreter runs one after another, half a "
                "millisecond each and more"
            )

    def spend(self, programs: int) -> None:
        """Count them, once they ran."""
        self.left -= programs


BUDGET = Budget()
"""This process's. A child judges one cell at a time."""
