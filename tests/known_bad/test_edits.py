"""Triton mutants are edits of the shipped source, and an edit that does not apply exactly once is an error."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import pytest

from invariance.known_bad import edited as edited_module
from invariance.known_bad import edits
from invariance.known_bad.edits import Edit, EditDoesNotApply
from invariance.known_bad.entry import load_catalogue
from softcap import kernels, triton_op

PACKAGE = Path(kernels.__file__).parent
EDITED = [
    entry
    for entry in load_catalogue().values()
    if entry.spec.startswith(("invariance.known_bad.launches", "invariance.known_bad.binaries"))
]


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The edits of an entry, asked for without building it."""

    def of(entry: Any) -> tuple[Edit, ...]:
        asked: list[tuple[Edit, ...]] = []
        monkeypatch.setattr(edited_module, "Edited", lambda name, cap, given: asked.append(given))
        module, _, name = entry.spec.partition(":")
        getattr(__import__(module, fromlist=[name]), name)(30.0)
        return asked[0]

    return of


@pytest.mark.parametrize("entry", EDITED, ids=lambda entry: entry.name)
def test_every_edit_applies_once_to_the_shipped_source(entry: Any, changes: Any) -> None:
    given = changes(entry)
    texts = edits.edited_sources(given)
    assert "triton_op" in texts
    for edit in given:
        shipped = (PACKAGE / f"{edit.file}.py").read_text("utf-8")
        assert shipped.count(edit.old) == 1
        assert edit.new in texts[edit.file]
    if entry.wrong:
        assert given


def test_an_edit_changes_what_it_names_and_nothing_else() -> None:
    shipped = (PACKAGE / "kernels.py").read_text("utf-8")
    changed = Edit("BLOCK = 1024", "BLOCK = 256").apply(shipped)
    lines = [line for line in difflib.ndiff(shipped.splitlines(), changed.splitlines()) if line[0] in "+-"]
    assert lines == ["- BLOCK = 1024", "+ BLOCK = 256"]


@pytest.mark.parametrize(("old", "count"), [("no such line", 0), ("import triton", 2)])
def test_an_edit_that_does_not_apply_once_is_an_error(old: str, count: int) -> None:
    shipped = (PACKAGE / "kernels.py").read_text("utf-8")
    assert shipped.count(old) == count
    with pytest.raises(EditDoesNotApply, match=f"stands {count} times in softcap.kernels, not once"):
        Edit(old, "").apply(shipped)


def test_the_shipped_modules_stay_as_they_are() -> None:
    name = "test_the_shipped_modules_stay"
    modules = edits.edited(name, (Edit("BLOCK = 1024", "BLOCK = 256"),))
    assert modules["kernels"].BLOCK == 256
    assert modules["triton_op"].BLOCK == 256
    assert kernels.BLOCK == 1024
    assert triton_op.softcap_forward_kernel is kernels.softcap_forward_kernel
    assert modules["triton_op"].softcap_forward_kernel is modules["kernels"].softcap_forward_kernel
