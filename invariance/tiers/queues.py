"""Work queues: a counter in memory hands out the tiles of a launch, by an atomic addition each.

On a far tensor few programs are run, and no loop whole: the first ticket of a program is its number or a later one, as
where programs begin in order, and its third one is that of the last tile, if stores go on as with the first two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton.runtime.interpreter as triton_interpreter

from invariance.tiers.orders import Grid
from invariance.tiers.patches import Patches

Place = tuple[int, int]  # the addresses of a tensor: of its first byte, behind its last one


@dataclass
class _Ticket:
    """A number that a program took, and the address behind the farthest element that it stored with it, by place."""

    number: int
    ends: dict[Place, int] = field(default_factory=dict)


class Queues:
    """The counters of a launch, by address, and the tickets that the program which runs has taken from each."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._program: Grid | None = None
        self._taken: dict[int, list[_Ticket]] = {}
        self._latest: _Ticket | None = None

    def stored(self, end: int, place: Place) -> None:
        """The program stores so far."""
        if self._latest is not None:
            self._latest.ends[place] = max(self._latest.ends.get(place, 0), end)

    def following(self, counter: int, now: int, step: int) -> int:
        """What a counter that stands at `now` hands out next."""
        builder = triton_interpreter.interpreter_builder
        program, (x, y, _) = builder.grid_idx, builder.grid_dim
        if program != self._program:
            self._program, self._taken = program, {}
        taken, number = self._taken.setdefault(counter, []), now
        if not taken:
            index = program[0] + x * (program[1] + y * program[2])
            number = max(now, self._first.setdefault(counter, now) + index * step)
        elif len(taken) == 2:
            number = max(now, _last(*taken))
        self._latest = _Ticket(number)
        taken.append(self._latest)
        return number


def _last(first: _Ticket, second: _Ticket) -> int:
    """The ticket that reaches the end of what the first two stored to; 0 where they tell nothing."""
    for place, end in second.ends.items():
        before = first.ends.get(place, end)
        if before < end:
            steps = -((before - place[1]) // (end - before))
            return first.number + steps * (second.number - first.number)
    return 0


def hand_out_the_ends(patches: Patches, queues: Callable[[], Queues]) -> None:
    """Have atomic additions of a positive integer to a single one go by `queues()`, those of the launch that runs."""
    builder, interpreter = triton_interpreter.interpreter_builder, triton_interpreter._interpreter
    addition, rmw = triton_interpreter._ir.ATOMIC_OP.ADD, builder.create_atomic_rmw

    def create_atomic_rmw(operation: Any, pointer: Any, value: Any, mask: Any, *rest: Any) -> Any:
        counts = operation == addition and value.data.size == 1 and np.asarray(mask.data).all()
        if counts and int(value.data.item()) > 0:
            kind = value.data.dtype
            now = int(interpreter.load(pointer.data, mask.data, np.zeros_like(value.data), kind).item())
            number = queues().following(int(pointer.data.item()), now, int(value.data.item()))
            if now < number <= np.iinfo(kind).max:
                interpreter.store(pointer.data, np.full_like(value.data, number), mask.data)
        return rmw(operation, pointer, value, mask, *rest)

    patches.set(builder, "create_atomic_rmw", create_atomic_rmw)
