"""The report as a page: whole HTML that loads and runs nothing, whatever a candidate says; pictures that tell true."""

from __future__ import annotations

import copy
import math
from html.parser import HTMLParser
from typing import Any

import pytest
import torch

from invariance.plan import Settings
from invariance.report import html, markdown, picture, profile
from invariance.report.markup import VOID, Markup, element, escaped
from invariance.report.model import Report
from invariance.sweep import document
from invariance.sweep.api import sweep
from invariance.verdict import PASS, Cell, Verdict
from oracles.acceptance import accept
from oracles.formats import FORMATS
from oracles.rounding import neighbour
from oracles.truth import Truth

HOSTILE = "<script>alert('1')</script>&amp;\"onload=\x00\x1b\x7f\u202e\udc80"
SEEN = "<script>alert('1')</script>&amp;\"onload=\\x00\\x1b\\x7f\\u202e\\udc80"
DTYPES = {fmt.name: dtype for dtype, fmt in FORMATS.items()}


class Page(HTMLParser):
    """Reads a page: its ids, what refers to them, its cells and text; a tag out of place is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.wanted: list[str] = []
        self.cells: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        assert len(told) == len(attrs), f"an attribute stands twice in {tag}"
        self.tags.append((tag, told))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        self.ids += [told["id"] or ""] if "id" in told else []
        self.wanted += (told.get("aria-labelledby") or "").split()
        if "href" in told:
            assert (told["href"] or "").startswith("#")
            self.wanted.append((told["href"] or "")[1:])

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)
        if "td" in self.open:
            self.cells[-1] += data

    @property
    def text(self) -> str:
        return "".join(self.words)

    def count(self, tag: str, class_: str) -> int:
        return sum(t == tag and a.get("class") == class_ for t, a in self.tags)


def read(report: dict[str, Any]) -> Page:
    """The page of a report, after what must hold for each."""
    text = html.render(report)
    page = Page(text)
    assert text == html.render(copy.deepcopy(report))
    assert text.encode().decode() == text
    assert all(char.isprintable() or char == "\n" for char in text)
    assert len(set(page.ids)) == len(page.ids)
    assert set(page.wanted) <= set(page.ids)
    loads = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "use", "image"}
    assert not loads & {tag for tag, _ in page.tags}
    assert not [a for _, attrs in page.tags for a in attrs if a.startswith(("on", "src", "style"))]
    assert "url(" not in text
    assert "@import" not in text
    return page


def failure(name: str = "k", law: str = "padding") -> dict[str, Any]:
    mismatch = {
        "label": "[0:1]", "what": "differ in bits", "index": [0], "flat": 0, "input": "1.0 (0x3f80)", "grad_y": None,
        "got": "1.0 (0x3f80)", "want": "0.5 (0x3f00)", "exact": "0.99963", "ulps": 128.0, "wrong": 1, "total": 1,
    }  # fmt: skip
    return {
        "candidate": name, "law": law, "judgement": "FI", "pass": "forward", "dtype": "bf16", "cap": 17.5,
        "status": "fail", "reason": None, "mismatch": mismatch, "case": {"shape": [1], "dtype": "bf16"},
        "replay": f"softcap-verify replay '{name}'", "message": f"FAIL {name}",
    }  # fmt: skip


def cell(
    name: str = "k", law: str = "padding", status: str = "pass", reason: str | None = None
) -> dict[str, Any]:
    return {
        "candidate": name, "law": law, "judgement": "FI", "pass": "forward", "dtype": "bf16", "cap": 17.5,
        "status": status, "cases": 3, "elements": 1234, "flushed": 0, "escalated": 0, "worst": None, "reason": reason,
    }  # fmt: skip


def verdicts(name: str, dtype: str, cap: float, *states: str) -> dict[str, Any]:
    return {"candidate": name, "dtype": dtype, "cap": cap} | dict(
        zip(("FA", "FI", "GA", "GI"), states, strict=True)
    )


def report(name: str = "k", **fields: Any) -> dict[str, Any]:
    launched = {"forward": [f"{name}_kernel"], "backward": []}
    backend = {"asked": name, "ran": "m:K", "launched": launched, "substitutions": []}
    whole = {
        "schema_version": 1, "verdict": "pass", "complete": True, "candidates": [name],
        "settings": Settings((17.5,)).as_json(),
        "matrix": [
            verdicts(name, "bf16", 17.5, "pass", "fail", "not run", "not applicable"),
            verdicts(name, "fp32", 2.0**-60, "pass", "pass", "pass", "pass"),
        ],
        "laws": [cell(name)], "failures": [], "certificates": [], "not_run": [], "explored": [],
        "environment": {
            "python": "3", "packages": {"torch": "2"}, "device": "cuda:0", "accelerator": {"name": "H200"},
            "commit": None, "tracked_changes": None, "seed": 0, "contract": "c", "candidates": {name: backend},
        },
    }  # fmt: skip
    return {**whole, **fields}


def certificate(profile_rows: list[tuple[int, str | None]], **fields: Any) -> dict[str, Any]:
    key = {
        "candidate": "k",
        "softcap": {"given": "30", "fp32": (30.0).hex()},
        "dtype": "fp32",
        "pass": "forward",
    }
    whole = {
        **key, "out_dtype": "fp32", "contract": CERTIFICATE["contract"], "judged": True, "complete": True,
        "inputs": 65536, "fingerprint": {"0x000": "a b"}, "worst": CERTIFICATE["worst"],
        "counts": {"violations": {"count": 0}, "correctly_rounded": {"count": 65536}},
        "profile": [{"binade": k, "inputs": 2, "error": e, "input": "0x1", "got": "0x1"} for k, e in profile_rows],
    }  # fmt: skip
    return {**whole, **fields}


def made(dtype: str, pass_: str) -> dict[str, Any]:
    return document.as_json(sweep("native", 30, dtype, pass_))


CERTIFICATE = made("fp16", "forward")


def test_the_first_screen_says_what_was_judged_and_every_verdict() -> None:
    page = read(report())
    assert page.cells[:14] == [
        "k", "bf16", "17.5", "pass", "FAIL", "not run", "n/a",
        "k", "fp32", repr(2.0**-60), "pass", "pass", "pass", "pass",
    ]  # fmt: skip
    assert page.cells[14:19] == ["k", "k", "m:K", "forward: k_kernel; backward: none", "nothing"]
    assert "On H200: 1 cells, 1,234 elements compared; 0 failures." in page.text


def test_a_failure_is_open_and_whole() -> None:
    page = read(report(verdict="fail", failures=[failure()]))
    opened = [attrs for tag, attrs in page.tags if tag == "details" and "open" in attrs]
    assert [attrs["id"] for attrs in opened] == ["failure-0"]
    told = page.text
    for part in (
        "1 of 1 elements differ in bits",
        "(0,)",
        "0.5 (0x3f00)",
        "0.99963",
        "128.0",
        '{"shape":[1]',
        "replay 'k'",
    ):
        assert part in told
    assert "cap 17.5" in told


def test_nothing_that_a_candidate_says_is_markup() -> None:
    found = {"examples": 3, "failure": failure(HOSTILE, "law<b>")}
    not_run = [cell(HOSTILE, "batch", "not run", f"died: {HOSTILE}")]
    reason = {
        "candidate": HOSTILE,
        "softcap": {"given": "30"},
        "dtype": "bf16",
        "pass": "forward",
        "reason": HOSTILE,
    }
    whole = report(
        HOSTILE,
        verdict="fail",
        failures=[failure(HOSTILE)],
        explored=[found],
        not_run=not_run,
        certificates=[reason, {**CERTIFICATE, "candidate": HOSTILE}],
        laws=[cell(HOSTILE), cell("other", "<i>")],
        candidates=[HOSTILE, "other"],
    )
    page = read(whole)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "b", "i"})
    assert page.text.count(SEEN) > 10
    assert f"died: {SEEN}" in page.cells
    assert f"not swept: {SEEN}" in page.cells


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "No domain was swept whole."),
        ({"verdict": "incomplete", "complete": False, "laws": [], "matrix": []}, "INCOMPLETE"),
        ({"verdict": "fail", "complete": False, "failures": [failure()]}, "FAIL, INCOMPLETE"),
        ({"not_run": [cell(status="not run", reason="it hangs")]}, "could not be judged: 1."),
        ({"not_run": [cell(status="not applicable", reason="no gradient")]}, "no gradient"),
        ({"explored": [{"examples": 1234, "failure": None}]}, "1,234 cases on top of the plan"),
        ({"certificates": [certificate([])]}, "65,536"),
    ],
)
def test_every_kind_of_report_renders(fields: dict[str, Any], said: str) -> None:
    assert said in read(report(**fields)).text


def test_thousands_of_failures_are_cut_and_the_page_says_so() -> None:
    failures = [failure(law=f"law{i % 50}") for i in range(6000)]
    text = html.render(report(verdict="fail", failures=failures))
    page = Page(text)
    assert len(text) < 1.2 * html.FAILURES_ROOM
    shown = page.count("details", "failure")
    assert 500 < shown < 6000
    assert f"{6000 - shown:,} more failures are in report.json." in page.text
    assert set(page.wanted) <= set(page.ids)


def test_one_failure_beyond_all_size_is_counted() -> None:
    huge = failure() | {"reason": "x" * (html.FAILURES_ROOM + 1)}
    page = read(report(verdict="fail", failures=[huge]))
    assert "1 more failures are in report.json." in page.text


def test_long_tables_are_closed() -> None:
    page = read(report(laws=[cell(law=f"law{i}") for i in range(html.ROWS + 1)]))
    assert [attrs for tag, attrs in page.tags if tag == "details"] == [{}]
    assert "21 laws and passes" in page.text


def test_many_pictures_are_folded_and_then_cut() -> None:
    many = [CERTIFICATE] * (html.PICTURES + 3)
    page = read(report(certificates=many))
    assert sum(tag == "figure" for tag, _ in page.tags) == html.PICTURES
    assert f"{html.PICTURES - html.IN_SIGHT} more error profiles" in page.text
    assert "3 more error profiles are in report.json." in page.text


def test_the_page_and_the_markdown_show_the_same_cells() -> None:
    whole = report(certificates=[CERTIFICATE], not_run=[cell(status="not applicable", reason="no gradient")])
    lines = [
        line for line in markdown.render(whole).splitlines() if line.startswith("| ") and "---" not in line
    ]
    shown = set(read(whole).cells)
    headers = ("candidate", "law", "status", "what")
    rows = [
        line.strip("|").split("|")
        for line in lines
        if not line.startswith(tuple(f"| {h} |" for h in headers))
    ]
    assert len(rows) > 10
    assert {c.strip(" *`") for row in rows for c in row} - {""} <= shown


def test_a_report_writes_all_three(tmp_path) -> None:
    verdict = Verdict(Cell("k", "slicing", "forward", "bf16", 30.0), "FI", PASS, 3, 100)
    whole = Report(Settings(), ("k",), (verdict,), (), report()["environment"], (CERTIFICATE,))
    whole.write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "report.md"]
    assert (tmp_path / "report.html").read_text("utf-8") == html.render(whole.as_json())


def test_escaping_is_by_construction() -> None:
    assert escaped("a\tb\n&'") == "a\\tb\n&amp;&#x27;"
    assert element("p", "<", Markup("<b></b>"), class_='"', hidden=True, id=None) == (
        '<p class="&quot;" hidden>&lt;<b></b></p>'
    )


# --- pictures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pass_", ["forward", "backward"])
@pytest.mark.parametrize(("dtype", "least"), [("fp16", -21), ("bf16", -126), ("fp32", -126)])
@pytest.mark.parametrize("cap", [30.0, 2.0**-10])
def test_no_rule_accepts_more_than_the_line_that_is_drawn(
    cap: float, dtype: str, least: int, pass_: str
) -> None:
    """Results up to 40 steps from the exact one, subnormals too: the farthest that is accepted in each binade."""
    rows: list[tuple[int, str | None]] = [(k, "0.5") for k in (least, -9, -3, -1, 0, 1, 2)]
    key = {"softcap": {"fp32": cap.hex()}, "dtype": dtype, "out_dtype": dtype, "pass": pass_}
    shape = profile.of_certificate(certificate(rows, **key))
    assert shape is not None
    assert len(shape.bars) == len(rows)
    tightness = []
    for bar in shape.bars:
        z = torch.linspace(1.0, 1.999, 400, dtype=torch.float64) * 2.0**bar.binade
        x = (z * cap).to(DTYPES[dtype])
        truth = Truth.of(x, cap, None if pass_ == "forward" else torch.ones_like(x))
        best, farthest = truth.rounded(x.dtype), 0.0
        for steps in range(-40, 41):
            got = neighbour(best, steps)
            found = accept("ulp", got, truth)
            farthest = max(farthest, float(found.error[found.ok].max())) if found.ok.any() else farthest
        assert bar.allowed is not None
        assert farthest <= bar.allowed
        tightness.append(farthest / bar.allowed)
        assert float(accept("ulp", best, truth).error.max()) <= bar.rounding * (1 + 1e-9)
    assert max(tightness) > 0.9


def test_a_correct_kernel_stays_below_the_line_and_a_picture_names_itself() -> None:
    shape = profile.of_certificate(CERTIFICATE)
    assert shape is not None
    assert not any(bar.over for bar in shape.bars)
    assert max(bar.error or 0.0 for bar in shape.bars) == float(CERTIFICATE["worst"]["error"])
    assert shape.hidden_worst < profile.SMALLEST
    page = read(report(certificates=[CERTIFICATE]))
    assert {"profile-0-title", "profile-0-desc"} <= set(page.wanted)
    assert f"cap 30. Worst {float(CERTIFICATE['worst']['error']):.4g} ulp at x = " in page.text


def test_what_breaks_the_rules_is_marked_and_drawn_first() -> None:
    rows: list[tuple[int, str | None]] = [(-3, "0.5"), (-2, "7.5"), (-1, "inf"), (0, None)]
    counts = {"violations": {"count": 2}, "correctly_rounded": {"count": 1}}
    broken = certificate(rows, counts=counts, candidate="broken")
    page = read(report(certificates=[CERTIFICATE, broken], verdict="fail"))
    captions = page.text[page.text.index("more than any rule accepts") :]
    assert captions.index("broken") < captions.index("native")
    assert sum(attrs.get("class") == "over" for _, attrs in page.tags) == 3  # two bars and the legend
    assert "∞" in page.words
    assert "inputs that break the rules: 1." in page.text


@pytest.mark.parametrize("change", [{"judged": False}, {"contract": "another"}])
def test_where_nothing_is_judged_no_limit_is_drawn(change: dict[str, Any]) -> None:
    shape = profile.of_certificate(certificate([(0, "9.0")], **change))
    assert shape is not None
    assert [bar.allowed for bar in shape.bars] == [None]
    assert not shape.bars[0].over
    assert Page(picture.draw(shape, "p", "t", "d")).count("polyline", "allowed") == 0


def test_bars_are_inside_the_picture_and_the_higher_the_worse() -> None:
    errors = ["0.0", "1e-9", "0.001", "0.5", "6.0", "1e7", "inf"]
    shape = profile.of_certificate(certificate([(k, e) for k, e in enumerate(errors)]))
    assert shape is not None
    bars = [a for t, a in Page(picture.draw(shape, "p", "t", "d")).tags if t == "rect"]
    heights = [float(a["height"] or math.nan) for a in bars]
    assert heights == sorted(heights)
    assert heights[3] < heights[4] < heights[5] < heights[6]
    assert heights[6] == picture.HEIGHT - picture.TOP - picture.BOTTOM
    for a in bars:
        assert picture.LEFT <= float(a["x"] or 0) <= picture.WIDTH - picture.RIGHT - float(a["width"] or 0)
