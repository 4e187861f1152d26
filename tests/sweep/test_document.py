"""A certificate that was edited, cut short or does not add up is refused in one line, by every reader."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from invariance.cli import main
from invariance.sweep import document
from invariance.sweep.domain import encode
from tests.sweep.subjects import BLOCK, Flushing, Native, Quotient, planted, seams, swept

WRONG = 0x4200


class Cast(Native):
    """The formula in FP32, rounded once more: within the rules."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return super().__call__(x.float()).to(x.dtype)


@cache
def text(violated: bool = False) -> str:
    """A whole FP16 certificate; one input breaks the rules if asked."""
    candidate = planted(Cast, WRONG, 40) if violated else Cast
    return document.dumps(swept(candidate, 30.0, "fp16", "forward"))


@cache
def below() -> str:
    """A BF16 certificate, whose domain reaches below 2**-126."""
    return document.dumps(swept(Cast, 30.0, "bf16", "forward"))


def rewritten(data: dict[str, Any]) -> str:
    """Plain data in the form that `dumps` has."""
    rows = data["profile"]
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    whole = json.dumps({**data, "profile": "PROFILE"}, indent=1) + "\n"
    return whole.replace('"PROFILE"', f"[\n{lines}\n ]" if rows else "[]")


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """An edit: what lies at a dotted path becomes this."""

    def edit(data: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            data = data[int(name) if isinstance(data, list) else name]
        data[int(last) if isinstance(data, list) else last] = value

    return edit


def repeat(data: dict[str, Any]) -> None:
    """A row of the profile twice."""
    data["profile"].insert(3, data["profile"][3])


def drop(data: dict[str, Any]) -> None:
    """The last row of the profile is gone."""
    data["profile"].pop()


def raised(data: dict[str, Any]) -> None:
    """A row that is worse than its encodings, and the whole's worst with it."""
    row = data["profile"][3]
    row["error"] = data["worst"]["error"] = "2.0"
    data["worst"]["input"]["bits"], data["worst"]["got"]["bits"] = row["input"], row["got"]


EDITS: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (put("fingerprint", {}), "fingerprint lacks the range 0x000"),
    (put("fingerprint.0x001", f"{1:016x} {1:016x}"), "range that is not covered, 0x001"),
    (put("fingerprint.0x000", "-000000000000001 0000000000000001"), "two words of 64 bits"),
    (put("fingerprint.0x000", "1 2"), "fingerprint.0x000 is '1 2'"),
    (put("profile", []), "is missing"),
    (drop, "is missing"),
    (repeat, "profile has 42 entries, not 41"),
    (raised, "another error than its input and result"),
    (put("covered", ["0x0-0xffff"]), "from 0x0 to 0x7fff"),
    (put("covered", ["0x0-0x7fff", "0x10-0x20"]), "covered twice"),
    (put("covered", ["0x0-0xff", "0x100-0x7fff"]), "neighbours made one"),
    (put("covered", []), "covered is not"),
    (put("counts.correctly_rounded.count", 999999999), "counts.correctly_rounded is 999999999 of 65536"),
    (put("counts.violations.count", -7), "counts.violations is -7"),
    (put("counts.violations.count", 3), "names 0 inputs, not 3"),
    (put("counts.flushed.count", 65536), "counts.flushed is 65536"),
    (put("counts.escalated.count", True), "counts.escalated.count is True"),
    (put("inputs", 5), "inputs is 5, and 65536"),
    (put("complete", False), "complete is False"),
    (put("worst.error", "0.1"), "worst.error is '0.1'"),
    (put("worst.exact", "1"), "worst.exact is '1'"),
    (put("profile.3.error", "1e999"), "binade"),
    (put("profile.3.error", "nan"), "not NaN"),
    (put("profile.3.got", "0xffffffffff"), "no encoding of"),
    (put("profile.3.input", "-0x3e78"), "not in it or not covered"),
    (put("profile.3.input", "0x7bff"), "not in it or not covered"),
    (put("profile.3.inputs", 7), "has 7 inputs"),
    (put("judged", "false"), "judged is 'false'"),
    (put("judged", False), "the contract says otherwise"),
    (put("contract", "deadbeef"), "contract 'deadbeef'"),
    (put("candidate", ["x"]), "candidate is ['x']"),
    (put("candidate", "a\nb"), "not a name"),
    (put("softcap.given", "../../../evil"), "softcap.given '../../../evil'"),
    (put("softcap.given", "20"), "softcap.given '20'"),
    (put("softcap.given", "030"), "softcap.given '030'"),
    (put("softcap.fp32", "0x1.4p+2000"), "OverflowError"),
    (put("softcap.fp32", "nan"), "finite"),
    (put("softcap.fp32", "inf"), "finite"),
    (put("softcap.fp32", "0x1.e000000000001p+4"), "no FP32 number"),
    (put("pass", "sideways"), "pass 'sideways'"),
    (put("dtype", "fp8"), "dtype 'fp8'"),
    (put("out_dtype", "fp64"), "out_dtype 'fp64'"),
    (put("out_dtype", "bf16"), "out_dtype 'bf16'"),
    (put("below.inputs", 4), "below.inputs is 4, and 2"),
    (put("grad_y", "1"), "grad_y is '1'"),
    (put("more", 1), "unknown entry 'more'"),
]


