"""Are two certificates of the same function, bit for bit?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from invariance.sweep.certificate import Certificate, joined
from invariance.sweep.domain import RANGE
from invariance.sweep.torch_engine import bits_of
from strategies.caps import cap_text

SAME, DIFFERENT, NOT_COMPARABLE = 0, 1, 2
EXAMPLES = 5


@dataclass(frozen=True)
class Comparison:
    """`status`: SAME, DIFFERENT or NOT_COMPARABLE; `reason` in words; `ranges`: half-open, of magnitudes."""

    status: int
    reason: str
    ranges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Difference:
    """One input whose results differ: its encoding, and those of the two results."""

    pattern: int
    a: int
    b: int


def compare(a: Certificate, b: Certificate) -> Comparison:
    """Same when every fingerprint agrees. Not comparable: another cap, dtype or pass, or another part of the domain."""
    if a.key.subject != b.key.subject:
        (cap, dtype, pass_), (other_cap, other_dtype, other_pass) = a.key.subject, b.key.subject
        reason = f"{pass_} {dtype} at cap {cap_text(cap)}, and {other_pass} {other_dtype} at cap {cap_text(other_cap)}"
        return Comparison(NOT_COMPARABLE, reason)
    if a.covered != b.covered:
        return Comparison(NOT_COMPARABLE, f"they cover {_spans(a)} and {_spans(b)}")
    if a.key.out_dtype != b.key.out_dtype:
        reason = f"every result, for the output dtypes are {a.key.out_dtype} and {b.key.out_dtype}"
        return Comparison(DIFFERENT, reason, a.covered)
    indices = sorted({*a.fingerprints, *b.fingerprints})
    wrong = [index for index in indices if a.fingerprints.get(index) != b.fingerprints.get(index)]
    if not wrong:
        return Comparison(SAME, f"the same {a.inputs} results, bit for bit")
    size = min(RANGE, a.sign)
    ranges = joined((index * RANGE, index * RANGE + size) for index in wrong)
    return Comparison(DIFFERENT, f"{len(wrong)} of {len(indices)} fingerprints differ", ranges)


Results = Callable[[int, int], Tensor]
"""The results of magnitudes lo to hi - 1 in two rows, of x and of -x."""


def differences(
    a: Results, b: Results, ranges: tuple[tuple[int, int], ...], sign: int, limit: int = EXAMPLES
) -> list[Difference]:
    """The first inputs, by magnitude, at which two functions of one domain give other bits; NaN equals NaN."""
    found: list[Difference] = []
    for lo, hi in ranges:
        for start in range(lo, hi, RANGE):
            stop = min(start + RANGE, hi)
            found += _between(a(start, stop), b(start, stop), start, sign)
            if len(found) >= limit:
                return found[:limit]
    return found


def _between(y: Tensor, other: Tensor, start: int, sign: int) -> Iterator[Difference]:
    wrong = (bits_of(y) != bits_of(other)) & ~(y.isnan() & other.isnan())
    mask = (1 << (8 * y.element_size())) - 1
    for column in wrong.any(0).nonzero().flatten()[:EXAMPLES].tolist():
        for row in (0, 1):
            if bool(wrong[row, column]):
                got = [int(bits_of(t)[row, column]) & mask for t in (y, other)]
                yield Difference(start + column | row * sign, *got)


def _spans(certificate: Certificate) -> str:
    return ", ".join(f"{lo:#x}-{hi - 1:#x}" for lo, hi in certificate.covered) or "nothing"
