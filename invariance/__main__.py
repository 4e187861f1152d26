"""`python -m invariance`, and what `softcap-verify` runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _nothing() -> None:
    """Nothing was begun."""


@contextmanager
def _interrupts_end_it(last: Callable[[], None] = _nothing) -> Iterator[None]:
    """An interrupt ends the imports at once, after `last`: numpy takes no exception amid its own."""

    def end(*_: object) -> None:
        last()
        os.write(2, b"softcap-verify: interrupted\n")
        os._exit(130)

    try:
        kept = signal.signal(signal.SIGINT, end)
    except ValueError:  # signals are the main thread's
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, kept)


with _interrupts_end_it():  # a tenth of a second, in which an interrupt would print a traceback
    from invariance.cli import main as command


def main() -> int:
    """Run the command; the exit status."""
    return command(loading=_interrupts_end_it)


if __name__ == "__main__":
    sys.exit(main())
