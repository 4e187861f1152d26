"""The shipped Triton operator with lines of its own source changed: found by import path, never imported by name.

An edit that does not apply exactly once is an error: a mutant of yesterday's source is no mutant of today's.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from invariance.candidate import SHORT_NAMES

# "softcap.triton_op:TritonFinalLogitSoftcapOp": where the operator is, and beside it the modules that it launches with.
_OPERATOR, _, _CLASS = SHORT_NAMES["triton"].partition(":")
_PACKAGE, _, _TOP = _OPERATOR.rpartition(".")
_FILES = ("kernels", "launch", _TOP)  # in the order in which they import each other


class EditDoesNotApply(Exception):
    """The text to be replaced does not stand in the source exactly once."""


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which stands once in the source, by `new`. file: kernels, launch or triton_op."""

    old: str
    new: str
    file: str = "kernels"

    def apply(self, source: str) -> str:
        """The source after the edit; raises EditDoesNotApply."""
        found = source.count(self.old)
        if found != 1:
            raise EditDoesNotApply(f"{self.old!r} stands {found} times in {_PACKAGE}.{self.file}, not once")
        return source.replace(self.old, self.new)


def source_of(file: str) -> str:
    """The source text of one of the operator's modules."""
    spec = importlib.util.find_spec(f"{_PACKAGE}.{file}")
    if spec is None or spec.origin is None:
        raise EditDoesNotApply(f"there is no module {_PACKAGE}.{file} to edit")
    return Path(spec.origin).read_text(encoding="utf-8")


def edited_sources(edits: tuple[Edit, ...]) -> dict[str, str]:
    """The text of every module that differs from the shipped one, by file; the operator's is always among them."""
    texts = {file: source_of(file) for file in _FILES}
    for edit in edits:
        texts[edit.file] = edit.apply(texts[edit.file])
    changed = {edit.file for edit in edits} | {_TOP}
    return {file: texts[file] for file in _FILES if file in changed}


@cache
def edited(name: str, edits: tuple[Edit, ...]) -> dict[str, ModuleType]:
    """The edited modules under names of their own, by file; needs Triton. The shipped ones stay as they are."""
    alias = f"{_PACKAGE}_edited_{name}"
    loaded: dict[str, ModuleType] = {}
    for file, text in edited_sources(edits).items():
        redirected = text
        for other in loaded:
            import_ = Edit(f"from {_PACKAGE}.{other} import", f"from {alias}.{other} import", file)
            redirected = import_.apply(redirected)
        loaded[file] = _executed(f"{alias}.{file}", redirected)
    return loaded


def operator(name: str, edits: tuple[Edit, ...]) -> Any:
    """The class of the edited operator."""
    return getattr(edited(name, edits)[_TOP], _CLASS)


def _executed(name: str, text: str) -> ModuleType:
    """A module made of text. Triton reads the source of a kernel back, hence the entry in linecache."""
    module = ModuleType(name)
    module.__file__ = f"<{name}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    sys.modules[name] = module
    exec(compile(text, module.__file__, "exec"), vars(module))
    return module
