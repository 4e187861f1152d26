"""The arrows between the packages, read from the imports: what is drawn is what the code does."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ALLOWED: dict[str, set[str]] = {
    "softcap": set(),
    "oracles": set(),
    "strategies": set(),
    "invariance": {"oracles", "strategies"},
    "benchmarks": {"softcap", "oracles", "invariance"},
}
OWN = {*ALLOWED, "tests", "tools", "conftest"}

# (importer, imported): why an own import may wait until it is called. Nothing else may. To load by a path,
# import_module("softcap.registry"), is no arrow, but it needs an entry here wherever it stands.
DEFERRED: dict[tuple[str, str], str] = {
    ("benchmarks.ceilings", "benchmarks.ceiling_kernels"): "a machine without Triton is refused in words",
    ("invariance", "invariance.session"): "the command starts its children before anything imports torch",
    ("invariance.candidate", "softcap.registry"): "the short names of the operators that ship with the suite",
    ("invariance.known_bad.edited", "invariance.tiers.interpreter"): "Triton is optional; interpreted on a CPU only",
    ("invariance.sweep.api", "invariance.sweep.triton_engine"): "Triton is optional, and needed on a GPU only",
}


@dataclass(frozen=True)
class Module:
    """One source file under its dotted name; a package's name stands for its __init__.py."""

    name: str
    source: str
    package: bool = False


@dataclass(frozen=True)
class Import:
    """`importer` needs `target`, at `line`: inside a function (`deferred`), by a literal path (`loaded`)."""

    importer: str
    target: str
    line: int
    deferred: bool
    loaded: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


