"""The tolerance contract: its rows, its fingerprint, and that each row decides something."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from oracles.acceptance import accept
from oracles.rounding import neighbour
from oracles.tolerances import (
    CONTRACT_PATH,
    Contract,
    Tolerance,
    load_contract,
    parse_contract,
    resolve_tolerance,
)
from oracles.truth import Truth

ROWS: dict[str, Any] = json.loads(CONTRACT_PATH.read_text())
Leaf = tuple[str | int, ...]


def leaves(rows: Any, path: Leaf = ()) -> Iterator[Leaf]:
    """The path of every number in the contract, the version of its layout apart."""
    if isinstance(rows, (dict, list)):
        for key, value in rows.items() if isinstance(rows, dict) else enumerate(rows):
            yield from leaves(value, (*path, key))
    elif not isinstance(rows, str) and path != ("version",):
        yield path


def changed(path: Leaf, value: float) -> Contract:
    """The contract with one number replaced."""
    rows = copy.deepcopy(ROWS)
    row = rows
    for key in path[:-1]:
        row = row[key]
    assert row[path[-1]] != value
    row[path[-1]] = value
    return parse_contract(rows)


def one(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.tensor([value], dtype=dtype)


def off_by(ulps: int, x: float = 10.0, cap: float = 30.0) -> tuple[Tensor, Truth]:
    truth = Truth.of(one(x), cap)
    return neighbour(truth.rounded(torch.float32), ulps), truth


def near_zero() -> tuple[Tensor, Truth]:
    """x = 2**-149 at cap 2**8, off by 130 subnormal spacings: 6 + 2**8 are allowed."""
    return one(131 * 2.0**-149), Truth.of(one(2.0**-149), 2.0**8)


def gradient(got: float, x: float = 10.0, g: float = 1.0, cap: float = 30.0) -> tuple[Tensor, Truth]:
    return one(got), Truth.of(one(x), cap, one(g))


def specified(dtype: torch.dtype, x: float, off: float) -> tuple[Tensor, Truth]:
    truth = Truth.of(one(x, dtype), 30.0)
    return (truth.rounded(dtype).double() + off).to(dtype), truth


def chained(grad_y: Tensor | None, off: float) -> tuple[Tensor, Truth]:
    truth = Truth.of(one(12.0, torch.bfloat16), 30.0, grad_y)
    return (truth.value + off).to(torch.bfloat16), truth


Sample = Callable[[], tuple[Tensor, Truth]]
SECH2_10_30 = 1 - torch.tensor(1 / 3, dtype=torch.float64).tanh().item() ** 2

# path of a number, another value for it, the rule and the result that is accepted under only one of the two
FLIPS: list[tuple[Leaf, float, str, Sample]] = [
    (("ulp", "forward_ulps"), 4, "ulp", lambda: off_by(5)),
    (("ulp", "forward_ulps"), 8, "ulp", lambda: off_by(7)),
    (("ulp", "forward_floor_log2"), -151, "ulp", near_zero),
    (("ulp", "gradient_units"), 3, "ulp", lambda: gradient(SECH2_10_30 + 5 * 2.0**-24)),
    (("ulp", "gradient_unit_log2"), -25, "ulp", lambda: gradient(SECH2_10_30 + 5 * 2.0**-24)),
    (("ulp", "flush_log2"), -140, "ulp", lambda: (one(0.0), Truth.of(one(2.0**-130), 2.0**-60))),
    (("ulp", "flush_log2"), -10, "ulp", lambda: (one(0.0), Truth.of(one(2.0**-12), 1.0))),
    (("ulp", "infinite_gradient_z"), 2, "ulp", lambda: gradient(torch.nan, x=150.0, g=torch.inf)),
    (("ulp", "infinite_gradient_z"), 12, "ulp", lambda: gradient(torch.nan, x=300.0, g=torch.inf)),
    (("chain", "forward_ulps"), 1, "chain", lambda: chained(None, 2.0 * 2**-4)),
    (("chain", "gradient_units"), 1, "chain", lambda: chained(one(1.0), 4.0 * 2**-8)),
    (
        ("specification", "elementwise", "fp32", "atol"),
        1e-7,
        "specification",
        lambda: specified(torch.float32, 1e-3, 9e-6),
    ),
    (
        ("specification", "elementwise", "fp32", "rtol"),
        1e-7,
        "specification",
        lambda: specified(torch.float32, 60, 1e-4),
    ),
    (
        ("specification", "elementwise", "fp16", "atol"),
        1e-5,
        "specification",
        lambda: specified(torch.float16, 1e-3, 9e-4),
    ),
    (
        ("specification", "elementwise", "fp16", "rtol"),
        1e-5,
        "specification",
        lambda: specified(torch.float16, 60, 0.0157),
    ),
    (
        ("specification", "elementwise", "bf16", "atol"),
        1e-3,
        "specification",
        lambda: specified(torch.bfloat16, 1e-3, 1e-2),
    ),
    (
        ("specification", "elementwise", "bf16", "rtol"),
        1e-3,
        "specification",
        lambda: specified(torch.bfloat16, 60, 0.25),
    ),
    (("judged", "cap_log2", 0), -70, "ulp", lambda: off_by(9, 2.0**-65, 2.0**-65)),
    (("judged", "cap_log2", 0), 6, "ulp", lambda: off_by(9)),
    (("judged", "cap_log2", 1), 70, "ulp", lambda: off_by(9, 2.0**65, 2.0**65)),
    (("judged", "cap_log2", 1), 4, "ulp", lambda: off_by(9)),
    (("judged", "grad_y_log2", 0), -120, "ulp", lambda: gradient(0.0, g=2.0**-104)),
    (("judged", "grad_y_log2", 0), 1, "ulp", lambda: gradient(0.0)),
    (("judged", "grad_y_log2", 1), 120, "ulp", lambda: gradient(0.0, x=2.0**-20, g=2.0**104, cap=2.0**-20)),
    (("judged", "grad_y_log2", 1), -1, "ulp", lambda: gradient(0.0)),
    (("judged", "cap_grad_y_log2", 0), -120, "ulp", lambda: gradient(0.0, 2.0**-20, 2.0**-95, 2.0**-20)),
    (("judged", "cap_grad_y_log2", 1), 120, "ulp", lambda: gradient(0.0, 2.0**20, 2.0**95, 2.0**20)),
]

# numbers that the laws read: the accessor, and the number it gives from the changed row
READ: list[tuple[Leaf, float, Callable[[Contract], Any]]] = [
    (("saturation", "z"), 11, lambda contract: contract.saturation_z),
    (("double_backward", "bound_log2"), -6, lambda contract: contract.double_backward_bound),
    (("double_backward", "z", 0), 0.2, lambda contract: contract.double_backward_z),
    (("double_backward", "z", 1), 3, lambda contract: contract.double_backward_z),
    *[
        (
            ("bitwise", law),
            1,
            lambda contract, law=law: contract.bitwise("any other" if law == "default" else law),
        )
        for law in ROWS["bitwise"]
    ],
]


@pytest.mark.parametrize(
    ("path", "value", "rule", "sample"), FLIPS, ids=lambda v: str(v) if isinstance(v, tuple) else None
)
def test_each_row_flips_a_verdict(path: Leaf, value: float, rule: str, sample: Sample) -> None:
    got, truth = sample()
    shipped, other = accept(rule, got, truth), accept(rule, got, truth, changed(path, value))
    assert shipped.all_ok != other.all_ok


@pytest.mark.parametrize(
    ("path", "value", "read"), READ, ids=lambda v: str(v) if isinstance(v, tuple) else None
)
def test_each_row_of_the_laws_is_read(path: Leaf, value: float, read: Callable[[Contract], Any]) -> None:
    assert read(load_contract()) != read(changed(path, value))


def test_no_row_is_left_out() -> None:
    assert {path for path, *_ in FLIPS} | {path for path, *_ in READ} == set(leaves(ROWS))


def test_the_specification() -> None:
    assert resolve_tolerance(torch.float32) == Tolerance(1e-5, 1e-5)
    assert resolve_tolerance("fp16") == Tolerance(1e-3, 1e-3)
    assert resolve_tolerance("bf16", "elementwise") == Tolerance(2e-2, 1.6e-2)


def test_the_numbers_of_the_rules() -> None:
    contract = load_contract()
    assert (contract.forward_ulps, contract.forward_floor) == (6, 2.0**-149)
    assert (contract.gradient_tolerance, contract.flush_below) == (6 * 2.0**-24, 2.0**-126)
    assert contract.judged_cap_range == (2.0**-60, 2.0**60)
    assert contract.judged_grad_range == contract.judged_product_range == (2.0**-100, 2.0**100)
    assert (contract.double_backward_bound, contract.double_backward_z) == (2.0**-5, (0.1, 2.0))
    assert contract.bitwise("slicing") == contract.bitwise("a law of tomorrow") == 0


def test_judged_domain_of_gradients() -> None:
    g = torch.tensor([0.0, 2.0**-101, 2.0**-100, -(2.0**100), 2.0**101, torch.inf, torch.nan])
    contract = load_contract()
    assert contract.judges(1.0, g).tolist() == [True, False, True, True, False, True, True]
    assert contract.judges(2.0, g)[3].item() is False
    assert not contract.judges(2.0**-61, g).any()


@pytest.mark.parametrize("path", list(leaves(ROWS)), ids=str)
def test_the_fingerprint_knows_every_row(path: Leaf) -> None:
    assert changed(path, 0.125).fingerprint != load_contract().fingerprint


def test_the_fingerprint_does_not_depend_on_layout(tmp_path: Path) -> None:
    path = tmp_path / "contract.json"
    path.write_text(json.dumps(dict(reversed(ROWS.items())), indent=7))
    assert load_contract(path).fingerprint == load_contract().fingerprint
    assert len(load_contract().fingerprint) == 64


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda rows: rows.pop("ulp"), "ulp"),
        (lambda rows: rows["ulp"].pop("flush_log2"), "flush_log2"),
        (lambda rows: rows["ulp"].update(unread=1), "unread"),
        (lambda rows: rows["ulp"].update(forward_ulps="6"), "forward_ulps"),
        (lambda rows: rows["ulp"].update(forward_ulps=float("nan")), "forward_ulps"),
        (lambda rows: rows["judged"].update(cap_log2=[1]), "cap_log2"),
        (lambda rows: rows["judged"].update(cap_log2=3), "cap_log2"),
        (lambda rows: rows["specification"].pop("elementwise"), "elementwise"),
        (lambda rows: rows["specification"]["elementwise"].pop("bf16"), "bf16"),
        (lambda rows: rows["specification"]["elementwise"]["fp32"].update(atol=True), "atol"),
        (lambda rows: rows["bitwise"].pop("default"), "default"),
        (lambda rows: rows.update(unread={}), "unread"),
    ],
)
def test_a_broken_contract_is_refused_by_name(edit: Callable[[dict[str, Any]], object], named: str) -> None:
    rows = copy.deepcopy(ROWS)
    edit(rows)
    with pytest.raises(ValueError, match=named):
        parse_contract(rows)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"reduction.*elementwise"):
        resolve_tolerance("fp32", "reduction")
    with pytest.raises(ValueError, match=r"fp64.*fp16"):
        resolve_tolerance("fp64")
    with pytest.raises(TypeError, match="float64"):
        resolve_tolerance(torch.float64)
