"""Pytest wiring, and nothing else: threads, the Hypothesis profile, and tests that need a device."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

pytest_plugins = ["invariance.pytest_plugin"]

# No deadline: a first call compiles, and a shared machine stalls. The rest is the current profile's.
hypothesis.settings.register_profile("softcap", deadline=None)
hypothesis.settings.load_profile("softcap")


def pytest_configure(config: pytest.Config) -> None:
    """One thread a worker, children included: measured, two workers are slower with two threads each.

    Workers take over each other's tests: in plain chunks the slow ones, last in order, are left to one worker.
    """
    if getattr(config.option, "dist", "no") == "load":
        config.option.dist = "worksteal"
    if hasattr(config, "workerinput"):
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect, in the open, what needs a device that is missing; where one is demanded, let it fail."""
    if torch.cuda.is_available() or os.environ.get("SOFTCAP_REQUIRE_GPU"):
        return
    out = [item for item in items if item.get_closest_marker("gpu")]
    if out:
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]
