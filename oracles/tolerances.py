"""The tolerance contract: every number that decides a verdict, read from the JSON file beside this module.

* `specification`: the operator's specification, atol and rtol by the dtype of the compared tensor.
* `ulp`: |y - exact| <= forward_ulps FP32 ulp + cap * 2**forward_floor_log2, and for gradients
  gradient_units * 2**gradient_unit_log2 * |grad_y|. A division and a product of half an ulp each and a tanh
  of 2 ulp (the CUDA guide's bound), times the significand of the cap, stay within 6.
* `chain`: an eager chain of three roundings in the input dtype, see `oracles.margins`.
* `judged`: outside these powers of two results are reported and not judged.
* `saturation`, `double_backward`, `bitwise`: read by the laws of those names; a bitwise row is the number
  of elements whose bits may differ.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oracles.formats import FORMATS, format_of

CONTRACT_PATH = Path(__file__).with_name("tolerance_contract.json")
Range = tuple[float, float]

_LAYOUT: dict[str, tuple[str, ...]] = {
    "ulp": (
        "forward_ulps",
        "forward_floor_log2",
        "gradient_units",
        "gradient_unit_log2",
        "flush_log2",
        "infinite_gradient_z",
    ),
    "chain": ("forward_ulps", "gradient_units"),
    "judged": ("cap_log2", "grad_y_log2", "cap_grad_y_log2"),
    "saturation": ("z",),
    "double_backward": ("bound_log2", "z"),
}


@dataclass(frozen=True)
class Tolerance:
    """|got - want| <= atol + rtol * |want|."""

    atol: float
    rtol: float


@dataclass(frozen=True)
class Contract:
    """The contract; `rows` is the parsed JSON, already checked by `parse_contract`."""

    rows: Mapping[str, Any]

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of the canonical JSON: sorted keys, no blanks."""
        canonical = json.dumps(self.rows, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def tolerance(self, dtype: torch.dtype, op_class: str = "elementwise") -> Tolerance:
        """The specification's row for a compared tensor of `dtype`. ValueError for an unknown op_class."""
        classes = self.rows["specification"]
        if op_class not in classes:
            known = ", ".join(sorted(classes))
            raise ValueError(f"no tolerances for operator class {op_class!r}: there are {known}")
        row = classes[op_class][format_of(dtype).name]
        return Tolerance(float(row["atol"]), float(row["rtol"]))

    @property
    def forward_ulps(self) -> float:
        """Forward tolerance in FP32 ulps of the exact value."""
        return float(self.rows["ulp"]["forward_ulps"])

    @property
    def forward_floor(self) -> float:
        """Forward tolerance in units of the cap, added to the ulps."""
        return _power(self.rows["ulp"]["forward_floor_log2"])

    @property
    def gradient_unit(self) -> float:
        """The unit of gradient errors, relative to |grad_y|."""
        return _power(self.rows["ulp"]["gradient_unit_log2"])

    @property
    def gradient_tolerance(self) -> float:
        """Gradient tolerance relative to |grad_y|."""
        return float(self.rows["ulp"]["gradient_units"]) * self.gradient_unit

    @property
    def flush_below(self) -> float:
        """±0 is accepted where |x/c| (forward) or |exact| is below this."""
        return _power(self.rows["ulp"]["flush_log2"])

    @property
    def infinite_gradient_z(self) -> float:
        """Below this |x/c| an infinite grad_y must give that infinity."""
        return float(self.rows["ulp"]["infinite_gradient_z"])

    @property
    def chain_ulps(self) -> float:
        """Rule "chain", forward: ulps of the input dtype."""
        return float(self.rows["chain"]["forward_ulps"])

    @property
    def chain_gradient_units(self) -> float:
        """Rule "chain", gradient: units of 2**-precision of the input dtype, relative to |grad_y|."""
        return float(self.rows["chain"]["gradient_units"])

    @property
    def judged_cap_range(self) -> Range:
        """Caps that are judged, both ends included."""
        return _powers(self.rows["judged"]["cap_log2"])

    @property
    def judged_grad_range(self) -> Range:
        """|grad_y| that is judged, both ends included; 0 always is."""
        return _powers(self.rows["judged"]["grad_y_log2"])

    @property
    def judged_product_range(self) -> Range:
        """cap * |grad_y| that is judged, both ends included; 0 always is."""
        return _powers(self.rows["judged"]["cap_grad_y_log2"])

    @property
    def saturation_z(self) -> float:
        """From this |x/c| on an FP32 result is exactly ±c."""
        return float(self.rows["saturation"]["z"])

    @property
    def double_backward_bound(self) -> float:
        """Second-order error, relative to the largest exact value."""
        return _power(self.rows["double_backward"]["bound_log2"])

    @property
    def double_backward_z(self) -> Range:
        """|x/c| for which second-order gradients are asked."""
        low, high = self.rows["double_backward"]["z"]
        return float(low), float(high)

    def bitwise(self, law: str) -> int:
        """How many elements may differ in bits under an invariance law (`default`: a law without a row)."""
        rows = self.rows["bitwise"]
        return int(rows.get(law, rows["default"]))

    def judges_cap(self, cap: float) -> bool:
        """Whether results at this cap are judged."""
        low, high = self.judged_cap_range
        return low <= cap <= high

    def judges(self, cap: float, grad_y: Tensor) -> Tensor:
        """Where gradients are judged: bool, grad_y's shape. Zeros and non-finite values always are."""
        size = grad_y.detach().to(torch.float64).abs()
        (low, high), (least, most) = self.judged_grad_range, self.judged_product_range
        inside = (size >= low) & (size <= high) & (size * cap >= least) & (size * cap <= most)
        return (inside | (size == 0) | ~size.isfinite()) & self.judges_cap(cap)


def load_contract(path: str | Path | None = None) -> Contract:
    """The contract in a JSON file, or the one that ships. ValueError names a missing or wrong row."""
    return _shipped() if path is None else parse_contract(json.loads(Path(path).read_text()))


def parse_contract(rows: Mapping[str, Any]) -> Contract:
    """A contract from parsed JSON, after a look at every row. Raises ValueError that names the row."""
    _expect_keys("its top", rows, ("version", "operator", "specification", "bitwise", *_LAYOUT))
    for section, names in _LAYOUT.items():
        _expect_keys(section, rows.get(section), names)
        for name in names:
            _expect_numbers(f"{section}.{name}", rows[section][name], pair=_is_pair(section, name))
    _expect_keys("specification", rows.get("specification"), ("elementwise",), exactly=False)
    for op_class, by_dtype in rows["specification"].items():
        _expect_keys(f"specification.{op_class}", by_dtype, [fmt.name for fmt in FORMATS.values()])
        for dtype, row in by_dtype.items():
            _expect_keys(f"specification.{op_class}.{dtype}", row, ("atol", "rtol"))
            for name, value in row.items():
                _expect_numbers(f"specification.{op_class}.{dtype}.{name}", value, pair=False)
    _expect_keys("bitwise", rows.get("bitwise"), ("default",), exactly=False)
    for law, count in rows["bitwise"].items():
        _expect_numbers(f"bitwise.{law}", count, pair=False)
    return Contract(rows)


def resolve_tolerance(
    dtype: torch.dtype | str, op_class: str = "elementwise", contract: Contract | None = None
) -> Tolerance:
    """The specification's row for a compared tensor of `dtype` (torch's, or "fp16", "bf16", "fp32")."""
    if isinstance(dtype, str):
        by_name = {fmt.name: known for known, fmt in FORMATS.items()}
        if dtype not in by_name:
            raise ValueError(f"unknown dtype {dtype!r}: there are {', '.join(by_name)}")
        dtype = by_name[dtype]
    return (contract or load_contract()).tolerance(dtype, op_class)


@lru_cache(maxsize=1)
def _shipped() -> Contract:
    return parse_contract(json.loads(CONTRACT_PATH.read_text()))


def _power(log2: float) -> float:
    return float(2.0**log2)


def _powers(log2s: tuple[float, float]) -> Range:
    return _power(log2s[0]), _power(log2s[1])


def _is_pair(section: str, name: str) -> bool:
    return section == "judged" or (section, name) == ("double_backward", "z")


def _expect_keys(where: str, row: object, names: Any, exactly: bool = True) -> None:
    if not isinstance(row, Mapping):
        raise ValueError(f"tolerance contract: {where} must be an object, not {row!r}")
    missing = [name for name in names if name not in row]
    extra = [name for name in row if name not in names] if exactly else []
    if missing or extra:
        raise ValueError(f"tolerance contract: {where} lacks {missing}, and has {extra} that nobody reads")


def _expect_numbers(where: str, value: object, pair: bool) -> None:
    numbers = value if pair and isinstance(value, (list, tuple)) else [value]
    good = all(isinstance(n, (int, float)) and not isinstance(n, bool) and math.isfinite(n) for n in numbers)
    if not good or len(numbers) != (2 if pair else 1):
        accepted = "two numbers" if pair else "a number"
        raise ValueError(f"tolerance contract: {where} must be {accepted}, not {value!r}")
