"""What a sweep hands out: a certificate, which merges with those of other parts of the domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

COUNTS = (
    "correctly_rounded",
    "flushed",
    "violations",
    "wrong_specials",
    "oddness_breaks",
    "bound_breaks",
    "monotonicity_breaks",
    "escalated",
)
EXAMPLES = 5
"""Inputs named with a count, those of smallest magnitude."""


@dataclass(frozen=True)
class Key:
    """What must agree for certificates to merge: the function asked, and the rules it was judged by.

    cap: the FP32 value; given: as it was asked for; dtype, out_dtype: short names; contract: the fingerprint of the
    tolerance contract; judged: whether the cap lies in the contract's judged domain.
    """

    candidate: str
    cap: float
    given: str
    dtype: str
    pass_: str
    out_dtype: str
    contract: str
    judged: bool = True

    @property
    def subject(self) -> tuple[float, str, str]:
        """What must agree for two functions to be comparable: cap, dtype, pass."""
        return self.cap, self.dtype, self.pass_

    @property
    def stem(self) -> str:
        """The file name without its extension."""
        return f"{self.pass_}-{self.dtype}-{self.given}"


@dataclass(frozen=True)
class Worst:
    """The largest error of a part of the domain: the error, the encodings of the input and of what was got.

    The error is rounded once, from the exact one (see `settle.ERROR`), so that it does not depend on any library.
    """

    error: float
    pattern: int
    got: int

    def rank(self, sign: int) -> tuple[float, int, bool]:
        """Greater is worse; ties go to the smallest magnitude, then to the positive input."""
        return self.error, -(self.pattern & (sign - 1)), not self.pattern & sign


@dataclass(frozen=True)
class Found:
    """How many inputs show something, and the first few encodings by magnitude, the positive before the negative."""

    count: int = 0
    first: tuple[int, ...] = ()

    def plus(self, other: Found, sign: int) -> Found:
        """Both together."""
        first = sorted({*self.first, *other.first}, key=lambda p: (p & (sign - 1), p & sign))
        return Found(self.count + other.count, tuple(first[:EXAMPLES]))


@dataclass(frozen=True)
class Bin:
    """How many inputs a part of the domain has, and its worst result; None where every one was flushed."""

    count: int = 0
    worst: Worst | None = None

    def plus(self, other: Bin, sign: int) -> Bin:
        """Both together."""
        return Bin(self.count + other.count, worse(self.worst, other.worst, sign))


def worse(a: Worst | None, b: Worst | None, sign: int) -> Worst | None:
    """The worse of two."""
    return max((w for w in (a, b) if w is not None), key=lambda w: w.rank(sign), default=None)


@dataclass(frozen=True)
class Certificate:
    """What was seen of one candidate at one cap, dtype and pass over `covered`, half-open ranges of magnitudes.

    A commutative monoid: `merge` in any order gives the same certificate as one run. `profile`: by binade of
    x/c; `below`: finite inputs with |x/c| < 2**-126, forward errors there in units of c * 2**-149.
    `fingerprints`: by range of 2**20 magnitudes, for positive and for negative inputs.
    """

    key: Key
    sign: int
    covered: tuple[tuple[int, int], ...]
    counts: Mapping[str, Found] = field(default_factory=dict)
    below: Bin = field(default_factory=Bin)
    profile: Mapping[int, Bin] = field(default_factory=dict)
    fingerprints: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def inputs(self) -> int:
        """How many inputs were judged, of both signs."""
        return 2 * sum(hi - lo for lo, hi in self.covered)

    @property
    def complete(self) -> bool:
        """Whether the whole domain is covered."""
        return self.covered == ((0, self.sign),)

    @property
    def worst(self) -> Worst | None:
        """The worst result among finite inputs with |x/c| >= 2**-126 that was not accepted as a flush."""
        found: Worst | None = None
        for bin_ in self.profile.values():
            found = worse(found, bin_.worst, self.sign)
        return found

    def count(self, name: str) -> int:
        """One of COUNTS."""
        return self.counts.get(name, Found()).count

    @property
    def ok(self) -> bool:
        """Whether no input breaks the rules; always, at a cap that is not judged."""
        return not self.key.judged or self.count("violations") == 0

    def merge(self, other: Certificate) -> Certificate:
        """Both parts together. Raises ValueError for another key and for parts that overlap."""
        if self.key != other.key or self.sign != other.sign:
            raise ValueError(f"not parts of one certificate: {difference(self.key, other.key)}")
        sign = self.sign
        return replace(
            self,
            covered=joined((*self.covered, *other.covered)),
            counts={
                name: self.counts.get(name, Found()).plus(other.counts.get(name, Found()), sign)
                for name in COUNTS
            },
            below=self.below.plus(other.below, sign),
            profile={
                k: self.profile.get(k, Bin()).plus(other.profile.get(k, Bin()), sign)
                for k in sorted({*self.profile, *other.profile})
            },
            fingerprints=_sums(self.fingerprints, other.fingerprints),
        )


def merged(parts: Iterable[Certificate]) -> Certificate:
    """All parts together. Raises ValueError for none, for different keys and for overlaps; gaps are allowed."""
    parts = sorted(parts, key=lambda part: part.covered)
    if not parts:
        raise ValueError("no certificates to merge")
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.merge(part)
    return whole


def joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Sorted half-open ranges, neighbours made one. Raises ValueError for an overlap."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(r for r in ranges if r[0] < r[1]):
        if found and lo < found[-1][1]:
            raise ValueError(f"magnitudes {lo:#x} to {min(hi, found[-1][1]) - 1:#x} are covered twice")
        if found and lo == found[-1][1]:
            found[-1] = (found[-1][0], hi)
        else:
            found.append((lo, hi))
    return tuple(found)


def gaps(covered: tuple[tuple[int, int], ...], size: int) -> list[tuple[int, int]]:
    """The half-open ranges of magnitudes below `size` that are not covered."""
    edges = [0, *(edge for pair in covered for edge in pair), size]
    return [(lo, hi) for lo, hi in zip(edges[::2], edges[1::2], strict=True) if lo < hi]


def _sums(a: Mapping[int, tuple[int, int]], b: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    total = {}
    for index in sorted({*a, *b}):
        (p, n), (q, m) = a.get(index, (0, 0)), b.get(index, (0, 0))
        total[index] = ((p + q) % (1 << 64), (n + m) % (1 << 64))
    return total


def difference(a: Key, b: Key) -> str:
    """Where two keys differ, in words."""
    names = [name for name in vars(a) if getattr(a, name) != getattr(b, name)]
    return ", ".join(f"{name.rstrip('_')} {getattr(a, name)} and {getattr(b, name)}" for name in names)
