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
    """Ctrl-C or a time limit ends the imports at once, after `last`: numpy takes no exception amid its own."""

    def end(*_: object) -> None:
        last()
        os.write(2, b"softcap-verify: interrupted\n")
        os._exit(130)

    taken = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is not signal.SIG_IGN]
    try:
        kept = {number: signal.signal(number, end) for number in taken}
    except ValueError:  # signals are the main thread's
        yield
        return
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


with _interrupts_end_it():  # a tenth of a second, in which an interrupt would print a traceback
    from invariance.cli import main as command


def main() -> int:
    """Run the command; the exit status."""
    return command(loading=_interrupts_end_it)


if __name__ == "__main__":
    sys.exit(main())
