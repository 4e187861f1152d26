"""Certificates as JSON: sorted, without clock or path, the same bytes for the same certificate."""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from invariance.sweep.certificate import COUNTS, Bin, Certificate, Found, Key, Worst
from invariance.sweep.consistency import check, check_key
from invariance.sweep.domain import decode
from oracles import exact
from oracles.formats import FORMATS

FORMAT = "softcap-verify certificate 1"
SUFFIX = ".cert.json"
UNITS = {"forward": "ulp of the output dtype at the exact value", "backward": "2^-24 * |grad_y|"}
UNITS_BELOW = {"forward": "softcap * 2^-149", "backward": "2^-24 * |grad_y|"}
_DTYPES = {fmt.name: dtype for dtype, fmt in FORMATS.items()}


def dumps(certificate: Certificate) -> str:
    """The certificate as a document, a profile row a line."""
    data = as_json(certificate)
    rows, data["profile"] = data["profile"], "PROFILE"
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    whole = json.dumps(data, indent=1, allow_nan=False) + "\n"
    return whole.replace('"PROFILE"', f"[\n{lines}\n ]" if rows else "[]")


def as_json(certificate: Certificate) -> dict[str, Any]:
    """The certificate as plain data."""
    key, show = certificate.key, _Show(certificate.key)
    worst, below = certificate.worst, certificate.below
    return {
        "format": FORMAT,
        "candidate": key.candidate,
        "softcap": {"given": key.given, "fp32": key.cap.hex()},
        "dtype": key.dtype,
        "pass": key.pass_,
        "grad_y": "1" if key.pass_ == "backward" else None,
        "out_dtype": key.out_dtype,
        "contract": key.contract,
        "judged": key.judged,
        "complete": certificate.complete,
        "inputs": certificate.inputs,
        "covered": [f"{lo:#x}-{hi - 1:#x}" for lo, hi in certificate.covered],
        "unit": UNITS[key.pass_],
        "worst": None if worst is None else {**show.worst(worst), "exact": show.exact(worst)},
        "counts": {name: _count(certificate, name, show) for name in COUNTS},
        "below": {
            "where": "|x/softcap| < 2^-126",
            "inputs": below.count,
            "unit": UNITS_BELOW[key.pass_],
            "worst": None if below.worst is None else show.worst(below.worst),
        },
        "profile": [_row(binade, bin_, show) for binade, bin_ in sorted(certificate.profile.items())],
        "fingerprint": {
            f"{index:#05x}": f"{positive:016x} {negative:016x}"
            for index, (positive, negative) in sorted(certificate.fingerprints.items())
        },
    }


class _Show:
    """Numbers for a reader and for a machine: decimal, hexadecimal, bits."""

    def __init__(self, key: Key) -> None:
        self._key = key
        self._dtype, self._out = _DTYPES[key.dtype], _DTYPES[key.out_dtype]

    def worst(self, worst: Worst) -> dict[str, Any]:
        return {
            "error": repr(worst.error),
            "input": self.number(worst.pattern, self._dtype),
            "got": self.number(worst.got, self._out),
        }

    def exact(self, worst: Worst) -> str:
        x = decode(worst.pattern, self._dtype)
        return exact.decimal(x, self._key.cap, 1.0 if self._key.pass_ == "backward" else None)

    def input(self, pattern: int) -> dict[str, str]:
        return self.number(pattern, self._dtype)

    @staticmethod
    def number(pattern: int, dtype: torch.dtype) -> dict[str, str]:
        value = decode(pattern, dtype)
        return {"decimal": repr(value), "hex": value.hex(), "bits": f"0x{pattern:0{2 * dtype.itemsize}x}"}


def _count(certificate: Certificate, name: str, show: _Show) -> dict[str, Any]:
    found = certificate.counts.get(name, Found())
    if not found.first:
        return {"count": found.count}
    return {"count": found.count, "first": [show.input(pattern) for pattern in found.first]}


def _row(binade: int, bin_: Bin, show: _Show) -> dict[str, Any]:
    """A row of the profile, in bits only: there are 250 of them."""
    row: dict[str, Any] = {"binade": binade, "inputs": bin_.count, "error": None}
    if bin_.worst is None:
        return row
    worst = show.worst(bin_.worst)
    return {**row, "error": worst["error"], "input": worst["input"]["bits"], "got": worst["got"]["bits"]}


