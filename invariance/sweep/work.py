"""What a child process of a sweep runs."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import platform as python
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from invariance import process
from invariance.candidate import INTERPRETED, SHORT_NAMES, Candidate, CandidateRaised, load
from invariance.sweep.api import magnitudes
from invariance.sweep.certificate import Certificate
from invariance.sweep.domain import RANGE
from invariance.sweep.subject import subject
from invariance.sweep.torch_engine import TorchEngine, bits_of
from oracles.tolerances import load_contract
from strategies.dtypes import TORCH, name

_CANDIDATES: dict[tuple[str, str], Candidate] = {}


def piece(spec: str, device: str, cap: float | int, dtype: str, pass_: str, lo: int, hi: int) -> Certificate:
    """The certificate of a part of the domain; says which range it is at, once for each 2**20 magnitudes."""

    def announce(start: int, stop: int) -> None:
        if start % RANGE == 0 or start == lo:
            process.announce(
                f"magnitudes {start:#x} to {max(stop, min(start - start % RANGE + RANGE, hi)) - 1:#x}"
            )

    return magnitudes(_loaded(spec, device), cap, dtype, pass_, device, lo, hi, announce=announce)


def results(
    spec: str, device: str, cap: float | int, dtype: str, pass_: str, out_dtype: str, lo: int, hi: int
) -> np.ndarray[Any, Any]:
    """The bits of the results of magnitudes lo to hi - 1, whole blocks, in two rows: of x and of -x.

    Raises CandidateRaised where another output dtype comes out than `out_dtype`.
    """
    engine = TorchEngine(subject(_loaded(spec, device), cap, dtype, pass_, device), load_contract())
    if (found := name(engine.subject.out_dtype)) != out_dtype:
        raise CandidateRaised(f"{spec} returned {found} here, and {out_dtype} where it was certified")
    blocks = [bits_of(engine.results(start)[1]).cpu().clone() for start in range(lo, hi, engine.block)]
    return torch.cat(blocks, 1).numpy()


def source(spec: str, device: str, caps: tuple[float | int, ...] = (), dtypes: tuple[str, ...] = ()) -> str:
    """A digest of what the candidate is made of: where another one comes out, it is another kernel.

    It covers every file that the candidate has loaded, wherever it lies, but for those of Python, of torch, of Triton
    and of the suite, which count by their version; and the device by its name. caps, dtypes: run it there on four
    elements first, as a candidate may import when it is constructed or called.
    """
    before = set(sys.modules)
    _exercise(_loaded(spec, device), device, caps, dtypes)
    home = SHORT_NAMES.get(spec, spec).removeprefix(INTERPRETED).partition(":")[0]
    module = sys.modules.get(home)
    own = Path(home if module is None or not module.__file__ else module.__file__).resolve()
    files = {path for path in (own, *_loaded_files(before)) if path.is_file()}
    contents = {path: (path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files}
    made_of = _platform(device), contents.get(own), sorted(contents.values())
    return hashlib.sha256(repr(made_of).encode()).hexdigest()


def _exercise(
    candidate: Candidate, device: str, caps: tuple[float | int, ...], dtypes: tuple[str, ...]
) -> None:
    """Everything that it may import only when it is called; what it raises is for the sweep to report."""
    for cap, dtype in itertools.product(caps, dtypes):
        x = torch.ones(4, dtype=TORCH[dtype], device=device)
        for pass_ in ("inference", "backward"):
            with contextlib.suppress(CandidateRaised):
                candidate.map(cap, pass_)(x, *([torch.ones_like(x)] if pass_ == "backward" else []))


def _loaded_files(before: set[str]) -> Iterator[Path]:
    """Files of modules and libraries, but for `_by_version`, and for installed packages that were here `before`."""
    for name_, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        if not isinstance(file, str):
            continue
        path = Path(file).resolve()
        if not _by_version(path) and not (name_ in before and _INSTALLED & set(path.parts)):
            yield path
    yield from (Path(library).resolve() for library in torch.ops.loaded_libraries)


_INSTALLED = {"site-packages", "dist-packages"}
_SUITE = Path(process.__file__).resolve().parents[1]


def _by_version(path: Path) -> bool:
    """Whether a file is Python's, torch's, Triton's or the suite's."""
    libraries = [Path(paths).resolve() for paths in (sysconfig.get_path(k) for k in ("stdlib", "platstdlib"))]
    if any(path.is_relative_to(library) for library in libraries) and not _INSTALLED & set(path.parts):
        return True
    known = [
        Path(m.__file__).resolve().parent
        for m in map(sys.modules.get, ("torch", "triton"))
        if m and m.__file__
    ]
    known += [_SUITE / package for package in ("invariance", "oracles", "strategies")]
    return any(path.is_relative_to(folder) for folder in known)


def _platform(device: str) -> tuple[str | None, ...]:
    """What runs the candidate: versions, and the device's name or the instructions that torch uses on this CPU."""
    if torch.device(device).type == "cpu":
        where = f"{python.machine()} {torch.backends.cpu.get_cpu_capability()}"
    else:
        where = torch.cuda.get_device_name(device)
    versions = [python.python_version(), torch.__version__, torch.version.git_version]
    return (where, *versions, *map(_version, ("triton", "softcap-verify")))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _loaded(spec: str, device: str) -> Candidate:
    if (spec, device) not in _CANDIDATES:
        _CANDIDATES[spec, device] = load(spec, device)
    return _CANDIDATES[spec, device]
