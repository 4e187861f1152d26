"""What must hold within one certificate: a certificate that was edited or cut short is not believed.

Sizes follow from the ranges covered, and the error of a named result from its encodings, so both are worked out
again. Counts and fingerprints cannot be: of them only the ranges are known.
"""

from __future__ import annotations

import math
import re

import torch

from invariance.sweep.certificate import EXAMPLES, Bin, Certificate, Found, Key, Worst, joined
from invariance.sweep.domain import BELOW, FINITE, RANGE, Domain, decode
from invariance.sweep.settle import Question
from oracles.acceptance import accept
from oracles.formats import cap_as_fp32
from oracles.rounding import from_bits
from oracles.tolerances import load_contract
from oracles.truth import Truth
from strategies.caps import cap_text
from strategies.dtypes import TORCH

PASSES = ("forward", "backward")
NAMED = ("violations", "wrong_specials", "oddness_breaks", "bound_breaks", "monotonicity_breaks")
"""Counts whose first inputs are named."""
LOOKS = 4
"""How often one input may be escalated, at most: for its rounding, for the rule, and at the edge of either."""
GRADIENT_UNIT = 2.0**-24
BELOW_UNIT_LOG2 = -149


def check(certificate: Certificate) -> None:
    """Raises ValueError that says what does not hold."""
    check_key(certificate.key)
    domain = Domain(TORCH[certificate.key.dtype], certificate.key.cap, certificate.key.pass_)
    _covered(certificate)
    _fingerprints(certificate)
    _sizes(certificate, domain)
    _counts(certificate, domain)
    _errors(certificate, domain)
    _verdict(certificate)


def check_key(key: Key) -> None:
    """The names, the cap and the rules are such as a sweep has."""
    if not (key.candidate and key.candidate.isprintable()):
        raise ValueError(f"candidate {key.candidate[:80]!r} is not a name")
    for name, value, known in (("dtype", key.dtype, tuple(TORCH)), ("pass", key.pass_, PASSES)):
        if value not in known:
            raise ValueError(f"{name} {value[:80]!r} is not one of {', '.join(known)}")
    outs = (key.dtype,) if key.pass_ == "backward" else tuple(dict.fromkeys((key.dtype, "fp32")))
    if key.out_dtype not in outs:
        raise ValueError(f"out_dtype {key.out_dtype[:80]!r} of a {key.pass_} pass is not {' or '.join(outs)}")
    if not re.fullmatch("[0-9a-f]{64}", key.contract):
        raise ValueError(f"contract {key.contract[:80]!r} is not a SHA-256 digest")
    _cap(key)
    contract = load_contract()
    if key.contract == contract.fingerprint and key.judged != contract.judges_cap(key.cap):
        raise ValueError(f"judged is {key.judged}, and the contract says otherwise at cap {key.given}")


def _cap(key: Key) -> None:
    """The text becomes part of a file name: only what `cap_text` writes is one."""
    given = key.given[:80]
    if cap_as_fp32(key.cap) != key.cap:
        raise ValueError(f"softcap.fp32 {key.cap!r} is no FP32 number")
    try:
        cap = int(key.given) if key.given.isdigit() else float(key.given)
        same = cap_as_fp32(cap) == key.cap and cap_text(cap) == key.given
    except ValueError:
        same = False
    if not same:
        raise ValueError(f"softcap.given {given!r} is not a text of the cap {key.cap!r}")


def _covered(certificate: Certificate) -> None:
    covered, size = certificate.covered, certificate.sign
    if not covered or any(not 0 <= lo < hi <= size for lo, hi in covered):
        raise ValueError(f"covered is not a list of ranges of magnitudes from 0x0 to {size - 1:#x}")
    if joined(covered) != covered:
        raise ValueError("covered is not sorted, with neighbours made one")


