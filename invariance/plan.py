"""Which cells there are, and which cases each is judged on. Fixed by (settings, seed): no clock, no Hypothesis.

pytest parametrises over `cells`, the command loops over it, and both judge `cases(cell, ...)`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from math import prod

from invariance.checkers import LAWS, Law, load_laws
from invariance.offered import DEFAULT_CAPS, DTYPES, PROFILES, ROUNDINGS, is_cap
from invariance.verdict import Cell
from strategies.caps import TELLING
from strategies.case import Case
from strategies.layouts import LAYOUTS
from strategies.shapes import NAMED, Shape, up_to
from strategies.upstream import UPSTREAM
from strategies.values import VALUES

# Not offered by the command: for kernels that run a hundred times slower in the interpreter.
LEAST = "least"

# One shape or more of every family in strategies.shapes: ends of vectors, of blocks and of row counts, 0-d and empty
# ones. `thorough` takes all of them.
_QUICK: tuple[Shape, ...] = ((), (0,), (9,), (2, 3, 5), (257, 3), (1025,), (2, 1, 2, 2, 1, 3))
_DEFAULT: tuple[Shape, ...] = (
    *_QUICK, (1,), (3, 0), (7,), (8,), (17,), (1, 7), (3, 5), (2, 2, 3, 5), (2, 1, 3, 2, 7), (255,), (256,), (257,),
    (1023,), (1024,), (2049,), (255, 3), (256, 3), (2, 384), (2, 3, 1003),
    (4, 4099), (2049, 17), (65537,),
)  # fmt: skip
_LEAST: tuple[Shape, ...] = ((2, 3, 5), (1025,))
LARGEST_SEAM, LARGE = 1 << 17, 1 << 15  # elements
# What a kernel does at the size of a model: more than 2^21 elements; one row of the largest vocabulary, a power of two;
# more rows than two 16-bit axes of a grid hold. One law sees it, for it costs as much as all the others' shapes
# together; no quick judgement does.
MODELS: dict[str, tuple[Shape, ...]] = {
    "default": (NAMED["wide"], NAMED["decode"], NAMED["many_rows"]),
    "thorough": tuple(NAMED.values()),
}
# Large enough for the tiles of a transposing kernel, seen by the law of layouts; and where a kernel starts to keep a
# workspace or to work in place, over 2^17 elements in rows as wide as a vocabulary, seen by the laws about memory; two
# of them see over 2^18 elements too.
TRANSPOSED: Shape = (5, 30011)
WORKSPACE: Shape = (3, 43691)
TWO_TOKENS: Shape = (2, 151936)

# Cases drawn by hash on top of the seams, and examples that exploration adds to a law and pass.
DRAWN = {LEAST: 0, "quick": 1, "default": 6, "thorough": 60}
EXPLORED = {LEAST: 1, "quick": 4, "default": 25, "thorough": 200}


@dataclass(frozen=True)
class Settings:
    """What was asked for. Only what changes a verdict or its numbers stands here."""

    caps: tuple[float | int, ...] = DEFAULT_CAPS
    dtypes: tuple[str, ...] = DTYPES
    device: str = "cpu"
    profile: str = "default"
    seed: int = 0
    laws: tuple[str, ...] = ()
    extra_shape: tuple[int, ...] | None = None
    rounding: str = "once"

    def __post_init__(self) -> None:
        """Each cap once, by value; ValueError for an empty or an unknown choice."""
        object.__setattr__(self, "caps", tuple(dict.fromkeys(self.caps)))
        object.__setattr__(self, "dtypes", tuple(dict.fromkeys(self.dtypes)))
        if not self.caps or not self.dtypes:
            raise ValueError(f"nothing to judge: caps {self.caps}, dtypes {self.dtypes}")
        if bad := [cap for cap in self.caps if not is_cap(cap)]:
            raise ValueError(f"{bad[0]!r} is no cap: give finite, positive numbers, also in FP32, such as 30")
        if unknown := [dtype for dtype in self.dtypes if dtype not in DTYPES]:
            raise ValueError(f"no dtype {', '.join(map(str, unknown))}: there are {', '.join(DTYPES)}")
        if self.profile not in (*PROFILES, LEAST):
            raise ValueError(f"no profile {self.profile!r}: there are {', '.join(PROFILES)}")
        if self.rounding not in ROUNDINGS:
            raise ValueError(f"no rounding {self.rounding!r}: there are {', '.join(ROUNDINGS)}")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed {self.seed!r} is not a whole number of at least 0")

    def as_json(self) -> dict[str, object]:
        """As plain data, for the JSON report."""
        return {
            "caps": list(self.caps),
            "dtypes": list(self.dtypes),
            "device": self.device,
            "profile": self.profile,
            "seed": self.seed,
            "laws": sorted(self.laws) or "all",
            "extra_shape": None if self.extra_shape is None else list(self.extra_shape),
            "rounding": self.rounding,
        }


def laws(settings: Settings) -> list[Law]:
    """The laws that are stated for what was asked for, in the order of their files; device laws on a device only.

    ValueError for a law that was asked for by name and says nothing here.
    """
    known = load_laws()
    if unknown := sorted(set(settings.laws) - set(known)):
        near = dict.fromkeys(name for law in unknown for name in get_close_matches(str(law), known, 2))
        meant = f"near it: {', '.join(near)}; " if near else ""
        raise ValueError(f"no law {', '.join(map(str, unknown))}: {meant}there are {', '.join(sorted(known))}")
    for name in settings.laws:
        if known[name].device and settings.device == "cpu":
            raise ValueError(f"law {name} needs an accelerator, and the device is cpu")
        if not set(known[name].dtypes) & set(settings.dtypes):
            stated = ", ".join(known[name].dtypes)
            raise ValueError(f"law {name} is stated for {stated}, not for {', '.join(settings.dtypes)}")
    chosen = [known[name] for name in settings.laws] if settings.laws else list(known.values())
    return [law for law in chosen if not law.device or settings.device != "cpu"]


def takes_any_shape(law: Law) -> bool:
    """Whether the law is judged on a shape that was asked for."""
    return law.inputs in ("general", "domain")


def seams(profile: str) -> tuple[Shape, ...]:
    """The shapes at which kernels break, as many as the profile affords."""
    return {LEAST: _LEAST, "quick": _QUICK, "default": _DEFAULT}.get(profile) or up_to(LARGEST_SEAM)


def cells(candidate: str, settings: Settings) -> list[Cell]:
    """Every cell of the plan: the passes, dtypes and caps that each law is declared for."""
    return [
        Cell(candidate, law.id, pass_, dtype, cap)
        for law in laws(settings)
        for pass_ in law.passes
        for dtype in settings.dtypes
        if dtype in law.dtypes
        for cap in (settings.caps if law.each_cap else settings.caps[:1])
    ]


def cases(cell: Cell, settings: Settings) -> list[Case]:
    """The cases of a cell; the asked-for shape comes last, in every law that takes general inputs."""
    law = LAWS[cell.law]
    found = list(FAMILIES[law.inputs](_Frame(cell, settings)))
    if settings.extra_shape is not None and takes_any_shape(law):
        found.append(_Frame(cell, settings).case(settings.extra_shape, number=len(found)))
    return found


@dataclass(frozen=True)
class _Frame:
    """What all cases of a cell share; builds a case from the few things that vary."""

    cell: Cell
    settings: Settings
    names: tuple[tuple[str, ...], ...] = field(
        default=(
            tuple(sorted(LAYOUTS)),
            tuple(sorted(n for n in VALUES if n != "domain")),
            tuple(sorted(UPSTREAM)),
        )
    )

    def seed(self, number: int) -> int:
        """63 bits from (seed, cell, number): the candidate's name has no part in it."""
        cell = self.cell
        text = f"{self.settings.seed}|{cell.law}|{cell.pass_}|{cell.dtype}|{float(cell.cap).hex()}|{number}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1

    def case(
        self,
        shape: tuple[int, ...],
        *,
        number: int,
        layout: str = "contiguous",
        values: str = "mixed",
        **knobs: str,
    ) -> Case:
        if mode := self.modes[(self.seed(0) + number) % len(self.modes)]:  # another one first in every cell
            knobs["mode"] = mode
        return Case(
            shape,
            self.cell.dtype,
            self.cell.cap,
            layout,
            values,
            self.seed(number),
            tuple(sorted(knobs.items())),
        )

    def shapes(self) -> tuple[Shape, ...]:
        """The seam shapes; the large ones, most of the time that a cell takes, at the first cap only."""
        every = seams(self.settings.profile)
        if self.at_a_later_cap:
            return tuple(shape for shape in every if prod(shape) < LARGE)
        return every

    @property
    def modes(self) -> tuple[str, ...]:
        """What the cases of the cell take turns in."""
        return LAWS[self.cell.law].modes(self.cell.pass_)

    @property
    def at_a_later_cap(self) -> bool:
        return self.cell.cap in self.settings.caps[1:]

    def large(self) -> tuple[tuple[Shape, str], ...]:
        """The sizes of real models, as many as the profile affords, and the layout that each comes in."""
        models = MODELS.get(self.settings.profile, ())
        if not models or self.at_a_later_cap:
            return ()
        in_one_law = {
            "splitting": [(shape, "contiguous") for shape in models],
            "layout": [(TRANSPOSED, "transposed")],
            "reshaping": [(NAMED["decode"], "contiguous")],  # pieces of a decode step may be of its kind too
            "inputs_unmodified": [(WORKSPACE, "contiguous")],
            "no_aliasing": [(TWO_TOKENS, "contiguous")],
            "memory_released": [(TWO_TOKENS, "contiguous")],
        }
        return tuple(in_one_law.get(self.cell.law, ()))

    def drawn(self, shapes: tuple[tuple[int, ...], ...], number: int) -> Case:
        """A case whose shape, layout, values and upstream gradient the hash chooses."""
        draw = Case((), self.cell.dtype, self.cell.cap, seed=self.seed(number)).pick
        layouts, values, upstream = self.names
        return self.case(
            shapes[draw("shape", 0, len(shapes) - 1)],
            number=number,
            layout=layouts[draw("layout", 0, len(layouts) - 1)],
            values=values[draw("values", 0, len(values) - 1)],
            grad_values=upstream[draw("grad_values", 0, len(upstream) - 1)],
            grad_layout=layouts[draw("grad_layout", 0, len(layouts) - 1)],
        )


