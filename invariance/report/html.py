"""The report as one HTML page, from its JSON alone: nothing is loaded from elsewhere and nothing runs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from invariance.judge import Mismatch
from invariance.report import picture, profile, rows
from invariance.report.markup import Markup, element, joined
from invariance.report.notes import notes, sampled
from invariance.report.rows import Bad, Code, Table
from invariance.report.style import CSS
from invariance.verdict import failure_lines
from strategies.caps import cap_text

FAILURES_ROOM = 1_000_000  # characters: what a browser on a phone still opens at once
PICTURES, IN_SIGHT = 60, 12  # pictures drawn at all, and before the rest is folded
ROWS = 20  # tables with more are folded
LONG = 40  # cells with more characters may break
NO_SCRIPT = "default-src 'none'; style-src 'unsafe-inline'"
_NUMBER = re.compile(r"-?[\d,.]+(e[+-]?\d+)?%?")


def render(report: dict[str, Any]) -> str:
    """The page; failures and pictures that would make it too large are cut, and it says so."""
    told = rows.headline(report)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=NO_SCRIPT),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{told.state}: {', '.join(told.candidates)}, softcap invariance report"),
        element("style", Markup(CSS)),
    )
    sections = [
        _section("failures", "Failures", *_failures(report)),
        _section("laws", "Laws", _folded(rows.laws(report), "laws and passes"), _note(rows.LAWS_UNIT)),
        _section("inputs", "Every input", *_certificates(report)),
        _section("explored", "Exploration", element("p", rows.explored(report))),
        _section("not-run", "Not run, not applicable", _not_run(report)),
        _section("provenance", "Environment", _table(rows.provenance(report)), *_code_note(report)),
    ]
    body = element("body", _first_screen(report, told), element("main", *sections))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _first_screen(report: dict[str, Any], told: rows.Headline) -> Markup:
    names = joined((element("code", name) for name in told.candidates), ", ")
    links = {
        "failures": "failures",
        "laws": "laws",
        "inputs": "every input",
        "not-run": "not run",
        "provenance": "environment",
    }
    return element(
        "header",
        element("h1", "Softcap invariance report"),
        element("p", element("span", told.state, class_=f"state {_colour(report)}"), " ", names),
        element("p", f"On {told.device}: {told.size}; {_against(report)}."),
        *(element("p", note) for note in notes(report)),
        _table(rows.matrix(report)),
        element("h2", "What ran"),
        _table(rows.ran(report)),
        _note(rows.NOTE),
        element("nav", *(element("a", text, href=f"#{target}") for target, text in links.items())),
    )


def _against(report: dict[str, Any]) -> str:
    """All that can make a report fail, counted."""
    missing = sum(row["status"] == "not run" for row in report["not_run"])
    broken = sum(isinstance(row[5], Bad) for row in rows.certificates(report).rows)
    counts = [f"{len(rows.failures(report)):,} failures"]
    counts += [f"cells that could not be judged: {missing:,}"] if missing else []
    counts += (
        [f"domains that were not swept or have inputs that break the rules: {broken:,}"] if broken else []
    )
    return "; ".join(counts)


def _colour(report: dict[str, Any]) -> str:
    return "good" if report["verdict"] == "pass" and report["complete"] else "bad"


def _section(name: str, title: str, *children: object) -> Markup:
    return element("section", element("h2", title), *children, id=name)


def _note(text: str) -> Markup:
    return element("p", text, class_="note")


def _code_note(report: dict[str, Any]) -> list[Markup]:
    note = rows.code_note(report)
    return [_note(note)] if note else []


def _table(table: Table) -> Markup:
    """A table in a box of its own, which scrolls where the page is narrow; columns of numbers stand to the right."""
    numbers = [_numeric([row[i] for row in table.rows]) for i in range(len(table.header))]
    head = (
        element("th", name, scope="col", class_="number" if number else None)
        for name, number in zip(table.header, numbers, strict=True)
    )
    body = (element("tr", *map(_cell, row, numbers)) for row in table.rows)
    whole = element("table", element("thead", element("tr", *head)), element("tbody", joined(body, "\n")))
    return element("div", whole, class_="scroll")


def _numeric(column: list[object]) -> bool:
    return all(_NUMBER.fullmatch(str(cell)) or cell == "" for cell in column)


def _cell(cell: object, number: bool) -> Markup:
    text = str(cell)
    kinds = {
        "number": number,
        "bad": isinstance(cell, Bad),
        "good": text == "pass",
        "long": len(text) > LONG,
    }
    classes = " ".join(kind for kind, holds in kinds.items() if holds)
    return element("td", element("code", cell) if isinstance(cell, Code) else text, class_=classes or None)


def _folded(table: Table, what: str) -> Markup:
    """The table, closed where it is long."""
    if len(table.rows) <= ROWS:
        return _table(table)
    return element("details", element("summary", f"{len(table.rows):,} {what}"), _table(table))


def _failures(report: dict[str, Any]) -> Iterator[Markup]:
    failures = rows.failures(report)
    if not failures:
        yield element("p", "None.")
        return
    kept = rows.fitting((_failure(i, failure) for i, failure in enumerate(failures)), FAILURES_ROOM)
    yield _by_law(failures, len(kept))
    yield from map(Markup, kept)
    if len(kept) < len(failures):
        yield element("p", f"{len(failures) - len(kept):,} more failures are in report.json.", class_="bad")


def _by_law(failures: list[dict[str, Any]], kept: int) -> Markup:
    """How many failures each law has, with a link to the first of them that is shown."""
    places: dict[str, list[int]] = {}
    for i, failure in enumerate(failures):
        places.setdefault(failure["law"], []).append(i)
    links = [
        joined([element("a", law, href=f"#failure-{at[0]}") if at[0] < kept else law, f" {len(at):,}"])
        for law, at in places.items()
    ]
    return element("p", joined(links, " · "))


def _failure(number: int, failure: dict[str, Any]) -> Markup:
    mark = element("span", f"{failure['status'].upper()} {failure['judgement']}", class_="bad")
    cell = f" {failure['law']} · {failure['pass']} · {failure['dtype']} · cap {cap_text(failure['cap'])} · "
    head = element("summary", mark, cell, element("code", failure["candidate"]))
    broken = None if failure["mismatch"] is None else Mismatch(**failure["mismatch"])
    case = None if failure["case"] is None else json.dumps(failure["case"], separators=(",", ":"))
    lines = failure_lines(broken, failure["reason"], case, failure["replay"])
    told = (
        joined([element("dt", name), element("dd", value, class_="replay" if name == "replay" else None)])
        for name, value in lines
    )
    return element("details", head, element("dl", *told), class_="failure", id=f"failure-{number}", open=True)


def _certificates(report: dict[str, Any]) -> Iterator[Markup]:
    table = rows.certificates(report)
    if left := sampled(report):
        yield element("p", left)
    if not table.rows:
        yield element("p", "No domain was swept whole.")
        return
    yield _folded(table, "domains")
    yield _note(rows.CERTIFICATES_UNIT)
    yield from _pictures(sorted(report["certificates"], key=_soundness))


def _soundness(certificate: dict[str, Any]) -> bool:
    """Sorts first what breaks the rules."""
    return "counts" not in certificate or not certificate["counts"]["violations"]["count"]


def _pictures(certificates: list[dict[str, Any]]) -> Iterator[Markup]:
    drawn = [(c, p) for c in certificates if (p := profile.of_certificate(c)) is not None]
    figures = [_figure(i, c, p) for i, (c, p) in enumerate(drawn[:PICTURES])]
    if figures:
        yield picture.legend()
        yield element("div", *figures[:IN_SIGHT], class_="pictures")
    if figures[IN_SIGHT:]:
        summary = element("summary", f"{len(figures) - IN_SIGHT} more error profiles")
        yield element("details", summary, element("div", *figures[IN_SIGHT:], class_="pictures"))
    if drawn[PICTURES:]:
        yield element("p", f"{len(drawn) - PICTURES} more error profiles are in report.json.")


def _figure(number: int, certificate: dict[str, Any], shape: profile.Profile) -> Markup:
    name = certificate["candidate"]
    what = f"{certificate['pass']} · {certificate['dtype']} · cap {certificate['softcap']['given']}"
    told = joined([element("code", name), f" · {what}. ", _worst(certificate, shape)])
    drawing = picture.draw(
        shape, f"profile-{number}", f"Error profile: {name} · {what}", _described(certificate, shape)
    )
    return element("figure", drawing, element("figcaption", told))


def _worst(certificate: dict[str, Any], shape: profile.Profile) -> str:
    """The worst error and where it is, in a sentence."""
    worst = certificate["worst"]
    if worst is None:
        return "Every result was an accepted flush."
    allowed = shape.worst.allowed
    limit = "nothing is judged" if allowed is None else f"at most {allowed:.5g} is accepted there"
    place = f"x = {worst['input']['decimal']} ({worst['input']['bits']})"
    return f"Worst {float(worst['error']):.4g} {shape.unit} at {place}; {limit}."


def _described(certificate: dict[str, Any], shape: profile.Profile) -> str:
    over = sum(bar.over for bar in shape.bars)
    first, last = shape.bars[0].binade, shape.bars[-1].binade
    text = f"Worst error in each binade of |x / cap| from 2^{first} to 2^{last}. {_worst(certificate, shape)}"
    if shape.hidden:
        text += f" In {shape.hidden} binades that are not shown the worst is {shape.hidden_worst:.2g}."
    return f"{text} {over} binades go beyond what is accepted."


def _not_run(report: dict[str, Any]) -> Markup:
    table = rows.not_run(report)
    return _folded(table, "reasons") if table.rows else element("p", "Everything asked for ran.")
