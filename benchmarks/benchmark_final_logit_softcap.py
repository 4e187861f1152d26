"""Time the operator against its reference and against what a user would pick instead. See --help."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # run by its path: the project's root is where the packages are
    sys.path[:1] = [str(Path(__file__).resolve().parents[1])]

from benchmarks.command import main

if __name__ == "__main__":
    sys.exit(main())