def general(frame: _Frame) -> Iterator[Case]:
    """Every seam shape, with layouts, values and upstream gradients taking turns; then hash-drawn cases."""
    shapes = frame.shapes()
    layouts, values, upstream = frame.names
    for number, shape in enumerate(shapes):
        yield frame.case(
            shape,
            number=number,
            layout=layouts[number % len(layouts)],
            values=values[number % len(values)],
            grad_values=upstream[number % len(upstream)],
            grad_layout=layouts[(number // 2) % len(layouts)],
        )
    for number in range(len(shapes), len(shapes) + DRAWN[frame.settings.profile]):
        yield frame.drawn(shapes, number)
    for number, (shape, layout) in enumerate(frame.large(), len(shapes) + DRAWN[frame.settings.profile]):
        # "bits" are built fastest
        yield frame.case(shape, number=number, layout=layout, values="bits", grad_layout=layout)


def domain(frame: _Frame) -> Iterator[Case]:
    """All 65,536 patterns of a 16-bit dtype, a dense stratified set of FP32; then general inputs."""
    sizes = {LEAST: 1 << 12, "quick": 1 << 14, "default": 1 << 16, "thorough": 1 << 20}
    size = 1 << 16 if frame.cell.dtype != "fp32" else sizes[frame.settings.profile]
    yield frame.case((size,), number=-1, values="domain", grad_values="hashed")
    yield from general(frame)


def table(frame: _Frame) -> Iterator[Case]:
    """As general inputs, with an upstream gradient that is a function of the bits of x."""
    for case in general(frame):
        yield case.with_knobs(grad_values="hashed")


def small(frame: _Frame) -> Iterator[Case]:
    """A few small cases: for laws about the call, not about the elements."""
    for number, shape in enumerate(((2, 3), (1025,), ())):
        yield frame.case(shape, number=number, values="mixed")


def kept(frame: _Frame) -> Iterator[Case]:
    """As small ones, and a size at which kernels begin to keep memory: for laws about memory, or what is rarely run."""
    yield from small(frame)
    if frame.settings.profile in MODELS:
        yield frame.case(WORKSPACE, number=3, values="bits")
    for number, (shape, layout) in enumerate(frame.large(), 4):
        yield frame.case(shape, number=number, layout=layout, values="bits")


def one(frame: _Frame) -> Iterator[Case]:
    """Four ordinary elements, in either mode of an inference: for laws about refusals and types."""
    for number in range(len(frame.modes) if frame.cell.pass_ == "inference" else 1):
        yield frame.case((4,), number=number, values="transition")


def telling_caps(frame: _Frame) -> Iterator[Case]:
    """Four ordinary elements at caps of the law's own: for laws about the cap, whatever was asked for."""
    for number, cap in enumerate(TELLING):
        yield frame.case((4,), number=number, values="transition").replace(cap=cap)


def device(frame: _Frame) -> Iterator[Case]:
    """Small cases, many blocks, and a layout that is no plain one: for laws of an accelerator."""
    yield from small(frame)
    yield frame.case((65537,), number=3)
    yield frame.case((2, 3, 1003), number=4, layout="transposed", grad_layout="stepped")


def patterns(frame: _Frame) -> Iterator[Case]:
    """65,536 patterns once, all of a 16-bit dtype, with an upstream gradient that is a function of x."""
    yield frame.case((1 << 16,), number=0, values="domain", grad_values="hashed")


FAMILIES: dict[str, Callable[[_Frame], Iterator[Case]]] = {
    f.__name__: f for f in (general, domain, table, small, kept, one, telling_caps, device, patterns)
}
