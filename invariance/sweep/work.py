"""What a child process of a sweep runs."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from invariance import process
from invariance.candidate import INTERPRETED, SHORT_NAMES, Candidate, CandidateRaised, load
from invariance.sweep.api import magnitudes
from invariance.sweep.certificate import Certificate
from invariance.sweep.comparison import Difference, differences
from invariance.sweep.domain import RANGE
from invariance.sweep.subject import subject
from invariance.sweep.torch_engine import TorchEngine
from oracles.tolerances import load_contract
from strategies.dtypes import name

_CANDIDATES: dict[tuple[str, str], Candidate] = {}


def piece(spec: str, device: str, cap: float | int, dtype: str, pass_: str, lo: int, hi: int) -> Certificate:
    """The certificate of a part of the domain; says which range it is at, once for each 2**20 magnitudes."""

    def announce(start: int, stop: int) -> None:
        if start % RANGE == 0 or start == lo:
            process.announce(
                f"magnitudes {start:#x} to {max(stop, min(start - start % RANGE + RANGE, hi)) - 1:#x}"
            )

    return magnitudes(_loaded(spec, device), cap, dtype, pass_, device, lo, hi, announce=announce)


def first_differences(
    specs: tuple[str, str],
    device: str,
    cap: float | int,
    dtype: str,
    pass_: str,
    out_dtype: str,
    ranges: tuple[tuple[int, int], ...],
) -> list[Difference]:
    """The first inputs at which two candidates, run here, differ; CandidateRaised for another output dtype."""
    a, b = (
        TorchEngine(subject(_loaded(spec, device), cap, dtype, pass_, device), load_contract())
        for spec in specs
    )
    for spec, engine in zip(specs, (a, b), strict=True):
        if (found := name(engine.subject.out_dtype)) != out_dtype:
            raise CandidateRaised(f"{spec} returned {found} here, and {out_dtype} where it was certified")
    return differences(a, b, ranges)


def source(spec: str, device: str) -> str:
    """A digest of the candidate's file and of what it has loaded from the same folder: another one, another kernel."""
    _loaded(spec, device)
    home = SHORT_NAMES.get(spec, spec).removeprefix(INTERPRETED).partition(":")[0]
    module = sys.modules.get(home)
    own = Path(home if module is None or module.__file__ is None else module.__file__).resolve()
    names = {vars(m).get("__file__") for m in list(sys.modules.values()) if hasattr(m, "__dict__")}
    loaded = {Path(file).resolve() for file in names if file}
    files = sorted(path for path in loaded if path.parent == own.parent and path.is_file())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _loaded(spec: str, device: str) -> Candidate:
    if (spec, device) not in _CANDIDATES:
        _CANDIDATES[spec, device] = load(spec, device)
    return _CANDIDATES[spec, device]
