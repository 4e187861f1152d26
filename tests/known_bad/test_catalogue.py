"""The catalogue itself: what an entry must name, and what the whole must cover. No kernel is judged here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from invariance.candidate import load
from invariance.checkers import load_laws
from invariance.known_bad.entry import ANY, CATALOGUE, Entry, good, load_catalogue, wrong
from invariance.known_bad.reasons import REASONS
from invariance.offered import TIERS

BUGS = Path(__file__).resolve().parents[2] / "BUGS.md"
CODE_LAWS = {
    "precise_division", "no_approximate_tanh", "offsets_64bit", "cap_is_runtime", "one_variant", "vector_access",
    "no_spills", "compiles",
}  # fmt: skip

ENTRIES = list(load_catalogue().values())
WRONG = [entry for entry in ENTRIES if entry.wrong]


def alone(law: str) -> list[Entry]:
    """The entries that this law kills and no other one may, with every law of their tier asked."""
    return [
        entry
        for entry in WRONG
        if entry.must == {law} and not entry.may and (not entry.laws or not_cut_short(entry))
    ]


def not_cut_short(entry: Entry) -> bool:
    """Whether what the plan is cut to says enough: the interpreter's own laws, or cells of a million elements."""
    return entry.tier != "plan" or entry.profile == "default"


def test_there_are_enough_of_either_kind() -> None:
    assert len(WRONG) >= 290
    assert len(ENTRIES) - len(WRONG) >= 36


def test_there_are_many_ways_to_be_wrong() -> None:
    exact = {entry.must for entry in WRONG if not entry.may}
    assert len(exact) >= 110


def test_what_may_fail_is_named_for_nearly_all() -> None:
    assert sum(entry.may == ANY for entry in WRONG) <= 20


@pytest.mark.parametrize("entry", [entry for entry in WRONG if entry.laws], ids=lambda entry: entry.name)
def test_a_plan_is_cut_where_a_cell_costs_seconds_or_another_kernel_has_the_whole_plan(entry: Entry) -> None:
    shown = {law for law in entry.must if alone(law)}
    assert not_cut_short(entry) or shown == entry.must or entry.name in {"crashes", "backward_crashes", "hangs"}


def test_nine_of_ten_need_no_device() -> None:
    assert sum(entry.tier == "device" for entry in WRONG) <= len(WRONG) // 10


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_names_what_exists(entry: Entry) -> None:
    known = {*load_laws(), *CODE_LAWS, *ANY}
    assert entry.must | entry.may | set(entry.laws) <= known
    assert not entry.must & entry.may
    assert load(entry.spec).convention == "operator"
    assert entry.states.endswith(".")


def test_every_citation_leads_to_a_public_report() -> None:
    rows = {int(number) for number in re.findall(r"^\| (\d+) \|", BUGS.read_text("utf-8"), re.MULTILINE)}
    cited = {bug for entry in WRONG for bug in entry.bugs}
    assert cited <= rows
    assert len(cited) >= 70


def test_every_law_kills_something_alone_or_says_why_it_stays() -> None:
    without = {law for law in load_laws() if not alone(law)}
    assert without == set(REASONS)


def test_every_law_of_the_code_is_broken_by_a_kernel() -> None:
    named = {law for entry in WRONG if entry.tier == "codegen" for law in entry.must}
    assert named == CODE_LAWS


def test_every_tier_has_good_variants() -> None:
    assert {entry.tier for entry in ENTRIES if not entry.wrong} == set(TIERS)


def test_a_taken_name_is_an_error() -> None:
    def identity(softcap: float) -> None:
        """Another one."""

    with pytest.raises(ValueError, match="two kernels of the catalogue are called 'identity'"):
        good()(identity)
    assert CATALOGUE["identity"].wrong


def test_a_kernel_that_says_nothing_is_an_error() -> None:
    def silent(softcap: float) -> None:
        pass

    with pytest.raises(ValueError, match="does not say what it does"):
        good()(silent)
    assert "silent" not in CATALOGUE


def test_a_wrong_kernel_without_a_catcher_is_an_error() -> None:
    for bugs, must in (((1,), set()), ((), {"repeat"})):
        with pytest.raises(ValueError, match="names the laws that must fail and the public reports"):
            wrong(bugs=bugs, must=must)
    with pytest.raises(ValueError, match="tier 'gpu' is not one of"):
        good(tier="gpu")
