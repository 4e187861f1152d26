"""The report: its schema, its order, its limits, and that it cannot pass by saying nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from invariance import report as report_package
from invariance.judge import Mismatch, Worst
from invariance.plan import Settings
from invariance.report.html import render as html
from invariance.report.markdown import LIMIT
from invariance.report.markdown import render as markdown
from invariance.report.model import Explored, Report
from invariance.report.text import render as text
from invariance.verdict import FAIL, NO_RESULT, NOT_APPLICABLE, NOT_RUN, PASS, RAISED, Cell, Verdict

SCHEMA = json.loads(Path(report_package.__file__).with_name("schema.json").read_text())
CASE = '{"shape":[1],"dtype":"bf16","cap":30.0,"values":["0x3f80"]}'
BROKEN = Mismatch("[0:1]", "differ in bits", (0,), 0, "1.0 (0x3f80)", None, "1.0 (0x3f80)", "0.5 (0x3f00)", None, 128.0)
ENVIRONMENT = {
    "python": "3", "packages": {}, "device": "cpu", "accelerator": None, "commit": None, "tracked_changes": None,
    "seed": 0, "contract": "c", "candidates": {"k": {"asked": "k", "ran": "k", "launched": None, "substitutions": []}},
}  # fmt: skip


def passed(law: str = "slicing", pass_: str = "forward", dtype: str = "bf16") -> Verdict:
    worst = Worst(0.5, "1.0", "1.0")
    return Verdict(Cell("k", law, pass_, dtype, 30.0), "FI", PASS, 3, 100, worst=worst)


def failed(law: str = "padding") -> Verdict:
    return replace(passed(law), status=FAIL, mismatch=BROKEN, case=CASE)


UNSAID = replace(passed(), status=NOT_APPLICABLE, reason="no gradient")


def report(*verdicts: Verdict, **fields: object) -> Report:
    whole = Report(Settings(), ("k",), verdicts, (), ENVIRONMENT)
    return replace(whole, **fields)  # type: ignore[arg-type]


def certificate(violations: int = 0, *, complete: bool = True) -> dict[str, object]:
    return {
        "candidate": "k", "softcap": {"given": "30"}, "dtype": "bf16", "pass": "forward", "complete": complete,
        "judged": True, "inputs": 65536, "fingerprint": {"0x000": "a b"},
        "counts": {"violations": {"count": violations}, "correctly_rounded": {"count": 65536}},
        "worst": {"error": "0.5", "input": {"decimal": "2.0"}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("whole", "verdict", "status"),
    [
        (report(passed()), "pass", 0),
        (report(passed(), failed()), "fail", 1),
        (report(passed(), replace(passed("batch"), status=NOT_RUN, reason="hangs")), "fail", 1),
        (report(passed(), explored=(Explored("k", "slicing", "forward", 9, 9, failed("slicing")),)), "fail", 1),
        (report(passed(), certificates=(certificate(1),)), "fail", 1),
        (report(passed(), certificates=(certificate(complete=False),)), "fail", 1),
        (report(passed(), complete=False), "incomplete", 1),
        (report(), "incomplete", 1),
        (report(UNSAID), "incomplete", 2),
        (report(UNSAID, certificates=(certificate(),)), "incomplete", 1),
        (report(UNSAID, complete=False), "incomplete", 1),
        (report(UNSAID, passed("batch")), "pass", 0),
    ],
)
def test_only_a_whole_judgement_without_a_failure_passes(whole, verdict, status):
    assert (whole.verdict, whole.exit_status) == (verdict, status)


def test_the_json_follows_the_schema_and_the_schema_can_refuse():
    import jsonschema  # noqa: PLC0415 - a GPU host collects this file and has no need of it

    data = json.loads(report(passed(), failed(), certificates=(certificate(),)).dumps())
    jsonschema.validate(data, SCHEMA)
    data["laws"][0]["elements"] = 0
    with pytest.raises(jsonschema.ValidationError, match="0 is less than the minimum"):
        jsonschema.validate(data, SCHEMA)


def test_a_failure_says_everything_once():
    lines = str(failed()).splitlines()
    names = [line.split()[0] for line in lines[1:]]
    assert lines[0] == "FAIL FI padding · forward · bf16 · cap 30 · k"
    assert names == ["what", "index", "input", "got", "want", "ulps", "case", "replay"]
    assert "1 of 1 elements differ in bits" in lines[1]
    assert CASE in lines[-2]


def test_verdicts_survive_the_way_to_another_process():
    for verdict in (passed(), failed()):
        assert Verdict.of_record(json.loads(json.dumps(verdict.record()))) == verdict


def test_markdown_fits_a_comment_whatever_fails():
    many = [replace(failed(), cell=Cell("k", f"law{i}", "forward", "bf16", 30.0)) for i in range(2000)]
    rendered = markdown(report(*many[:50], *many).as_json())
    assert len(rendered) <= LIMIT
    assert "more failures are in report.json" in rendered


@pytest.mark.parametrize("render", [lambda r: markdown(r.as_json()), text])
def test_what_failed_and_what_did_not_run_is_seen(render):
    not_run = replace(passed("batch"), status=NOT_RUN, reason="it hangs")
    shown = render(report(passed(), failed(), not_run, certificates=(certificate(7),)))
    for part in ("FAIL", "padding", "0x3f80", "it hangs", "7"):
        assert part in shown


def test_a_law_that_was_not_judged_everywhere_does_not_read_as_a_pass():
    cells = (passed("batch"), replace(passed("batch", dtype="fp16"), status=NOT_RUN, reason="it hangs"))
    assert "| batch | forward | **1 not run** |" in markdown(report(*cells).as_json())
    silent = replace(passed("padding", dtype="fp16"), status=NOT_APPLICABLE, reason="no gradient")
    assert "| padding | forward | **1 of 1 fail** |" in markdown(report(failed(), silent).as_json())


def test_where_no_law_applies_the_terminal_says_why_once():
    several = [UNSAID, replace(UNSAID, cell=passed("batch").cell), replace(UNSAID, cell=passed(dtype="fp16").cell)]
    shown = text(report(*several))
    assert "NOTHING TO JUDGE: no law that was asked for applies here\n  batch, slicing: no gradient\n" in shown
    assert "NOTHING" not in text(report(*several, passed()))


def test_an_access_outside_is_one_cause_whatever_the_sizes_were():
    def outside(law, lanes, offset):
        said = f"OutOfBounds: store: {lanes} of 256 active lanes outside y (torch.float32, {offset} elements)"
        raised = Mismatch(RAISED, NO_RESULT, got=said, want="a result")
        return replace(failed(law), mismatch=raised)

    shown = text(report(outside("batch", 255, 1), outside("slicing", 3, 253)))
    assert shown.count(NO_RESULT) == 1
    assert "in laws  batch, slicing" in shown


@pytest.mark.parametrize("render", [lambda r: markdown(r.as_json()), lambda r: html(r.as_json()), text])
def test_fp32_that_was_only_sampled_is_said_so_with_the_command_that_judges_all_of_it(render):
    fp32 = replace(passed("exact_value", dtype="fp32"), judgement="FA")
    command = "softcap-verify sweep --candidate k --softcap 30 --dtype fp32"
    swept = {**certificate(), "dtype": "fp32", "inputs": 1 << 32}
    assert command in render(report(fp32, certificates=(certificate(),)))
    for whole in (
        report(passed(dtype="fp32")),
        report(replace(failed("exact_value"), cell=fp32.cell, judgement="FA")),
        report(fp32, certificates=(swept,)),
        report(fp32, settings=Settings(rounding="chain")),
    ):
        assert "sampl" not in render(whole)


RENDERINGS = [lambda r: markdown(r.as_json()), lambda r: html(r.as_json()), text]


@pytest.mark.parametrize("render", RENDERINGS)
def test_what_was_judged_otherwise_than_asked_is_said(render):
    own = "k carries its own cap: judged at 30, not at 17.5."
    assert own in render(report(passed(), settings=Settings(caps=(17.5,))))
    assert "its own cap" not in render(report(passed(), settings=Settings(caps=(30.0, 17.5))))
    silent = replace(UNSAID, cell=passed("batch").cell)
    named = Settings(caps=(30.0,), laws=("slicing", "batch"))
    assert "batch was not judged: no gradient." in render(report(passed(), silent, settings=named))
    assert "was not judged" not in render(report(passed(), silent))
    elsewhere = replace(silent, cell=passed("batch", "inference").cell)
    assert "was not judged" not in render(report(passed(), passed("batch"), elsewhere, settings=named))


@pytest.mark.parametrize("render", RENDERINGS)
def test_why_a_verdict_is_not_applicable_is_told_once_for_all_that_share_it(render):
    def none(law: str, judgement: str, reason: str, dtype: str = "bf16") -> Verdict:
        return replace(passed(law, dtype=dtype), judgement=judgement, status=NOT_APPLICABLE, reason=reason)

    page = render(report(
        passed(), passed(dtype="fp16"), none("a", "GA", "it has no gradient"), none("b", "GI", "it has no gradient"),
        none("c", "GI", "no module"), none("d", "GI", "it has no gradient"), none("b", "FA", "x", "fp16"),
        none("a", "GA", "it has no gradient", "fp16"),
    ))  # fmt: skip
    assert "k: GA, GI (bf16) n/a: it has no gradient." in page
    assert "k: FA (bf16), GI (fp16) n/a: no law about it was asked for." in page
    assert "k: FA (fp16) n/a: x." in page
    assert "n/a:" not in render(report(*(replace(passed(), judgement=j) for j in ("FA", "FI", "GA", "GI"))))
    assert "n/a: " not in render(report(UNSAID))



@pytest.mark.parametrize("render", [markdown, html])
def test_facts_of_code_are_words_and_say_how_they_are_read(render):
    code = {"kernel": "k_kernel", "target": "sm_90", "compiled_anew_for_every_cap": True, "spills": 0}
    whole = report(passed()).as_json()
    assert "code of" not in render(whole)
    backend = {**ENVIRONMENT["candidates"]["k"], "code": [code]}
    shown = render({**whole, "environment": {**ENVIRONMENT, "candidates": {"k": backend}}})
    assert "code of k, k_kernel for sm_90, no verdict" in shown
    assert "compiled anew for every cap yes, spills 0" in shown
    assert "an approximate division is within 2 ulp" in shown
