"""An error profile as a small SVG: a bar a binade on a logarithmic scale, the allowed limit and correct rounding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from invariance.report.markup import Markup, element, joined
from invariance.report.profile import SMALLEST, Bar, Profile

WIDTH, HEIGHT = 440, 230
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 38
LABELS = 8  # at most so many on an axis
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


class _Scale:
    """Where binades and errors lie in the picture; one decade on top is for what is infinite."""

    def __init__(self, bars: tuple[Bar, ...]) -> None:
        limits = [v for bar in bars for v in (bar.error, bar.allowed, bar.rounding) if v is not None]
        finite = [v for v in limits if math.isfinite(v)]
        self.first, self.count = bars[0].binade, bars[-1].binade - bars[0].binade + 1
        self.low = round(math.log10(SMALLEST))
        self.infinite = len(finite) < len(limits)
        self.high = math.floor(math.log10(max(*finite, 1.0))) + 1 + self.infinite

    def x(self, binade: float) -> float:
        """The left edge of a binade."""
        return LEFT + (WIDTH - LEFT - RIGHT) * (binade - self.first) / self.count

    def y(self, error: float) -> float:
        """The height of an error: none is on the axis, an infinite one on top."""
        log = math.log10(error) if 0 < error < math.inf else (self.high if error else self.low)
        part = (min(max(log, self.low), self.high) - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * part


def draw(profile: Profile, name: str, title: str, description: str) -> Markup:
    """The picture; `name` is a prefix for its ids, unique in the page."""
    scale = _Scale(profile.bars)
    inside = [
        element("title", title, id=f"{name}-title"),
        element("desc", description, id=f"{name}-desc"),
        *_errors_axis(scale, profile.unit),
        *_binades_axis(scale),
        *(_bar(scale, bar, profile.unit) for bar in profile.bars if bar.error is not None),
        *_line(scale, profile.bars, "allowed", lambda bar: bar.allowed),
        *_line(scale, profile.bars, "rounding", lambda bar: bar.rounding),
    ]
    labels = f"{name}-title {name}-desc"
    box = f"0 0 {WIDTH} {HEIGHT}"
    return element("svg", *inside, viewBox=box, role="img", aria_labelledby=labels, font_size=11)


def _bar(scale: _Scale, bar: Bar, unit: str) -> Markup:
    error = bar.error or 0.0
    top, left, right = scale.y(error), scale.x(bar.binade), scale.x(bar.binade + 1)
    told = f"2^{bar.binade}: {error:.4g} {unit} at x = {bar.input}"
    height = max(HEIGHT - BOTTOM - top, 1.0)
    return element(
        "rect",
        element("title", told),
        class_="over" if bar.over else "bar",
        x=_number(left + 0.15 * (right - left)),
        y=_number(HEIGHT - BOTTOM - height),
        width=_number(0.7 * (right - left)),
        height=_number(height),
    )


def _line(
    scale: _Scale, bars: tuple[Bar, ...], kind: str, value: Callable[[Bar], float | None]
) -> Iterator[Markup]:
    """A line with a step wherever the value of a binade is another than that of the one before."""
    points = []
    for bar in bars:
        height = value(bar)
        if height is not None:
            y = _number(scale.y(height))
            points += [f"{_number(scale.x(bar.binade))},{y}", f"{_number(scale.x(bar.binade + 1))},{y}"]
    if points:
        yield _stroke(kind, " ".join(points))


def _stroke(kind: str, points: str) -> Markup:
    """The attributes are for viewers that take an SVG without the style of the page: no black areas there."""
    return element("polyline", class_=kind, points=points, fill="none", stroke="currentColor")


def _errors_axis(scale: _Scale, unit: str) -> Iterator[Markup]:
    step = -(-(scale.high - scale.low) // LABELS)
    for power in range(scale.low, scale.high + 1 - scale.infinite, step):
        y = _number(scale.y(10.0**power))
        yield element("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y)
        sign = "≤ " if power == scale.low else ""
        yield _text(LEFT - 5, float(y) + 4, sign + _power(10, power), "end")
    if scale.infinite:
        yield _text(LEFT - 5, TOP + 4, "∞", "end")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    label = "worst error, ulp" if unit == "ulp" else "worst error, units of 2⁻²⁴"
    yield element(
        "text", label, transform=f"translate(11 {_number(middle)}) rotate(-90)", text_anchor="middle"
    )


def _binades_axis(scale: _Scale) -> Iterator[Markup]:
    bottom = HEIGHT - BOTTOM
    yield element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom)
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128) if scale.count <= s * LABELS)
    for binade in range(scale.first, scale.first + scale.count):
        if binade % step == 0:
            x = _number(scale.x(binade))
            yield element("line", class_="axis", x1=x, x2=x, y1=bottom, y2=bottom + 4)
            yield _text(float(x), bottom + 16, _power(2, binade), "middle")
    yield _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, "|x / cap|, by binade", "middle")


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return element("text", text, x=_number(x), y=_number(y), text_anchor=anchor)


def _power(base: int, exponent: int) -> str:
    return f"{base}{str(exponent).translate(_RAISED)}" if exponent not in (0, 1) else str(base**exponent)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def legend() -> Markup:
    """What the lines and colours of every picture mean."""
    kinds = {
        "bar": "worst error of a binade",
        "over": "more than any rule accepts",
        "allowed": "the most that is accepted",
        "rounding": "the most that a correctly rounded result is off",
    }
    keys = (joined([element("span", _swatch(kind), text), " "]) for kind, text in kinds.items())
    return element("p", *keys, class_="legend")


def _swatch(kind: str) -> Markup:
    shape = (
        _stroke(kind, "0,6 24,6")
        if kind in ("allowed", "rounding")
        else element("rect", class_=kind, x=8, y=1, width=8, height=10)
    )
    return element("svg", shape, viewBox="0 0 24 12", aria_hidden="true")
