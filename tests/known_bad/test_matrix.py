"""Every wrong kernel dies in its tier by the laws that it names, and no right one does: one test a kernel."""

from __future__ import annotations

import pytest

from invariance.known_bad.entry import Entry, load_catalogue
from invariance.known_bad.matrix import judge

ENTRIES = list(load_catalogue().values())


@pytest.mark.catalogue
@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, marks=pytest.mark.gpu if entry.tier == "device" else ()) for entry in ENTRIES],
    ids=lambda entry: entry.name,
)
def test_a_kernel_is_judged_right(entry: Entry) -> None:
    row = judge(entry)
    assert row.not_run is None
    assert row.complaints == []
    assert row.killed == entry.wrong
