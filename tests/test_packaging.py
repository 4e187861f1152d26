"""What is shipped: one version, typed packages, data that the wheel takes along, nothing of one machine."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # what pytest itself reads pyproject.toml with on 3.10

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("softcap", "oracles", "strategies", "invariance")
FOLDERS = (*PACKAGES, "benchmarks", "docs", "tests", "tools", ".ci")
# Neither pattern matches its own source, and the examples below escape a character for the same reason.
MACHINE = re.compile(r"(?<![\w./-])/(?:root|home|work|Users)/\w")
INDEX_HOST = re.compile(r"pypi\.org|pythonhosted\.org|download\.pytorch")


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def texts() -> Iterator[tuple[Path, str]]:
    """Every text file of the project by its relative path."""
    top = [p for p in ROOT.iterdir() if p.is_file() and not p.name.startswith((".coverage", ".venv"))]
    deep = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*") if p.is_file()]
    for path in sorted(top + deep):
        if "__pycache__" not in path.parts and path.suffix not in {".png", ".cubin", ".pyc"}:
            yield path.relative_to(ROOT), path.read_text(encoding="utf-8")


def stated_versions() -> Iterator[tuple[str, str]]:
    """(file, version) for each `__version__ = "..."` in the packages."""
    for path, text in texts():
        if path.parts[0] in PACKAGES and path.suffix == ".py":
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__":
                    yield str(path), ast.literal_eval(node.value)


def test_there_is_one_version() -> None:
    version = project()["project"]["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert [(path, said) for path, said in stated_versions() if said != version] == []


def test_the_command_exists() -> None:
    module, attribute = project()["project"]["scripts"]["softcap-verify"].split(":")
    assert callable(getattr(importlib.import_module(module), attribute))


def test_dependencies_are_floors_and_leave_out_triton() -> None:
    needs = project()["project"]["dependencies"]
    assert [need for need in needs if "==" in need or need.startswith("triton")] == []
    assert {re.split("[<>=]", need)[0] for need in needs} == {"torch", "numpy", "mpmath", "hypothesis"}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_package_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_reaches_the_wheel(package: str) -> None:
    patterns = project()["tool"]["setuptools"]["package-data"]["*"]
    files = [path for path, _ in texts() if path.parts[0] == package]
    left_out = [
        str(path)
        for path in files
        if not (ROOT / path.parent / "__init__.py").is_file()
        or not (path.suffix == ".py" or any(fnmatch.fnmatch(path.name, p) for p in patterns))
    ]
    assert left_out == []


def found(pattern: re.Pattern[str], suffixes: set[str] | None = None) -> list[str]:
    """`file:line` of each match, in files with one of `suffixes` (None: all)."""
    return [
        f"{path}:{number}"
        for path, text in texts()
        if suffixes is None or path.suffix in suffixes
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_no_path_of_one_machine() -> None:
    assert found(MACHINE) == []


def test_no_index_host_where_packages_are_chosen() -> None:
    assert found(INDEX_HOST) == []


@pytest.mark.parametrize("path", ["see \x2froot/x", '"\x2fhome/me/kernel.py"', "(\x2fwork/main)"])
def test_the_machine_pattern_sees(path: str) -> None:
    assert MACHINE.search(path)


@pytest.mark.parametrize("path", ["tests/home/x", "./work/x", "/rootless", "a/root/b", "/opt/rocm/lib"])
def test_the_machine_pattern_leaves_alone(path: str) -> None:
    assert not MACHINE.search(path)
