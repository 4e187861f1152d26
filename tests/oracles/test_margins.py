"""The margins, for tensors and exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from oracles.exact import Enclosure
from oracles.margins import margin_of
from oracles.tolerances import load_contract
from oracles.truth import Truth

X = [2.0**-149, 1e-20, 0.1, 1.0, 31.0, 32.5, 500.0]


@pytest.mark.parametrize("rule", ["ulp", "chain"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_both_evaluations_agree(rule: str, dtype: torch.dtype) -> None:
    x = torch.tensor(X).to(dtype)
    for truth in (Truth.of(x, 30), Truth.of(x, 30, torch.linspace(-2, 2, len(X)))):
        margin = margin_of(rule, truth, load_contract())
        floor = margin.floor.expand(x.shape)
        wide = margin.at(truth.value, floor)
        for i in range(len(X)):
            exactly = margin.exactly(truth.exact(i), floor[i].item())
            assert exactly is not None
            assert float(exactly) == wide[i].item()


def test_the_numbers() -> None:
    x = torch.tensor([40.0])
    contract = load_contract()
    forward = margin_of("ulp", Truth.of(x, 30), contract)
    assert (
        forward.at(torch.tensor([26.0], dtype=torch.float64), forward.floor).item()
        == 6 * 2.0**-19 + 30 * 2.0**-149
    )
    gradient = margin_of("ulp", Truth.of(x, 30, torch.tensor([-3.0])), contract)
    assert gradient.floor.item() == 18 * 2.0**-24
    chain = margin_of("chain", Truth.of(x.bfloat16(), 30), contract)
    value = torch.tensor([26.0], dtype=torch.float64)
    assert chain.at(value, chain.floor).item() == pytest.approx(3 * 2.0**-3, rel=1e-4)


def test_an_unknown_binade_is_not_guessed() -> None:
    margin = margin_of("ulp", Truth.of(torch.ones(1), 30), load_contract())
    assert margin.exactly(Enclosure(Fraction(1, 2), Fraction(3, 2)), 0.0) is None
