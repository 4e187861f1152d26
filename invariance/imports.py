"""How the author's module is imported: by its name, or from a file beside its neighbours."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

# Nothing here imports the package `softcap` but where a candidate is named in it, so a neighbour may have its name.
YIELDING = "softcap"
SUITE = ("invariance", "oracles", "strategies")  # here already, and a neighbour called so is hidden by them


class NoSuchFile(Exception):
    """The file of a candidate does not exist."""


def import_module(name: str) -> ModuleType:
    """The module of that name, looked for in the working directory as well."""
    if os.getcwd() not in sys.path:  # as `python -m` does: a console script does not put it there
        sys.path.insert(0, os.getcwd())
    return importlib.import_module(name)


def prefer_own() -> None:
    """From now on the suite's own `softcap` is found first: the working directory may hold a `softcap.py`."""
    _prefer(str(Path(__file__).parents[1]))


def import_file(path: Path) -> ModuleType:
    """The module in that file, which may import its neighbours; raises NoSuchFile."""
    if not path.is_file():
        raise NoSuchFile(f"candidate file {path} does not exist")
    name = "softcap_candidate_" + "".join(c if c.isalnum() else "_" for c in str(path.resolve()))
    if name in sys.modules:
        return sys.modules[name]
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    _prefer(folder)
    specification = importlib.util.spec_from_file_location(name, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _prefer(folder: str) -> None:
    """That folder comes before those that were preferred; a finder that is there already moves."""
    finder = _Preferred(folder)
    sys.meta_path[:] = [finder, *(one for one in sys.meta_path if one != finder)]


@dataclass(frozen=True)
class _Preferred(MetaPathFinder):
    """Finds `softcap` in one folder first: beside a candidate's file, where it is the natural name of another."""

    folder: str

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - its own
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        if fullname != YIELDING:
            return None
        found = PathFinder.find_spec(fullname, [self.folder], target)
        return None if found is None or found.origin is None else found  # no origin: a folder with no module


def hidden_by_the_suite(source: str, error: BaseException) -> str:
    """What to add to an error of an import, where a neighbour of the file has the name of a package of ours."""
    if not isinstance(error, (ImportError, AttributeError)) or not source.endswith(".py"):
        return ""
    folder = Path(source).resolve().parent
    for name in (YIELDING, *SUITE):
        here = getattr(sys.modules.get(name), "__file__", None)
        beside = [path for path in (folder / f"{name}.py", folder / name / "__init__.py") if path.is_file()]
        if beside and here is not None and Path(here).resolve() not in beside:
            where = beside[0].relative_to(folder)
            hidden = f"{where} beside it is hidden by the suite's own package {name!r}"
            return f" ({hidden}: rename it, or import it from a package)"
    return ""