def test_what_was_written_is_read() -> None:
    for written in (text(), text(True), below()):
        assert rewritten(json.loads(written)) == document.dumps(document.loads(written)) == written


@pytest.mark.parametrize(("edit", "said"), EDITS)
def test_an_edited_certificate_is_refused_by_merge_and_compare(
    edit: Callable[[dict[str, Any]], None], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = json.loads(text())
    edit(data)
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(text())
    bad.write_text(rewritten(data))
    refused(capsys, bad, said, ["merge", bad, "-o", tmp_path / "a" / "b" / "c"])
    refused(capsys, bad, said, ["compare", good, bad])
    refused(capsys, bad, said, ["compare", bad, good])
    assert not list(tmp_path.rglob("*.cert.json"))


def refused(capsys: pytest.CaptureFixture[str], bad: Path, said: str, arguments: list[Any]) -> None:
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.startswith(f"softcap-verify: {bad} is no certificate: ")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole + "\n",
        lambda whole: json.dumps(json.loads(whole)),
        lambda whole: whole.replace('"inputs": 65536,', '"inputs": 5,\n "inputs": 65536,', 1),
        lambda whole: "[" * 100_000,
        lambda whole: '{"format": ' + "[" * 900 + "]" * 900 + "}",
        lambda whole: whole.replace('"inputs": 65536', f'"inputs": {"9" * 5000}', 1),
        lambda whole: "\ufeff" + whole,
        lambda whole: "",
    ],
)
def test_a_damaged_file_is_refused_in_one_line(
    damage: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad"
    bad.write_text(damage(text()), "utf-8")
    refused(capsys, bad, "", ["merge", bad, "-o", tmp_path])
    refused(capsys, bad, "", ["compare", bad, bad])


def test_violations_cannot_be_taken_out(tmp_path: Path) -> None:
    """The count alone, and the count with its inputs: the worst result still breaks the rules."""
    data = json.loads(text(True))
    assert data["counts"]["violations"]["first"][0]["bits"] == f"{WRONG:#06x}"
    data["counts"]["violations"]["count"] = 0
    with pytest.raises(ValueError, match=r"counts\.violations names 1 inputs, not 0"):
        document.loads(rewritten(data))
    del data["counts"]["violations"]["first"]
    with pytest.raises(ValueError, match=r"counts\.violations is 0, and the result at 0x4200 is one"):
        document.loads(rewritten(data))


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("below.worst", None, "and no worst"),
        ("below.worst.error", "1.0", "below has another error"),
        ("below.worst.input.bits", "0x4000", "not in it"),
        ("below.worst.input.decimal", "1.0", "below.worst.input.decimal is '1.0'"),
    ],
)
def test_what_lies_below_is_checked(path: str, value: object, said: str) -> None:
    data = json.loads(below())
    put(path, value)(data)
    with pytest.raises(ValueError, match=said):
        document.loads(rewritten(data))


def test_the_inputs_that_are_named_are_sorted_and_covered() -> None:
    lo = encode(3.0, torch.float32) // BLOCK * BLOCK
    data = json.loads(
        document.dumps(swept(planted(Native, lo + 17, 4000), 30.0, "fp32", "forward", lo, lo + BLOCK))
    )
    data["counts"]["violations"]["first"][0]["bits"] = "0x00000001"
    with pytest.raises(ValueError, match=r"counts\.violations names inputs"):
        document.loads(rewritten(data))


@pytest.mark.parametrize("pass_", ["forward", "backward"])
@pytest.mark.parametrize(("cap", "dtype"), [(1e-44, "bf16"), (1e5, "fp16"), (2**120, "bf16")])
def test_the_certificate_of_any_candidate_is_believed(cap: float | int, dtype: str, pass_: str) -> None:
    """Also of those that break rules, overflow, flush or give NaN, and where the cap is not judged."""
    for kind in (Flushing, Quotient):
        certificate = swept(kind, cap, dtype, pass_)
        assert document.loads(document.dumps(certificate)) == certificate


@pytest.mark.parametrize("pass_", ["forward", "backward"])
def test_the_certificate_of_any_part_is_believed(pass_: str) -> None:
    for kind, lo in itertools.product((Flushing, Quotient), seams(30.0, pass_)):
        certificate = swept(kind, 30.0, "fp32", pass_, lo, lo + BLOCK)
        assert document.loads(document.dumps(certificate)) == certificate


def test_writing_follows_no_link_and_leaves_nothing_beside(tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "out" / "x.cert.json"
    victim.write_text("mine")
    path.parent.mkdir()
    for name in ("x.cert.json.part", "x.cert.json"):
        (path.parent / name).symlink_to(victim)
    document.write(document.loads(text()), path)
    assert victim.read_text() == "mine"
    assert path.read_text() == text()
    assert not path.is_symlink()
    assert sorted(os.listdir(path.parent)) == ["x.cert.json", "x.cert.json.part"]


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        document.write(document.loads(text()), tmp_path / "x.cert.json")
    assert os.listdir(tmp_path) == []
