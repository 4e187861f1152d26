"""The picture of the README: one panel a report, and a word about a report that has no such certificate."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "reports/experiments/h200/invariance.json"
SVG = "{http://www.w3.org/2000/svg}"


def drawn(output: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/draw_profiles.py"), str(EVIDENCE), str(EVIDENCE)]
    given = [*command, "--output", str(output), *options]
    return subprocess.run(
        given, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )


def test_each_report_is_a_panel_with_a_bar_for_each_binade(tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    assert drawn(picture).returncode == 0
    tree = ET.parse(picture)
    panels = tree.findall(f"{SVG}g")
    assert [panel.findtext(f"{SVG}text") for panel in panels] == ["triton, every fp16 input at cap 30"] * 2
    bars = [panel.findall(f".//{SVG}rect[@class='bar']") for panel in panels]
    assert len(bars[0]) == len(bars[1]) >= 20


def test_a_report_without_such_a_certificate_is_named(tmp_path: Path) -> None:
    run = drawn(tmp_path / "picture.svg", "--cap", "21")
    assert run.returncode == 1
    assert run.stderr.strip() == f"{EVIDENCE} has no certificate for fp16, forward, cap 21"
    assert not list(tmp_path.iterdir())
