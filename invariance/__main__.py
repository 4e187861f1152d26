"""`python -m invariance`, and what `softcap-verify` runs."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def _interrupts_end_it() -> Iterator[None]:
    """An interrupt ends the imports at once: there is nothing to save, and numpy takes no exception amid its own."""
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    kept = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


def _end(*_: object) -> None:
    os.write(2, b"softcap-verify: interrupted\n")
    os._exit(130)


with _interrupts_end_it():  # a tenth of a second, in which an interrupt would print a traceback
    from invariance.cli import main as command


def main() -> int:
    """Run the command; the exit status."""
    return command(loading=_interrupts_end_it)


if __name__ == "__main__":
    sys.exit(main())
