"""HTML by construction: text is escaped wherever it enters an element, so nothing that a candidate says is markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta"})  # of the elements used here, those without an end tag


class Markup(str):
    """Text that is HTML already. Every other string is escaped where it is put."""

    __slots__ = ()


def escaped(value: object) -> Markup:
    """Text or an attribute's value as HTML.

    What does not print (control characters, which HTML forbids, lone surrogates, which UTF-8 cannot hold, and marks
    that turn the direction of text) is shown as its Python escape.
    """
    if isinstance(value, Markup):
        return value
    return Markup(escape("".join(map(_visible, str(value)))))


def _visible(char: str) -> str:
    return char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode("ascii")


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """<name attributes>children</name>.

    `class_` is the attribute class, `aria_label` is aria-label; True gives an attribute without a value, None and
    False give none.
    """
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    start = f"<{name}{told}>"
    return Markup(start if name in VOID else f"{start}{joined(children)}</{name}>")


def joined(children: Iterable[object], between: str = "") -> Markup:
    """Children one after the other."""
    return Markup(between.join(escaped(child) for child in children))


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(value)}"'
