"""`python -m invariance`, and what `softcap-verify` runs."""

from __future__ import annotations

import sys

from invariance.process import start_server

# Before the command is imported: children and the command then import torch at the same time (2 s each).
start_server()

from invariance.cli import main  # noqa: E402

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