def _fingerprints(certificate: Certificate) -> None:
    due = {index for lo, hi in certificate.covered for index in range(lo // RANGE, (hi - 1) // RANGE + 1)}
    if wrong := due ^ certificate.fingerprints.keys():
        index = min(wrong)
        what = "lacks the range" if index in due else "has a range that is not covered,"
        raise ValueError(f"fingerprint {what} {index:#05x}")
    if any(not 0 <= word < 1 << 64 for pair in certificate.fingerprints.values() for word in pair):
        raise ValueError("a fingerprint is not two words of 64 bits")


def _sizes(certificate: Certificate, domain: Domain) -> None:
    sizes: dict[int | None, int] = {None: 0}
    for lo, hi in certificate.covered:
        for piece in domain.pieces(lo, hi, domain.size):
            if piece.zone in FINITE:
                sizes[piece.binade] = sizes.get(piece.binade, 0) + 2 * piece.size
    if certificate.below.count != sizes[None]:
        raise ValueError(f"below.inputs is {certificate.below.count}, and {sizes[None]} are covered")
    for binade in sorted({k for k in sizes if k is not None} ^ certificate.profile.keys()):
        raise ValueError(f"profile: binade {binade} {'is missing' if binade in sizes else 'is not covered'}")
    for binade, bin_ in certificate.profile.items():
        if bin_.count != sizes[binade]:
            raise ValueError(
                f"profile: binade {binade} has {bin_.count} inputs, and {sizes[binade]} are covered"
            )


def _counts(certificate: Certificate, domain: Domain) -> None:
    inputs = certificate.inputs
    finite = certificate.below.count + sum(bin_.count for bin_ in certificate.profile.values())
    most = {"flushed": finite, "wrong_specials": inputs - finite, "oddness_breaks": inputs // 2}
    most["escalated"] = LOOKS * inputs
    for name, found in certificate.counts.items():
        if not 0 <= found.count <= most.get(name, inputs):
            raise ValueError(f"counts.{name} is {found.count} of {most.get(name, inputs)}")
        _first(certificate, name, found)
    if certificate.count("wrong_specials") > certificate.count("violations"):
        raise ValueError("counts.wrong_specials are more than counts.violations")
    if any(p & (domain.sign - 1) < domain.infinity for p in certificate.counts["wrong_specials"].first):
        raise ValueError("counts.wrong_specials names a finite input")


def _first(certificate: Certificate, name: str, found: Found) -> None:
    due = min(found.count, EXAMPLES) if name in NAMED else 0
    if len(found.first) != due:
        raise ValueError(f"counts.{name} names {len(found.first)} inputs, not {due}")
    order = [(pattern & (certificate.sign - 1), pattern & certificate.sign) for pattern in found.first]
    if order != sorted(set(order)) or not all(_holds(certificate, pattern) for pattern in found.first):
        raise ValueError(f"counts.{name} names inputs out of order or that are not covered")


def _holds(certificate: Certificate, pattern: int) -> bool:
    magnitude = pattern & (certificate.sign - 1)
    inside = any(lo <= magnitude < hi for lo, hi in certificate.covered)
    return 0 <= pattern < 2 * certificate.sign and inside


def _errors(certificate: Certificate, domain: Domain) -> None:
    """Every named result lies where it is said to, and its error is that of its encodings."""
    key = certificate.key
    question = Question(key.cap, key.pass_, TORCH[key.dtype], TORCH[key.out_dtype], GRADIENT_UNIT)
    for binade, bin_ in certificate.profile.items():
        worst = bin_.worst
        if worst is not None:
            _place(certificate, domain, f"profile: binade {binade}", worst, binade)
            if question.error(worst.pattern, worst.got) != worst.error:
                raise ValueError(f"profile: binade {binade} has another error than its input and result")
    _below(certificate, domain, certificate.below)


def _place(certificate: Certificate, domain: Domain, where: str, worst: Worst, binade: int | None) -> None:
    magnitude = worst.pattern & (domain.sign - 1)
    if not 0 <= worst.got < 1 << (8 * TORCH[certificate.key.out_dtype].itemsize):
        raise ValueError(f"{where} has a result that is no encoding of {certificate.key.out_dtype}")
    if _holds(certificate, worst.pattern):
        piece = domain.pieces(magnitude, magnitude + 1, domain.size)[0]
        if piece.binade == binade and (binade is not None or piece.zone == BELOW):
            return
    raise ValueError(f"{where} has its worst at {worst.pattern:#x}, which is not in it or not covered")


def _below(certificate: Certificate, domain: Domain, below: Bin) -> None:
    """The engines work this error out in FP64: it is compared to within their rounding."""
    key, worst = certificate.key, below.worst
    if (worst is None) != (below.count == 0):
        raise ValueError(f"below has {below.count} inputs and {'no' if worst is None else 'a'} worst")
    if worst is None:
        return
    _place(certificate, domain, "below", worst, None)
    x, y = decode(worst.pattern, domain.dtype), decode(worst.got, TORCH[key.out_dtype])
    forward = key.pass_ == "forward"
    unit = math.ldexp(key.cap, BELOW_UNIT_LOG2) if forward else GRADIENT_UNIT
    want = abs(y - (x if forward else 1.0)) / unit if math.isfinite(y) else math.inf
    if not math.isclose(worst.error, want, rel_tol=2.0**-36, abs_tol=2.0**-30):
        raise ValueError("below has another error than its input and result")


def _verdict(certificate: Certificate) -> None:
    """No violation is counted: then no result that is named breaks the rules, where they are this contract's."""
    key, contract = certificate.key, load_contract()
    found = [bin_.worst for bin_ in (certificate.below, *certificate.profile.values()) if bin_.worst]
    if certificate.count("violations") or not found or key.contract != contract.fingerprint:
        return
    x = from_bits(torch.tensor([worst.pattern for worst in found]), TORCH[key.dtype])
    y = from_bits(torch.tensor([worst.got for worst in found]), TORCH[key.out_dtype])
    truth = Truth.of(x, key.cap, torch.ones_like(x) if key.pass_ == "backward" else None)
    wrong = (~accept("ulp", y, truth, contract, everywhere=True).ok).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(f"counts.violations is 0, and the result at {found[wrong[0]].pattern:#x} is one")
