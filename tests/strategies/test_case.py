"""The recipe: it builds the same bits whatever follows, survives JSON, and refuses what cannot be built."""

from __future__ import annotations

import json
from hashlib import blake2b
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies.case import Case
from strategies.cases import cases
from strategies.dtypes import DTYPES, FORMATS, TORCH, to_bits
from strategies.upstream import UPSTREAM
from strategies.values import VALUES


@settings(deadline=None, max_examples=150)
@given(
    case=cases(max_elements=64),
    knobs=st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)),
)
def test_a_line_of_json_gives_the_case_back(case: Case, knobs: dict[str, Any]) -> None:
    case = case.with_knobs(**knobs)
    line = case.dumps()
    assert "\n" not in line
    assert "'" not in line or any("'" in str(part) for part in knobs.items())
    back = Case.loads(line)
    assert back == case
    assert type(back.cap) is type(case.cap)
    assert back.dumps() == line
    assert torch.equal(to_bits(back.x()), to_bits(case.x()))


@pytest.mark.parametrize("cap", [30, 30.0, 30.1, 2**24 + 1, 10**30, 2.0**-60, 1.1754943508222875e-38])
def test_caps_survive_exactly(cap: int | float) -> None:
    back = Case.loads(Case((1,), "fp32", cap).dumps()).cap
    assert (back, type(back)) == (cap, type(cap))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", VALUES)
def test_x_of_16_elements_starts_with_x_of_15(family: str, dtype: str) -> None:
    whole = to_bits(Case((3000,), dtype, 7.3, values=family, seed=11).x())
    for count in (0, 1, 15, 16, 1024, 2999):
        assert torch.equal(to_bits(Case((count,), dtype, 7.3, values=family, seed=11).x()), whole[:count])
    assert torch.equal(to_bits(Case((3, 1000), dtype, 7.3, values=family, seed=11).x()).reshape(-1), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", [*UPSTREAM, "hashed"])
def test_grad_y_of_16_elements_starts_with_grad_y_of_15(family: str, dtype: str) -> None:
    case = Case((2000,), "bf16", 7.3, seed=4, knobs=(("grad_values", family),))
    whole = to_bits(case.grad_y(TORCH[dtype]))
    assert torch.equal(to_bits(case.replace(shape=(77,)).grad_y(TORCH[dtype])), whole[:77])
    assert case.grad_y(TORCH[dtype]).dtype == TORCH[dtype]


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case((5000,), "fp32", 30, values="mixed")
    whole = case.x()
    monkeypatch.setattr("strategies.values._CHUNK", 333)
    assert torch.equal(to_bits(case.x()), to_bits(whole))


def test_process_state_does_not_show() -> None:
    case = Case((500,), "fp32", 30, values="mixed", knobs=(("grad_values", "small"),))
    before = to_bits(case.x()), to_bits(case.grad_y(torch.float32))
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.bfloat16)
        torch.set_flush_denormal(True)
        torch.manual_seed(1)
        after = to_bits(case.x()), to_bits(case.grad_y(torch.float32))
    finally:
        torch.set_flush_denormal(False)
        torch.set_default_dtype(default)
    assert all(torch.equal(one, two) for one, two in zip(before, after, strict=True))


def test_seeds_and_roles_differ() -> None:
    case = Case((256,), "fp32", 30, values="finite_bits")
    assert not torch.equal(case.x(), case.replace(seed=1).x())
    linear = case.replace(values="linear", knobs=(("grad_values", "signed"),))
    signs = (linear.x() > 0) == (linear.grad_y(torch.float32) > 0)
    assert 64 < int(signs.sum()) < 192


def word(seed: int, stream: str, index: int) -> int:
    """SplitMix64 on Python's integers, under the key that the README of a replayed case would have to state."""
    mask, text = (1 << 64) - 1, f"int:{seed}\x1fstr:x\x1fstr:{stream}"
    state = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")
    state = (state + (index + 1) * 0x9E3779B97F4A7C15) & mask
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & mask
    return state ^ (state >> 31)


