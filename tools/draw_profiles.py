"""The error profiles of several reports as one picture, for a README or a talk.

PYTHONPATH=. python tools/draw_profiles.py report.json ... --dtype fp16 --pass forward --cap 30 --output picture.svg

One panel a report, in the order given; report.json is what `check --report DIR` writes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from invariance.report import picture, profile
from invariance.report.markup import Markup, element
from invariance.report.style import CSS

TITLE, GAP = 22, 16  # a line of text above a panel, and the space between panels
# An SVG inside a page follows the reader's colours, a file does not: it brings its own paper.
PAPER = Markup("svg text.title { font: 600 12px system-ui, sans-serif; fill: var(--text); }")


def main() -> None:
    """Write the picture; SystemExit names a report that has no such certificate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--pass", dest="pass_", default="forward")
    parser.add_argument("--cap", default="30")
    parser.add_argument("--output", type=Path, required=True)
    asked = parser.parse_args()
    found = [_certificate(path, asked) for path in asked.reports]
    panels = [_panel(number, certificate) for number, certificate in enumerate(found)]
    width, height = len(panels) * (picture.WIDTH + GAP) + GAP, TITLE + picture.HEIGHT
    ground = element("rect", width=width, height=height, fill="var(--back)")
    box = f"0 0 {width} {height}"
    name = "http://www.w3.org/2000/svg"
    drawn = element("svg", element("style", Markup(CSS), PAPER), ground, *panels, xmlns=name, viewBox=box)
    asked.output.write_text(f"{drawn}\n", encoding="utf-8")


def _certificate(path: Path, asked: argparse.Namespace) -> dict[str, Any]:
    for certificate in json.loads(path.read_text(encoding="utf-8"))["certificates"]:
        key = certificate["dtype"], certificate["pass"], certificate["softcap"]["given"]
        if key == (asked.dtype, asked.pass_, asked.cap):
            found: dict[str, Any] = certificate
            return found
    raise SystemExit(f"{path} has no certificate for {asked.dtype}, {asked.pass_}, cap {asked.cap}")


def _panel(number: int, certificate: dict[str, Any]) -> Markup:
    shape = profile.of_certificate(certificate)
    if shape is None:
        raise SystemExit(f"the certificate of {certificate['candidate']} has no error profile")
    title = f"{certificate['candidate']}, every {certificate['dtype']} input at cap {certificate['softcap']['given']}"
    left = GAP + number * (picture.WIDTH + GAP)
    drawing = picture.draw(shape, f"panel-{number}", title, "Worst error in each binade.")
    return element(
        "g",
        element("text", title, x=picture.LEFT, y=15, class_="title"),
        element("svg", Markup(drawing), y=TITLE, width=picture.WIDTH, height=picture.HEIGHT),
        transform=f"translate({left} 0)",
    )


if __name__ == "__main__":
    main()
