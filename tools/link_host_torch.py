"""Lend this environment the host's torch and Triton, so that the build that drives the GPU is the one judged.

Run by `tox -e gpu` with the environment's own Python. The host Python is $SOFTCAP_HOST_PYTHON, by default the
first python3 on PATH outside this environment. Its package folders are appended to sys.path by a .pth file:
what the environment installed itself still comes first. (`system_site_packages` cannot do it: where the
host's Python is a virtual environment, it shows the packages of the interpreter below that one.)

Exit status 0 when torch imports here, 1 with one line that says what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

PTH = "softcap_host_torch.pth"
SECONDS = 300  # a first import of torch from a cold network disk takes minutes

# Printed as the last line: libraries may write to standard output while they are imported.
PROBE = """
import json, os, sys
def package(name):
    try:
        module = __import__(name)
    except ImportError as error:
        return {"error": str(error)}
    home = os.path.dirname(os.path.dirname(os.path.abspath(module.__file__)))
    return {"version": str(getattr(module, "__version__", "?")), "home": home}
answer = {"python": list(sys.version_info[:2]), "devices": []}
for name in ("torch", "triton", "numpy"):
    answer[name] = package(name)
if "home" in answer["torch"]:
    import torch
    if torch.cuda.is_available():
        answer["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
print(json.dumps(answer))
"""


def host_python() -> str:
    """Path of the Python whose packages are lent; exits where there is none."""
    asked = os.environ.get("SOFTCAP_HOST_PYTHON")
    if asked:
        found = shutil.which(asked)
        if found is None:
            sys.exit(f"SOFTCAP_HOST_PYTHON={asked} is not an executable; give the Python that imports torch")
        return found
    own = Path(sys.prefix).resolve()
    path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    outside = [folder for folder in path if own not in Path(folder).resolve().parents]
    found = shutil.which("python3", path=os.pathsep.join(outside))
    if found is None:
        sys.exit("no python3 on PATH outside this environment; set SOFTCAP_HOST_PYTHON to the one with torch")
    return found


def isolated(python: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in the root folder, without PYTHON* variables: only installed packages are seen."""
    command = [python, "-E", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=os.sep, check=False)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a failed process said last."""
    return (done.stderr.strip().splitlines() or ["no message"])[-1]


def ask(host: str) -> dict[str, Any]:
    """What `host` says of itself: versions, package folders and devices."""
    try:
        done = isolated(host, PROBE)
    except (OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{host} could not be asked for its torch: {error}")
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        sys.exit(f"{host} could not be asked for its torch: exit status {done.returncode}, {last_line(done)}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def folders(host: str, answer: dict[str, Any], *, require_gpu: bool) -> list[str]:
    """The folders to lend, each once; exits where the answer is not good enough."""
    here = list(sys.version_info[:2])
    if answer["python"] != here:
        theirs, ours = (".".join(map(str, v)) for v in (answer["python"], here))
        remedy = f"run tox -r -e gpu with SOFTCAP_HOST_PYTHON={host}"
        sys.exit(f"{host} is Python {theirs}, this environment is {ours}: {remedy}")
    lent = []
    for name in ("torch", "triton", "numpy"):
        package = answer[name]
        if "home" not in package:
            sys.exit(
                f"{host} cannot import {name} ({package['error']}); set SOFTCAP_HOST_PYTHON to one that can"
            )
        lent.append(package["home"])
    if require_gpu and not answer["devices"]:
        sys.exit(
            f"{host}: torch {answer['torch']['version']} sees no CUDA or ROCm device; tox -e gpu needs one"
        )
    return list(dict.fromkeys(lent))


def link(site: Path, lent: list[str]) -> None:
    """Write the .pth file into `site`, then import torch from a fresh interpreter that reads it."""
    (site / PTH).write_text("".join(f"{folder}\n" for folder in lent))
    code = f"import site; site.addsitedir({str(site)!r}); import torch, triton, numpy"
    done = isolated(sys.executable, code)
    if done.returncode:
        sys.exit(f"the host's torch does not import in this environment: {last_line(done)}")


def main(argv: list[str] | None = None) -> None:
    """Command line: `link_host_torch.py [--require-gpu] [--site FOLDER]`."""
    parser = argparse.ArgumentParser(description="Lend this environment the host's torch and Triton.")
    parser.add_argument("--require-gpu", action="store_true", help="fail where torch sees no device")
    here = Path(sysconfig.get_paths()["purelib"])
    parser.add_argument("--site", type=Path, default=here, help="the folder that the .pth is written to")
    given = parser.parse_args(argv)
    host = host_python()
    answer = ask(host)
    link(given.site, folders(host, answer, require_gpu=given.require_gpu))
    versions = ", ".join(f"{name} {answer[name]['version']}" for name in ("torch", "triton", "numpy"))
    print(f"lent by {host}: {versions}; devices: {', '.join(answer['devices']) or 'none'}")


if __name__ == "__main__":
    main()