@pytest.mark.parametrize("seed", [0, 3, 2**70])
def test_a_case_of_an_old_report_builds_the_same_bits(seed: int) -> None:
    wanted = [
        (word(seed, "between", i) >> 2) % 0x7F800000 + ((word(seed, "sign", i) >> 63) << 31)
        for i in range(50)
    ]
    assert to_bits(Case((50,), "fp32", 30, values="finite_bits", seed=seed).x()).tolist() == wanted


def test_literal_values_are_the_bits_in_logical_order() -> None:
    patterns = (0x3F80, 0x8000, 0x7FC1, 0x7F80, 0x0001, 0xFFFF)
    for layout in ("contiguous", "transposed", "stepped"):
        case = Case((2, 3), "bf16", 30, values=patterns, layout=layout)
        assert to_bits(case.x()).reshape(-1).tolist() == list(patterns)
    assert '"values":["0x3f80",' in case.dumps()
    assert Case.loads(case.dumps()) == case
    assert Case.loads('{"shape":[1],"dtype":"bf16","cap":30,"values":[16256]}').x().tolist() == [1.0]


def test_literal_gradients_are_fp32_bits_rounded_once() -> None:
    bits = (0x3F800000, 0x80000000, 0x7F800000, 0x7FC00000, 0x3F808001)
    case = Case((5,), "fp32", 30, knobs=(("grad_bits", bits),))
    assert tuple(to_bits(case.grad_y(torch.float32)).tolist()) == bits
    assert to_bits(case.grad_y(torch.bfloat16)).tolist() == [0x3F80, 0x8000, 0x7F80, 0x7FC0, 0x3F81]


def test_hashed_gradients_follow_the_bits_and_not_the_place() -> None:
    case = Case((2048,), "fp16", 30, values="bits", knobs=(("grad_values", "hashed"),))
    shuffled = tuple(reversed(to_bits(case.x()).tolist()))
    mirrored = case.replace(values=shuffled)
    for dtype in TORCH.values():
        assert torch.equal(mirrored.grad_y(dtype), case.grad_y(dtype).flip(0))
    assert len(case.grad_y(torch.float32).unique()) > 1000
    expanded = case.replace(shape=(16, 128), layout="expanded").grad_y(torch.float32)
    assert torch.equal(expanded, expanded[:1].expand(16, 128))


def test_pick_is_a_knob_or_a_hash() -> None:
    case = Case((3,), "fp32", 30, seed=9)
    picks = {case.replace(seed=seed).pick("cut", 2, 5) for seed in range(60)}
    assert picks == {2, 3, 4, 5}
    assert case.pick("cut", 0, 10**9) == case.pick("cut", 0, 10**9) != case.pick("other", 0, 10**9)
    assert case.with_knobs(cut=4).pick("cut", 2, 5) == 4
    assert case.with_knobs(cut=40).pick("cut", 2, 5) == 5
    assert case.with_knobs(cut=-1).pick("cut", 2, 5) == 2
    with pytest.raises(ValueError, match="nothing to pick for 'cut' from 3 to 2"):
        case.pick("cut", 3, 2)
    with pytest.raises(ValueError, match="knob 'cut' is 'x': an integer is picked here"):
        case.with_knobs(cut="x").pick("cut", 2, 5)


