"""`Case`: the recipe of one input, which alone replays it on any device, without Hypothesis."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from strategies import dtypes, upstream, values
from strategies.caps import Cap, as_fp32
from strategies.draws import Draw
from strategies.layouts import LAYOUTS, place
from strategies.words import scalar

__all__ = ["MODES", "Case", "Knob"]

Knob = int | str | tuple[int, ...]

# How an operator is served: a module in `eval()`; that, and everything in `torch.inference_mode()`.
MODES: Final = ("eval", "inference_mode")

_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "grad_values": (*upstream.UPSTREAM, "hashed"),
    "grad_layout": tuple(LAYOUTS),
    "mode": MODES,
}


@dataclass(frozen=True)
class Case:
    """A recipe for x and its upstream gradient; ValueError at once for one that cannot be built.

    `values` is a name in VALUES, or the literal bit patterns of all elements in logical order. `knobs` are
    further decisions, sorted by name: "grad_values" (in UPSTREAM, or "hashed": by the bits of x),
    "grad_layout" (in LAYOUTS), "grad_bits" (literal FP32 patterns in logical order), "mode" (in MODES; without it an
    operator is as built), or what a checker picks.
    """

    shape: tuple[int, ...]
    dtype: str
    cap: Cap
    layout: str = "contiguous"
    values: str | tuple[int, ...] = "mixed"
    seed: int = 0
    knobs: tuple[tuple[str, Knob], ...] = ()

    def __post_init__(self) -> None:
        """Sort the knobs, and refuse what cannot be built."""
        object.__setattr__(self, "knobs", tuple(sorted(self.knobs, key=lambda knob: knob[0])))
        _check_fields(self)
        _check_values(self)
        _check_knobs(self)

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def mode(self) -> str:
        """How the operator is served, one of MODES; empty where it is as built."""
        return str(self.knob("mode", ""))

    def x(self, device: torch.device | str = "cpu") -> Tensor:
        """The input tensor, in its layout, on the device."""
        if isinstance(self.values, str):
            flat = values.build(values.VALUES[self.values], self._draw(self.dtype, "x", device), self.numel)
        else:
            flat = values.literal(self.values, self.dtype, device)
        return place(self.layout, flat.view(self.shape))

    def grad_y(self, dtype: torch.dtype, device: torch.device | str = "cpu") -> Tensor:
        """The upstream gradient, shaped like x, of the dtype of the candidate's result, in its own layout."""
        short = dtypes.name(dtype)
        layout = str(self.knob("grad_layout", "contiguous"))
        return place(layout, self._gradient(short, device).view(self.shape))

    def _gradient(self, dtype: str, device: torch.device | str) -> Tensor:
        """The elements of the upstream gradient, 1-D and contiguous."""
        bits, family = self.knob("grad_bits", None), str(self.knob("grad_values", "signed"))
        if isinstance(bits, tuple):
            exact = values.literal(bits, "fp32", device).to(torch.float64)
            rounded = torch.where(exact.isnan(), dtypes.FORMATS[dtype].quiet_nan, dtypes.encode(exact, dtype))
            return dtypes.from_bits(rounded, dtype)
        if family == "hashed":
            return dtypes.from_bits(upstream.hashed(self.x(device).reshape(-1), dtype), dtype)
        return values.build(upstream.UPSTREAM[family], self._draw(dtype, "g", device), self.numel)

    def _draw(self, dtype: str, role: str, device: torch.device | str) -> Draw:
        index = torch.empty(0, dtype=torch.int64, device=device)
        return Draw(index=index, seed=self.seed, dtype=dtype, cap=as_fp32(self.cap), role=role)

    def knob(self, name: str, default: Knob | None) -> Knob | None:
        """The knob of that name, or the default."""
        return dict(self.knobs).get(name, default)

    def pick(self, name: str, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included: the knob of that name, clamped, or else a hash.

        ValueError for an empty range and for a knob that is not an integer.
        """
        if low > high:
            raise ValueError(f"nothing to pick for {name!r} from {low} to {high}: low must not be above high")
        given = self.knob(name, None)
        if given is None:
            return scalar(low, high, self.seed, "pick", name)
        if not isinstance(given, int):
            raise ValueError(f"knob {name!r} is {given!r}: an integer is picked here")
        return min(max(given, low), high)

    def with_knobs(self, **knobs: Knob | None) -> Case:
        """The case with these knobs set (None takes one away) and the others kept."""
        merged = {**dict(self.knobs), **knobs}
        return self.replace(knobs=tuple((name, value) for name, value in merged.items() if value is not None))

    def replace(self, **fields: Any) -> Case:
        """The case with these fields replaced."""
        return replace(self, **fields)

    def dumps(self) -> str:
        """One line of JSON that `loads` turns back into an equal case; most defaults are left out."""
        record: dict[str, Any] = {"shape": list(self.shape), "dtype": self.dtype, "cap": self.cap}
        if self.layout != "contiguous":
            record["layout"] = self.layout
        record["values"] = self.values if isinstance(self.values, str) else [*map(hex, self.values)]
        if self.seed:
            record["seed"] = self.seed
        if self.knobs:
            record["knobs"] = {name: [*map(hex, v)] if isinstance(v, tuple) else v for name, v in self.knobs}
        return json.dumps(record, separators=(",", ":"))

    @classmethod
    def loads(cls, text: str) -> Case:
        """The case of a line written by `dumps`; ValueError that says what is wrong with any other."""
        try:
            record = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(f"a case is one JSON object, as a report prints it: {error}") from None
        if not isinstance(record, dict):
            raise ValueError(f"a case is one JSON object, not {type(record).__name__}: {text[:80]!r}")
        if unknown := sorted(set(record) - set(cls.__dataclass_fields__)):
            raise ValueError(
                f"a case has no {', '.join(unknown)}: its fields are {', '.join(cls.__dataclass_fields__)}"
            )
        if missing := [field for field in ("shape", "dtype", "cap") if field not in record]:
            raise ValueError(
                f"a case needs shape, dtype and cap: {', '.join(missing)} missing in {text[:80]!r}"
            )
        return cls(**{**record, **_parsed(record)})


def _parsed(record: dict[str, Any]) -> dict[str, Any]:
    """The fields that JSON has no type for, as a Case holds them."""
    parsed: dict[str, Any] = {"shape": _tuple(record["shape"])}
    if "values" in record and not isinstance(record["values"], str):
        parsed["values"] = _tuple(record["values"])
    if "knobs" in record:
        if not isinstance(record["knobs"], dict):
            raise ValueError(f"knobs are a JSON object of names and values, not {record['knobs']!r}")
        parsed["knobs"] = tuple(
            (n, v if isinstance(v, (int, str)) else _tuple(v)) for n, v in record["knobs"].items()
        )
    return parsed


def _tuple(given: object) -> tuple[int, ...]:
    """A JSON list of integers, or of their hexadecimal texts, as a tuple."""
    if not isinstance(given, list):
        raise ValueError(f"a list of integers is needed, not {given!r}")
    try:
        return tuple(int(item, 16) if isinstance(item, str) else item for item in given)
    except ValueError:
        raise ValueError(f"not all of these are integers: {given!r}") from None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_knob(value: object) -> bool:
    """Whether JSON can hold the value and `loads` gives it back."""
    if isinstance(value, tuple):
        return all(map(_is_count, value))
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def _check_fields(case: Case) -> None:
    """ValueError unless every plain field is one that can be built."""
    shape: object = case.shape  # a caller without a type checker may have given anything
    if not isinstance(shape, tuple) or not all(map(_is_count, shape)):
        raise ValueError(f"shape is {case.shape!r}: a tuple of sizes, 0 or more each, is needed")
    if case.dtype not in dtypes.DTYPES:
        raise ValueError(f"no dtype {case.dtype!r}: there are {', '.join(dtypes.DTYPES)}")
    if case.layout not in tuple(LAYOUTS):
        raise ValueError(f"no layout {case.layout!r}: there are {', '.join(LAYOUTS)}")
    if not _is_count(case.seed):
        raise ValueError(f"seed is {case.seed!r}: an integer, 0 or more, is needed")
    as_fp32(case.cap)


def _check_values(case: Case) -> None:
    """ValueError unless the values are a known name or one pattern of the dtype for each element."""
    if isinstance(case.values, str):
        if case.values not in values.VALUES:
            raise ValueError(f"no values {case.values!r}: there are {', '.join(values.VALUES)}")
        return
    _check_patterns("values", case.values, case.numel, dtypes.FORMATS[case.dtype].width)


def _check_patterns(what: str, patterns: object, count: int, width: int) -> None:
    if not isinstance(patterns, tuple) or not all(
        _is_count(bits) and bits >> width == 0 for bits in patterns
    ):
        raise ValueError(f"{what} are {patterns!r}: a name, or a tuple of {width}-bit patterns, is needed")
    if len(patterns) != count:
        raise ValueError(f"{len(patterns)} {what} for {count} elements: one for each is needed")


def _check_knobs(case: Case) -> None:
    """ValueError unless knobs have each a name of their own, and those read here name what there is."""
    names = [name for name, _ in case.knobs]
    if len(set(names)) != len(names):
        raise ValueError(f"a knob is given twice in {case.knobs!r}")
    for name, value in case.knobs:
        if not _is_knob(value):
            raise ValueError(f"knob {name} is {value!r}: an integer, a text or a tuple of integers is needed")
        if name == "grad_bits":
            _check_patterns("grad_bits", value, case.numel, 32)
        elif name in _CHOICES and value not in _CHOICES[name]:
            raise ValueError(f"knob {name} is {value!r}: there are {', '.join(_CHOICES[name])}")
