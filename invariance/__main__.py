"""`python -m invariance`, and what `softcap-verify` runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from invariance.cli import main as command


def main() -> int:
    """Run the command; the exit status."""
    return command(loading=_interrupts_end_it)


@contextmanager
def _interrupts_end_it() -> Iterator[None]:
    """An interrupt ends the imports at once: there is nothing to save, and numpy takes no exception amid its own."""
    kept = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


if __name__ == "__main__":
    sys.exit(main())