def test_knobs_are_sorted_set_and_taken_away() -> None:
    case = Case((3,), "fp32", 30, knobs=(("b", 1), ("a", 2)))
    assert case.knobs == (("a", 2), ("b", 1))
    assert case.with_knobs(a=None, c="x").knobs == (("b", 1), ("c", "x"))
    assert hash(case) == hash(Case((3,), "fp32", 30, knobs=(("a", 2), ("b", 1))))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shape": [2]}, "shape is"),
        ({"shape": (-1,)}, "shape is"),
        ({"shape": (True,)}, "shape is"),
        ({"dtype": "fp64"}, "no dtype 'fp64': there are fp16, bf16, fp32"),
        ({"cap": 0}, "cap is 0: it must be finite and positive"),
        ({"cap": True}, "cap is True"),
        ({"cap": "30"}, "cap is '30'"),
        ({"cap": 1e39}, "cap is 1e\\+39"),
        ({"layout": "diagonal"}, "no layout 'diagonal': there are contiguous"),
        ({"layout": []}, "no layout"),
        ({"values": "normal"}, "no values 'normal': there are constant"),
        ({"values": (1,)}, "1 values for 2 elements"),
        ({"values": (1, 1 << 16)}, "a tuple of 16-bit patterns"),
        ({"values": (1, -1)}, "a tuple of 16-bit patterns"),
        ({"seed": -1}, "seed is -1"),
        ({"knobs": (("a", 1), ("a", 2))}, "given twice"),
        ({"knobs": (("a", 1.5),)}, "knob a is 1.5"),
        ({"knobs": (("grad_values", "odd"),)}, "knob grad_values is 'odd': there are signed"),
        ({"knobs": (("grad_layout", 3),)}, "knob grad_layout is 3: there are contiguous"),
        ({"knobs": (("grad_bits", (1,)),)}, "1 grad_bits for 2 elements"),
        ({"knobs": (("grad_bits", "ones"),)}, "grad_bits are 'ones'"),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_refused(fields: dict[str, Any], message: str) -> None:
    whole: dict[str, Any] = {"shape": (2,), "dtype": "bf16", "cap": 30, **fields}
    with pytest.raises(ValueError, match=message):
        Case(**whole)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "a case is one JSON object, as a report prints it"),
        ("{", "a case is one JSON object, as a report prints it"),
        ("[" * 100_000, "a case is one JSON object|Expecting"),
        ("[1]", "not list"),
        ("{}", "shape, dtype, cap missing"),
        ('{"shape":[2],"dtype":"bf16"}', "cap missing"),
        ('{"shape":[2],"dtype":"bf16","cap":30,"colour":1}', "a case has no colour"),
        ('{"shape":2,"dtype":"bf16","cap":30}', "a list of integers is needed, not 2"),
        ('{"shape":["two"],"dtype":"bf16","cap":30}', "not all of these are integers"),
        ('{"shape":[2.5],"dtype":"bf16","cap":30}', "shape is"),
        ('{"shape":[2],"dtype":[],"cap":30}', "no dtype"),
        ('{"shape":[2],"dtype":"bf16","cap":NaN}', "cap is nan"),
        ('{"shape":[2],"dtype":"bf16","cap":null}', "cap is None"),
        ('{"shape":[2],"dtype":"bf16","cap":30,"values":7}', "a list of integers is needed"),
        ('{"shape":[2],"dtype":"bf16","cap":30,"knobs":[1]}', "knobs are a JSON object"),
        ('{"shape":[2],"dtype":"bf16","cap":30,"knobs":{"a":null}}', "a list of integers is needed, not None"),
        ('{"shape":[2],"dtype":"bf16","cap":30,"layout":{}}', "no layout"),
    ],
)  # fmt: skip
def test_a_bad_line_is_a_value_error_for_a_reader(line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Case.loads(line)


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(
        st.sampled_from(["shape", "dtype", "cap", "layout", "values", "seed", "knobs", "x"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
            ),
            max_leaves=5,
        ),
    )
)
def test_any_json_object_is_a_case_or_a_value_error(record: dict[str, Any]) -> None:
    filled = {"shape": [1], "dtype": "fp32", "cap": 30, **record}
    try:
        case = Case.loads(json.dumps(filled))
    except ValueError:
        return  # what it says is for test_a_bad_line_is_a_value_error_for_a_reader
    assert case.numel == prod(case.shape)


def test_empty_and_0d_build_in_every_family() -> None:
    for dtype in DTYPES:
        for family in VALUES:
            assert Case((), dtype, 30, values=family).x().shape == ()
            assert Case((0, 3), dtype, 30, values=family).x().shape == (0, 3)
        assert to_bits(Case((), dtype, 30, values=(5,)).x()).item() == 5
        assert Case((0,), dtype, 30, values=()).x().numel() == 0
    assert FORMATS["bf16"].width == 16
