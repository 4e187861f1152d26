"""The pytest plugin: `--candidate`, `--softcap`, `--report`, and the plan as parameters of tests that ask for a cell.

Loaded by `pytest_plugins = ["invariance.pytest_plugin"]` in a conftest.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from invariance.candidate import CandidateNotLoadable, display_name
from invariance.environment import NoSuchDevice, resolve_device
from invariance.offered import DEFAULT_CAPS, DTYPES, PROFILES
from invariance.plan import LEAST, Settings, cells, laws
from invariance.probing import with_own_cap
from invariance.session import Session
from invariance.testing import VERDICT_PROPERTY, Bench, bench
from invariance.usage import UsageError, read_cap, writable
from invariance.verdict import Verdict


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plan."""
    group = parser.getgroup("softcap", "softcap-verify")
    group.addoption(
        "--candidate", metavar="SPEC", help="judge this kernel by the plan, and run no other test"
    )
    group.addoption(
        "--softcap", action="append", metavar="C", help="a cap to judge at; may be repeated (default: 20 30)"
    )
    group.addoption(
        "--softcap-law", action="append", metavar="NAME", help="judge this law only; may be repeated"
    )
    group.addoption("--softcap-device", default="auto", metavar="DEVICE", help="auto, cpu, cuda or cuda:i")
    group.addoption(
        "--softcap-profile",
        metavar="PROFILE",
        help=f"{', '.join(PROFILES)} (default: quick; default with --candidate)",
    )
    group.addoption("--softcap-seed", default=0, type=int, metavar="N", help="of the plan's hash-drawn cases")
    group.addoption(
        "--softcap-timeout", default=60.0, type=float, metavar="S", help="seconds a cell may take"
    )
    group.addoption(
        "--report", type=Path, metavar="DIR", help="write report.json, .md and .html of the plan there"
    )


def settings_of(config: pytest.Config) -> Settings:
    """What pytest's command line asks of the plan; raises pytest.UsageError."""
    profile = config.getoption("--softcap-profile") or (
        "default" if config.getoption("--candidate") else "quick"
    )
    if profile not in PROFILES:
        raise pytest.UsageError(f"--softcap-profile {profile!r} is unknown: there are {', '.join(PROFILES)}")
    try:
        caps = tuple(read_cap(text) for text in config.getoption("--softcap") or ()) or DEFAULT_CAPS
        asked = tuple(config.getoption("--softcap-law") or ())
        device = resolve_device(config.getoption("--softcap-device"))
    except (UsageError, NoSuchDevice) as error:
        raise pytest.UsageError(str(error)) from error
    settings = Settings(caps, DTYPES, device, profile, config.getoption("--softcap-seed"), asked)
    try:
        laws(settings)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error
    return settings


def subjects(config: pytest.Config, settings: Settings) -> list[tuple[str, Settings]]:
    """Each candidate that the plan judges here, with its settings.

    Without --candidate these are the shipped operators: native, and the Triton kernels, where there is no device
    through the interpreter (a million elements a second), so in BF16 at one cap, on the fewest cases.
    """
    given = config.getoption("--candidate")
    if given:
        try:
            return [(given, with_own_cap(given, settings, config.getoption("--softcap-timeout")))]
        except CandidateNotLoadable as error:
            raise pytest.UsageError(str(error)) from error
    if settings.device != "cpu":
        return [("native", settings), ("triton", settings)]
    few = replace(settings, caps=settings.caps[-1:], dtypes=("bf16",), profile=LEAST)
    return [
        ("native", settings),
        ("native-fp32", replace(settings, caps=settings.caps[-1:])),
        ("triton-interpreted", few),
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test a cell, and one a law and pass for exploration."""
    if "plan_cell" in metafunc.fixturenames:
        rows = [
            (spec, s, cell)
            for spec, s in subjects(metafunc.config, settings_of(metafunc.config))
            for cell in cells(display_name(spec), s)
        ]
        ids = [f"{spec}-{cell.id}" for spec, _, cell in rows]
        metafunc.parametrize("plan_cell", rows, ids=ids)
    if "explored_law" in metafunc.fixturenames:
        asked = [
            (spec, s, law.id, pass_)
            for spec, s in subjects(metafunc.config, settings_of(metafunc.config))
            if s.profile != LEAST  # one example a law says nothing, and the interpreter has no time for more
            for law in laws(s)
            if law.explored
            for pass_ in law.passes
        ]
        metafunc.parametrize(
            "explored_law", asked, ids=[f"{spec}-{law}-{pass_}" for spec, _, law, pass_ in asked]
        )


@pytest.fixture(scope="session")
def plan_benches(request: pytest.FixtureRequest) -> Any:
    """`plan_benches(spec, settings)`: the bench of a candidate, one a process."""
    timeout = request.config.getoption("--softcap-timeout")
    used: list[Bench] = []

    def get(spec: str, settings: Settings) -> Bench:
        used.append(bench(spec, settings, timeout, None))
        try:
            used[-1].jobs  # noqa: B018 - probes the candidate
        except CandidateNotLoadable as error:
            pytest.exit(str(error), returncode=2)
        return used[-1]

    yield get
    for each in used:
        each.child.close()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --candidate only the plan runs; the rest is deselected in the open."""
    if config.getoption("--candidate"):
        kept = [
            item for item in items if {"plan_cell", "explored_law"} & set(getattr(item, "fixturenames", ()))
        ]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


class _Collector:
    """In the controller: gathers verdicts from every worker and writes the report."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.verdicts: list[Verdict] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Verdicts arrive as properties of the call phase."""
        if report.when == "call":
            self.verdicts += [
                Verdict.of_record(json.loads(str(v)))
                for k, v in report.user_properties
                if k == VERDICT_PROPERTY
            ]

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:  # noqa: ARG002 - pytest's names
        """The same report as the command's, outside `explored` and `environment`."""
        settings = settings_of(self.config)
        specs = tuple(spec for spec, _ in subjects(self.config, settings))
        whole = Session(settings, specs)
        whole.start()  # probes for the environment; its not-applicable rows are the tests' own
        whole.verdicts = self.verdicts
        whole.certify()
        planned = {
            cell for spec, s in subjects(self.config, settings) for cell in cells(display_name(spec), s)
        }
        whole.complete = exitstatus in (0, 1) and {verdict.cell for verdict in self.verdicts} == planned
        whole.finish().write(self.config.getoption("--report"))


def pytest_configure(config: pytest.Config) -> None:
    """The controller alone writes the report."""
    try:
        writable(config.getoption("--report"))
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error
    if config.getoption("--report") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Collector(config), "softcap-report")
    if hasattr(config, "workerinput"):
        os.environ.setdefault("OMP_NUM_THREADS", "1")
