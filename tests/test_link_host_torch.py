"""tools/link_host_torch.py against hosts of a few lines of shell: each refusal names what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "link_host_torch.py"
HERE = list(sys.version_info[:2])


def host(folder: Path, says: str, status: int = 0) -> Path:
    """An executable that prints `says`, whatever it is asked."""
    path = folder / "host-python"
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\nexit {status}\n")
    path.chmod(0o755)
    return path


def answer(**other: Any) -> str:
    """A good host's answer, with `other` in place of parts of it."""
    package = {"version": "9.9", "home": "/nowhere/site-packages"}
    good = {"python": HERE, "devices": ["some GPU"], "torch": package, "triton": package, "numpy": package}
    return json.dumps({**good, **other})


def run(asked: str, site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The tool, told to write into `site`, with `asked` as the host."""
    command = [sys.executable, str(TOOL), "--site", str(site), *arguments]
    environment = {**os.environ, "SOFTCAP_HOST_PYTHON": asked}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (answer(python=[2, 7]), "is Python 2.7"),
        (answer(torch={"error": "No module named 'torch'"}), "cannot import torch (No module named 'torch')"),
        (answer(triton={"error": "No module named 'triton'"}), "cannot import triton"),
        (answer(devices=[]), "torch 9.9 sees no CUDA or ROCm device"),
    ],
    ids=["version", "torch", "triton", "device"],
)
def test_a_host_that_will_not_do(tmp_path: Path, says: str, said: str) -> None:
    done = run(str(host(tmp_path, says)), tmp_path, "--require-gpu")
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(tmp_path.glob("*.pth")) == []


def test_a_host_that_is_not_there(tmp_path: Path) -> None:
    done = run(str(tmp_path / "missing"), tmp_path)
    assert done.returncode == 1
    assert "is not an executable" in done.stderr


def test_a_host_that_fails(tmp_path: Path) -> None:
    done = run(str(host(tmp_path, "noise", status=3)), tmp_path)
    assert done.returncode == 1
    assert "exit status 3" in done.stderr


def test_a_good_host_is_lent(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    home = tmp_path / "lent"
    for name in ("torch", "triton", "numpy"):
        (home / name).mkdir(parents=True)
        (home / name / "__init__.py").touch()
    package = {"version": "9.9", "home": str(home)}
    says = "a banner\n" + answer(torch=package, triton=package, numpy=package)
    done = run(str(host(tmp_path, says)), site, "--require-gpu")
    assert done.stderr == ""
    assert done.returncode == 0
    assert [path.read_text() for path in site.glob("*.pth")] == [f"{home}\n"]
    assert "torch 9.9" in done.stdout
    assert "devices: some GPU" in done.stdout


def test_the_real_python_answers(tmp_path: Path) -> None:
    """This Python as its own host: the probe runs, and tells all three or which package is missing."""
    done = run(sys.executable, tmp_path)
    assert f"lent by {sys.executable}: torch" in done.stdout or "cannot import t" in done.stderr
