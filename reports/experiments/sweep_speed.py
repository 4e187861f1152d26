"""How fast one GPU sweeps all 2**32 FP32 inputs, against the same in plain torch and against moving the bytes.

    PYTHONPATH=. python reports/experiments/sweep_speed.py [--candidate triton] [--softcap 30] [--output DIR]

Writes sweep_speed.json and sweep_speed.md, prints the table; exit status 1 when a goal is missed or the fused
verifier and the torch engine disagree anywhere. Needs a GPU and Triton; under two minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from invariance.candidate import Candidate, load
from invariance.sweep import document
from invariance.sweep.certificate import Certificate
from invariance.sweep.domain import RANGE, encode
from invariance.sweep.fingerprint import FIRST, MASK, SECOND, SHIFT
from invariance.sweep.subject import Subject, key_of, subject
from invariance.sweep.torch_engine import TorchEngine
from invariance.sweep.triton_engine import TritonEngine
from oracles.rounding import from_bits, neighbour, to_bits
from oracles.tolerances import load_contract
from oracles.ulp import spacing

DEVICE = "cuda:0"
INPUTS, CHUNK = 1 << 32, 1 << 26
FLOOR_BYTES = 20  # an input: generate 4, candidate 8, verify 8
GOALS = {"forward": 2.0, "backward": 3.0}
FASTER = 10.0
MEMORY = 4 << 30
TORCH_BLOCK = RANGE


def timed(call: Callable[[], object], repeat: int) -> float:
    """Median seconds of `repeat` calls, after one that compiles."""
    samples = []
    for _ in range(repeat + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - began)
    return statistics.median(samples[1:])


def copy_rate() -> float:
    """Bytes a second, read and written together, of a 4 GiB device copy."""
    source, target = (torch.zeros(1 << 30, dtype=torch.float32, device=DEVICE) for _ in range(2))
    return 2 * source.numel() * 4 / timed(lambda: target.copy_(source), 5)


def plain(target: Subject) -> tuple[float, int]:
    """The same in plain torch operations: the worst error by FP64, and the fingerprint of all pairs."""
    cap, worst, total = target.domain.cap, torch.zeros((), dtype=torch.float64, device=DEVICE), 0
    sums = torch.zeros((), dtype=torch.int64, device=DEVICE)
    for start in range(0, INPUTS, CHUNK):
        bits = torch.arange(start, start + CHUNK, device=DEVICE).to(torch.int32)
        x = bits.view(torch.float32)
        y = target.call(x)
        z = x.double() / cap
        if target.domain.pass_ == "forward":
            exact = torch.tanh(z) * cap
            error = (y.double() - exact).abs() / spacing(exact, torch.float32)
        else:
            exact = torch.cosh(z).square().reciprocal()
            error = (y.double() - exact).abs() * 2.0**24
        worst = torch.maximum(worst, torch.where(x.isnan(), 0.0, error).max())
        y_bits = y.view(torch.int32).masked_fill(y.isnan(), 0x7FC00000)
        word = (bits.long() << 32) ^ (y_bits.long() & 0xFFFFFFFF)
        for factor in (FIRST, SECOND):
            word = (word ^ ((word >> SHIFT) & MASK)) * factor
        sums += (word ^ ((word >> SHIFT) & MASK)).sum()
    total = int(sums) & ((1 << 64) - 1)
    return float(worst), total


def same(a: Certificate, b: Certificate) -> bool:
    """The same document, but for how many roundings the exact oracle was asked: that is the FP64 library's."""
    texts = (re.sub(r'"escalated": \{\s*"count": \d+', "", document.dumps(c)) for c in (a, b))
    return len(set(texts)) == 1


class Planted:
    """A candidate with one forward result off by one encoding."""

    def __init__(self, base: Callable[[Tensor], Tensor], pattern: int) -> None:
        self.base = base
        self.place = from_bits(torch.tensor([pattern], device=DEVICE), torch.float32)

    def __call__(self, x: Tensor) -> Tensor:
        """The base's result, but at one input."""
        y = self.base(x)
        return torch.where(to_bits(x) == to_bits(self.place), neighbour(y, 1), y)


def finds_planted(candidate: Candidate, cap: float) -> dict[str, bool]:
    """Whether the fused verifier names single inputs that are off by one, in every zone."""
    found = {}
    for x in (1e-38, 1e-20, 0.01, 3.0, 0.9 * cap, 8.3 * cap, 20.0 * cap, 1e20, -7.0):
        pattern = encode(float(torch.tensor(x)), torch.float32)
        lo = (pattern & 0x7FFFFFFF) >> 20 << 20
        planted = Candidate("planted", lambda c, p=pattern: Planted(candidate.factory(c), p), "operator")
        clean, wrong = (sweep_range(c, cap, lo, lo + (1 << 20)) for c in (candidate, planted))
        named = wrong.counts["oddness_breaks"].first == (pattern & 0x7FFFFFFF,)
        found[repr(x)] = named and clean.fingerprints != wrong.fingerprints
    return found


