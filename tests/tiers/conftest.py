"""Mutants of the shipped kernels: their source with edits, each of which must apply exactly once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import softcap.kernels

Mutate = Callable[..., ModuleType]
BACKWARD = '@triton.jit(do_not_specialize=["n"])\ndef softcap_backward_kernel('


@pytest.fixture
def mutate(tmp_path: Path) -> Mutate:
    """``mutate((old, new), ...)``: the kernels' module with the edits made in its forward kernel."""

    def build(*edits: tuple[str, str]) -> ModuleType:
        source = Path(softcap.kernels.__file__).read_text("utf-8")
        forward, backward = source.split(BACKWARD, 1)
        for old, new in edits:
            assert forward.count(old) == 1, f"{old!r} stands {forward.count(old)} times in the forward kernel"
            forward = forward.replace(old, new)
        path = tmp_path / "mutant.py"
        path.write_text(forward + BACKWARD + backward, "utf-8")
        spec = importlib.util.spec_from_file_location("mutant", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return build
