"""A round of caps, judged in a child beside the candidate. What a process has seen of caps is remembered."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from invariance import process
from invariance.candidate import Candidate, CandidateRaised, load
from invariance.fuzz.asked import Asked
from invariance.fuzz.grid import Grid, grids
from invariance.fuzz.scan import LAW, Part, scan
from oracles.rounding import to_bits
from oracles.tolerances import load_contract
from strategies.caps import as_fp32, fp32_bits

RAISED = "raised"


@dataclass(frozen=True)
class Subject:
    """What a campaign judges, and how: plain data, the same in every process.

    passes: of "forward", "inference", "backward". dtypes: short names. seed: of the FP32 samples.
    """

    spec: str
    device: str = "cpu"
    seed: int = 0
    dtypes: tuple[str, ...] = ("fp16", "bf16", "fp32")
    passes: tuple[str, ...] = ("forward", "inference", "backward")


@dataclass(frozen=True)
class Point:
    """The worst result of a pass at a cap: see `scan.Part.error`. x: the input's bits."""

    error: float
    dtype: str
    x: int


@dataclass(frozen=True)
class Broken:
    """A law broken at a cap. before: how many caps the process had seen; wrong of total elements of one grid.

    kind: "wrong", "raised", "crashed" or "timed out"; reason: in words, for all but the first.
    """

    law: str
    pass_: str
    dtype: str
    asked: Asked
    wrong: int = 1
    total: int = 1
    kind: str = "wrong"
    reason: str | None = None
    before: tuple[Asked, ...] = ()


@dataclass
class Judged:
    """What was seen of one cap. worst: by pass."""

    asked: Asked
    elements: int = 0
    flushed: int = 0
    escalated: int = 0
    worst: dict[str, Point] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)


_candidates: dict[tuple[str, str], Candidate] = {}
_seen: list[Asked] = []


def candidate_of(subject: Subject) -> Candidate:
    """The candidate, loaded once a process."""
    key = (subject.spec, subject.device)
    if key not in _candidates:
        _candidates[key] = load(subject.spec, subject.device)
    return _candidates[key]


def run_round(subject: Subject, caps: list[Asked]) -> list[Judged]:
    """Judge caps in order; announces each, so that a crash has a cap."""
    candidate = candidate_of(subject)
    found = []
    for asked in caps:
        process.announce(json.dumps(asked.record()))
        found.append(judge_cap(candidate, subject, asked))
        _seen.append(asked)
    return found


def judge_cap(candidate: Candidate, subject: Subject, asked: Asked) -> Judged:
    """Every grid of every dtype at one cap."""
    judged = Judged(asked)
    broken: dict[tuple[str, str, str], Broken] = {}
    for dtype in subject.dtypes:
        for grid in grids(dtype, as_fp32(asked.cap), subject.seed, subject.device):
            try:
                parts = parts_of(candidate, subject, asked, grid)
            except CandidateRaised as error:
                broken[LAW, RAISED, dtype] = Broken(
                    LAW, subject.passes[-1], dtype, asked, kind=RAISED, reason=str(error), before=tuple(_seen)
                )
                break
            for part in parts:
                _take(judged, grid, part)
                if part.wrong.numel():
                    key = (part.law, part.pass_, dtype)
                    earlier = broken.get(key)
                    wrong, total = (earlier.wrong, earlier.total) if earlier else (0, 0)
                    broken[key] = Broken(
                        *key, asked, wrong + part.wrong.numel(), total + part.elements, before=tuple(_seen)
                    )
    judged.broken = list(broken.values())
    return judged


def parts_of(candidate: Candidate, subject: Subject, asked: Asked, grid: Grid) -> list[Part]:
    """The scan of one grid at one cap; half of the caps with upstream gradients of 1, half with hashed ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a candidate's warnings are not evidence
        f = asked.map(candidate, "forward", subject.device)
        return scan(f, grid, load_contract(), passes=subject.passes, grads=upstream(asked))


def upstream(asked: Asked) -> str:
    """The upstream gradient of a cap."""
    return ("ones", "hashed")[(fp32_bits(asked.cap) * 0x9E3779B1 >> 16) & 1]


def _take(judged: Judged, grid: Grid, part: Part) -> None:
    judged.elements += part.elements
    judged.flushed += part.flushed
    judged.escalated += part.escalated
    if part.law == LAW and (part.pass_ not in judged.worst or part.error > judged.worst[part.pass_].error):
        judged.worst[part.pass_] = Point(float(f"{part.error:.6g}"), grid.dtype, grid.pattern(part.at))


@dataclass(frozen=True)
class Element:
    """One failing element: the bits of x and of what was got, the upstream gradient in FP32 bits."""

    x: int
    got: int
    out_dtype: str
    grad_y: int | None
    wrong: int
    total: int


def simplest_element(grid: Grid, part: Part) -> Element:
    """Of the failing elements the one that a person recognises: few digits, near 1, positive."""
    x = grid.both[part.wrong]
    order = torch.argsort(_plainness(x), stable=True)
    index = int(part.wrong[order[0]])
    grad_y = None if part.grad_y is None else int(to_bits(part.grad_y[index].to(torch.float32))) & 0xFFFFFFFF
    width = 8 * part.got.element_size()
    got = int(to_bits(part.got[index])) & ((1 << width) - 1)
    name = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}[part.got.dtype]
    return Element(grid.pattern(index), got, name, grad_y, part.wrong.numel(), part.elements)


def _plainness(x: Tensor) -> Tensor:
    """Less is plainer: significant bits first, then distance of the exponent from 0, then the sign. int64."""
    value = x.to(torch.float32)
    bits = value.view(torch.int32).to(torch.int64)
    fraction = bits & 0x7FFFFF
    last = (fraction & -fraction).clamp(min=1).to(torch.float64).log2().to(torch.int64)
    digits = torch.where(fraction == 0, 0, 23 - last)
    exponent = (((bits >> 23) & 0xFF) - 127).abs()
    plain = digits * 4096 + exponent * 4 + (bits < 0)
    return torch.where(value.isfinite() & (value != 0), plain, 1 << 20)
