"""The documents that code leans on: BUGS.md keeps its numbers, and each citation of one leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CITATION = re.compile(r"BUGS\.md((?:,?(?: and)? #\d+)+)")


def rows() -> list[list[str]]:
    """The cells of each numbered row of BUGS.md."""
    lines = (ROOT / "BUGS.md").read_text().splitlines()
    numbered = [line for line in lines if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in numbered]


def cited(text: str) -> set[int]:
    """The numbers that a text cites: `BUGS.md #64`, `BUGS.md #62, #63 and #64`."""
    return {int(n) for group in CITATION.findall(text) for n in re.findall(r"\d+", group)}


def test_each_bug_has_a_number_of_its_own_and_every_cell() -> None:
    numbers = [int(row[0]) for row in rows()]
    assert len(numbers) > 60
    assert len(set(numbers)) == len(numbers)
    assert [row for row in rows() if len(row) != 5 or not all(row)] == []


def test_each_report_names_an_issue() -> None:
    assert [row[0] for row in rows() if not re.search(r"#\d+|topic \d+", row[1])] == []


def test_each_citation_leads_to_a_row() -> None:
    numbers = {int(row[0]) for row in rows()}
    folders = ("softcap", "oracles", "strategies", "invariance", "tests", "benchmarks")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py") if path != Path(__file__)]
    lost = {str(path.relative_to(ROOT)): cited(path.read_text()) - numbers for path in files}
    assert {path: missing for path, missing in lost.items() if missing} == {}


def test_citations_are_read() -> None:
    assert cited("see BUGS.md #64.") == {64}
    assert cited("(BUGS.md #62, #63 and #64), #9") == {62, 63, 64}
    assert cited("BUGS.md has numbers, 64 of them") == set()