def loads(text: str) -> Certificate:
    """The certificate that `dumps` wrote. Raises ValueError for anything else: what was edited, or does not add up."""
    try:
        return _loaded(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ValueError(f"a part is missing or of another type ({type(error).__name__}: {error})") from None


def _loaded(text: str) -> Certificate:
    data = json.loads(text)
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']!r} is not {FORMAT!r}")
    certificate = _certificate(data)
    check(certificate)
    again = dumps(certificate)
    if again != text:
        raise ValueError(_mismatch(data, json.loads(again)) or "it is written in another form")
    return certificate


def _mismatch(given: Any, written: Any, where: str = "") -> str | None:
    """The first place in which two documents differ, in words."""
    if type(given) is not type(written) or not isinstance(given, (dict, list)):
        if type(given) is type(written) and given == written:
            return None
        return f"{where or 'it'} is {_short(given)}, and {_short(written)} follows from the rest"
    if isinstance(given, dict):
        if odd := given.keys() ^ written.keys():
            fault = "has an unknown" if min(odd) in given else "lacks the"
            return f"{where or 'it'} {fault} entry {_short(min(odd))}"
        pairs = [(f"{where}.{name}".lstrip("."), given[name], written[name]) for name in written]
    elif len(given) != len(written):
        return f"{where} has {len(given)} entries, not {len(written)}"
    else:
        pairs = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(given, written, strict=True))]
    return next((found for place, a, b in pairs if (found := _mismatch(a, b, place))), None)


def _short(value: Any) -> str:
    return ascii(value)[:60]


def read(path: str | Path) -> Certificate:
    """The certificate in a file. Raises ValueError that names the file, in one line."""
    try:
        return loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} is no certificate: {' '.join(str(error).split())[:300]}") from None


def write(certificate: Certificate, path: Path) -> None:
    """Write the file whole or not at all: an interrupt leaves no half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    text = dumps(certificate)
    # "x" makes the file or fails, so that a link of that name is not followed; its mode is the umask's.
    with beside.open("x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.close()
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise


def _certificate(data: Mapping[str, Any]) -> Certificate:
    key = Key(
        candidate=str(data["candidate"]),
        cap=float.fromhex(data["softcap"]["fp32"]),
        given=str(data["softcap"]["given"]),
        dtype=str(data["dtype"]),
        pass_=str(data["pass"]),
        out_dtype=str(data["out_dtype"]),
        contract=str(data["contract"]),
        judged=bool(data["judged"]),
    )
    check_key(key)
    return Certificate(
        key=key,
        sign=1 << (8 * _DTYPES[key.dtype].itemsize - 1),
        covered=tuple(_span(text) for text in data["covered"]),
        counts={name: _found(data["counts"][name]) for name in COUNTS},
        below=Bin(int(data["below"]["inputs"]), _worst(data["below"]["worst"])),
        profile=_profile(data["profile"]),
        fingerprints={int(index, 16): _pair(text) for index, text in data["fingerprint"].items()},
    )


def _profile(rows: list[Mapping[str, Any]]) -> dict[int, Bin]:
    return {int(row["binade"]): Bin(int(row["inputs"]), _listed(row)) for row in rows}


def _span(text: str) -> tuple[int, int]:
    lo, _, last = text.partition("-")
    return int(lo, 16), int(last, 16) + 1


def _pair(text: str) -> tuple[int, int]:
    positive, negative = text.split()
    return int(positive, 16), int(negative, 16)


def _found(row: Mapping[str, Any]) -> Found:
    return Found(int(row["count"]), tuple(int(number["bits"], 16) for number in row.get("first", ())))


def _listed(row: Mapping[str, Any]) -> Worst | None:
    if row["error"] is None:
        return None
    return _worst({"error": row["error"], "input": {"bits": row["input"]}, "got": {"bits": row["got"]}})


def _worst(row: Mapping[str, Any] | None) -> Worst | None:
    if row is None:
        return None
    error = float(row["error"])
    if math.isnan(error):
        raise ValueError("an error is not NaN")
    return Worst(error, int(row["input"]["bits"], 16), int(row["got"]["bits"], 16))