class Reader(ast.NodeVisitor):
    """Collects the imports of one module: statements at any depth, and what is loaded by a literal path."""

    def __init__(self, module: Module, known: set[str]) -> None:
        self.module, self.known = module, known
        self.depth = 0
        self.found: list[Import] = []

    def add(self, target: str, line: int, *, loaded: bool = False) -> None:
        self.found.append(Import(self.module.name, target, line, loaded or self.depth > 0, loaded))

    def visit_function(self, node: ast.AST) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_FunctionDef = visit_AsyncFunctionDef = visit_Lambda = visit_function

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            parts = self.module.name.split(".")
            up = parts[: len(parts) - node.level + self.module.package]
            base = ".".join([*up, *([node.module] if node.module else [])])
        for alias in node.names:
            deeper = f"{base}.{alias.name}"
            self.add(deeper if deeper in self.known else base, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            self.add(str(node.args[0].value), node.lineno, loaded=True)
        self.generic_visit(node)


def read(modules: Mapping[str, Module]) -> list[Import]:
    """Every import of every module, in the order of the sources."""
    found: list[Import] = []
    for module in modules.values():
        reader = Reader(module, set(modules))
        reader.visit(ast.parse(module.source))
        found += reader.found
    return found


def arrow_faults(arrow: Import, deferred: Mapping[tuple[str, str], str]) -> Iterator[str]:
    """What is wrong with one arrow by itself."""
    house, other = arrow.importer.split(".")[0], arrow.target.split(".")[0]
    if other in OWN - {house} and other not in ALLOWED[house] and not arrow.loaded:
        yield f"{arrow}: {house} may import only {sorted(ALLOWED[house]) or 'itself'}"
    if arrow.deferred and other in OWN and (arrow.importer, arrow.target) not in deferred:
        yield f"{arrow} on demand, and that pair is not on the declared list"
    if other == "hypothesis" and arrow.importer != "strategies.cases":
        yield f"{arrow}: only strategies.cases knows Hypothesis"
    if other == "triton" and house == "oracles":
        yield f"{arrow}: the truth does not depend on Triton"


def cycle_fault(arrows: list[Import]) -> Iterator[str]:
    """The first cycle among the imports outside functions; those for type checkers count as well."""
    graph: dict[str, set[str]] = {}
    for arrow in arrows:
        if not arrow.deferred and arrow.target.split(".")[0] in OWN:
            graph.setdefault(arrow.importer, set()).add(arrow.target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield "cycle: " + " <- ".join(error.args[1])


def faults(modules: Mapping[str, Module], deferred: Mapping[tuple[str, str], str]) -> list[str]:
    """Everything that the house forbids, a line each; an entry of `deferred` that nobody uses is one."""
    arrows = read(modules)
    found = [fault for arrow in arrows for fault in arrow_faults(arrow, deferred)]
    found += cycle_fault(arrows)
    used = {(a.importer, a.target) for a in arrows if a.deferred}
    unused = [f"declared but not used: {a} imports {b} inside a function" for a, b in set(deferred) - used]
    return found + sorted(unused)


def sources(root: Path) -> dict[str, Module]:
    """The modules of the packages below `root`, by dotted name."""
    found = {}
    for house in ALLOWED:
        for path in sorted((root / house).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if package else parts)
            found[name] = Module(name, path.read_text(), package)
    return found


def plant(**texts: str) -> dict[str, Module]:
    """Modules made of text: `strategies__case="..."` is strategies.case; without a dot it is a package."""
    names = {key.replace("__", "."): text for key, text in texts.items()}
    return {name: Module(name, text, "." not in name) for name, text in names.items()}


def test_the_house_stands() -> None:
    modules = sources(ROOT)
    assert {"softcap", "oracles", "strategies", "invariance"} <= {name.split(".")[0] for name in modules}
    assert faults(modules, DEFERRED) == []


@pytest.mark.parametrize(
    ("importer", "text"),
    [
        ("invariance.run", "import softcap"),
        ("invariance.run", "from softcap.reference import NativeFinalLogitSoftcapOp"),
        ("oracles.fp64", "from strategies import dtypes"),
        ("softcap.reference", "import oracles.rounding as r"),
        ("strategies.case", "if True:\n    from invariance import judge"),
        ("strategies.case", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import oracles"),
        ("invariance.run", "import tests.test_house"),
    ],
)
def test_a_wrong_arrow_is_caught(importer: str, text: str) -> None:
    (fault,) = faults({importer: Module(importer, text)}, {})
    assert "may import only" in fault


@pytest.mark.parametrize(
    ("importer", "text", "said"),
    [
        ("oracles.exact", "import triton", "does not depend on Triton"),
        ("oracles.exact", "def f():\n    from triton.language import tanh", "does not depend on Triton"),
        ("strategies.shapes", "from hypothesis import strategies as st", "only strategies.cases"),
        ("invariance.fuzz", "def f():\n    import hypothesis.errors", "only strategies.cases"),
    ],
)
def test_a_wrong_dependency_is_caught(importer: str, text: str, said: str) -> None:
    (fault,) = faults({importer: Module(importer, text)}, {})
    assert said in fault


@pytest.mark.parametrize(
    "text",
    [
        "from invariance import run",
        "from . import run",
        "import invariance.run",
        "from .run import go",
        "from importlib import import_module\nimport_module('invariance.run')",
    ],
)
def test_a_deferred_import_is_caught_unless_declared(text: str) -> None:
    body = "\n    ".join(text.splitlines())
    modules = plant(invariance="", invariance__run="", invariance__cli=f"async def go():\n    {body}")
    (fault,) = faults(modules, {})
    assert "invariance.cli" in fault
    assert "not on the declared list" in fault
    assert faults(modules, {("invariance.cli", "invariance.run"): "why"}) == []


@pytest.mark.parametrize("before", ["", "def go():\n    "], ids=["module", "function"])
def test_a_load_by_path_is_caught_unless_declared(before: str) -> None:
    modules = plant(oracles__fp64=f"{before}importlib.import_module('softcap.reference')")
    (fault,) = faults(modules, {})
    assert "oracles.fp64" in fault
    assert "not on the declared list" in fault
    assert faults(modules, {("oracles.fp64", "softcap.reference"): "why"}) == []


def test_an_unused_declaration_is_caught() -> None:
    modules = plant(invariance__cli="import invariance.run", invariance__run="")
    assert faults(modules, {("invariance.cli", "invariance.run"): "why"}) == [
        "declared but not used: invariance.cli imports invariance.run inside a function"
    ]


@pytest.mark.parametrize(
    "modules",
    [
        plant(oracles__fp64="from oracles.exact import f", oracles__exact="from oracles import fp64"),
        plant(
            oracles__fp64="from .exact import f",
            oracles__exact="from .ulp import g",
            oracles__ulp="import oracles.fp64",
        ),
        plant(oracles="from oracles.ulp import spacing", oracles__ulp="from oracles import spacing"),
        plant(oracles__ulp="import oracles.ulp"),
    ],
    ids=["two", "three", "package", "itself"],
)
def test_a_cycle_is_caught(modules: dict[str, Module]) -> None:
    (fault,) = faults(modules, {})
    assert fault.startswith("cycle: ")


def test_what_is_drawn_is_allowed() -> None:
    modules = plant(
        invariance="from invariance.run import verify",
        invariance__run="import torch\nfrom oracles.truth import Truth\nfrom strategies import case",
        strategies__cases="from hypothesis import strategies as st\nfrom strategies.case import Case",
        strategies__case="",
        oracles__truth="from .fp64 import forward",
        oracles__fp64="",
        softcap__triton_op="import triton",
        benchmarks__speed="import softcap\nfrom invariance.run import verify",
    )
    assert faults(modules, {}) == []