def sweep_range(candidate: Candidate, cap: float, lo: int, hi: int) -> Certificate:
    """The fused verifier's certificate of a part of the forward domain."""
    target = subject(candidate, cap, "fp32", "forward", DEVICE)
    return TritonEngine(target, load_contract()).sweep(key_of(target, cap, load_contract()), lo, hi)


def differing(fused: Certificate, other: Certificate) -> list[str]:
    """The fields in which two certificates differ, named down to the row."""
    left, right = document.as_json(fused), document.as_json(other)
    apart = [name for name in left if left[name] != right.get(name)]
    return [f"{name}: {str(left[name])[:400]} is not {str(right.get(name))[:400]}" for name in apart]


def measure(candidate: Candidate, cap: float, pass_: str, rate: float, output: Path) -> dict[str, object]:
    """One pass: times, ratios, agreement; both certificates go to `output` where they differ."""
    contract = load_contract()
    target = subject(candidate, cap, "fp32", pass_, DEVICE)
    key, fused = key_of(target, cap, contract), TritonEngine(target, contract)
    size = target.domain.size
    fused.sweep(key, 0, size)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    device = timed(lambda: fused.scan(fused.tally(), 0, size), 5)
    memory = torch.cuda.max_memory_allocated()
    whole = timed(lambda: fused.sweep(key, 0, size), 3)
    certificate = fused.sweep(key, 0, size)
    worst, total = plain(target)
    torch_plain = timed(lambda: plain(target), 1)
    began = time.perf_counter()
    other = TorchEngine(target, contract, TORCH_BLOCK).sweep(key, 0, size)
    engine = time.perf_counter() - began
    sums = sum(p + n for p, n in certificate.fingerprints.values()) % (1 << 64)
    floor = FLOOR_BYTES * INPUTS / rate
    row = {
        "pass": pass_,
        "device_ms": device * 1e3,
        "with_exact_oracle_ms": whole * 1e3,
        "plain_torch_ms": torch_plain * 1e3,
        "torch_engine_ms": engine * 1e3,
        "floor_ms": floor * 1e3,
        "times_the_floor": device / floor,
        "times_faster_than_plain": torch_plain / device,
        "peak_memory_mib": memory / 2**20,
        "worst": document.as_json(certificate)["worst"],
        "escalated": certificate.count("escalated"),
        "plain_worst": worst,
        "agrees_with_torch_engine": same(certificate, other),
        "agrees_with_plain_fingerprint": sums == total,
    }
    row["ok"] = (
        row["agrees_with_torch_engine"] is True
        and sums == total
        and device / floor <= GOALS[pass_]
        and (pass_ != "forward" or torch_plain / device >= FASTER)
        and memory < MEMORY
    )
    if row["agrees_with_torch_engine"] is not True:
        print(pass_, *differing(certificate, other), sep="\n  ", flush=True)
        (output / f"{pass_}-fused.json").write_text(document.dumps(certificate))
        (output / f"{pass_}-torch.json").write_text(document.dumps(other))
    return row


def cells(row: dict[str, float]) -> list[str]:
    """One row of the table."""
    names = ("device_ms", "with_exact_oracle_ms", "plain_torch_ms", "torch_engine_ms", "floor_ms")
    return [
        str(row["pass"]),
        *(f"{row[name]:.1f} ms" for name in names),
        f"{row['times_the_floor']:.2f}",
        f"{row['times_faster_than_plain']:.1f}",
        f"{row['peak_memory_mib']:.0f} MiB",
        str(row["agrees_with_torch_engine"]),
        "met" if row["ok"] else "MISSED",
    ]


def table(result: dict[str, object]) -> str:
    """The numbers as Markdown."""
    heads = (
        "pass",
        "device",
        "with the exact oracle",
        "plain torch FP64",
        "torch engine",
        "bytes alone",
        "ratio",
    )
    heads += ("faster than plain", "memory", "engines agree", "goals")
    title = (
        f"All 2^32 FP32 inputs at cap {result['softcap']}, candidate `{result['candidate']}`, {result['gpu']}, "
        f"torch {result['torch']}; device copy {result['copy_tb_s']:.2f} TB/s."
    )
    lines = [title, "", f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(cells(row))} |" for row in result["passes"]]  # type: ignore[attr-defined]  # a list
    planted = result["planted"]
    lines += ["", f"Planted errors of one ulp, found and named: {planted}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--candidate", default="triton")
    parser.add_argument("--softcap", type=float, default=30.0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    candidate, rate = load(options.candidate, DEVICE), copy_rate()
    torch.cuda.empty_cache()
    result: dict[str, object] = {
        "candidate": options.candidate,
        "softcap": options.softcap,
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "copy_tb_s": rate / 1e12,
        "planted": finds_planted(candidate, options.softcap),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    result["passes"] = [measure(candidate, options.softcap, pass_, rate, options.output) for pass_ in GOALS]
    (options.output / "sweep_speed.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.output / "sweep_speed.md").write_text(table(result))
    print(table(result))
    rows_ok = all(row["ok"] for row in result["passes"])  # type: ignore[attr-defined]  # a list of rows
    return 0 if rows_ok and all(result["planted"].values()) else 1  # type: ignore[attr-defined]  # a dict


if __name__ == "__main__":
    sys.exit(main())
