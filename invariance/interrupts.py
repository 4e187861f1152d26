"""Ctrl-C that is not lost: Python swallows a KeyboardInterrupt inside a garbage collection or a finalizer.

Hypothesis, for one, has a callback at each collection, and a generator that is dropped runs its `finally` in a
finalizer: what is raised there is printed as "Exception ignored in" and the run would go on. So a signal leaves a note
besides, and whatever waits for children looks at it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SEEN_WITHIN = 1.0  # seconds: who waits for longer looks so often

_noted = threading.Event()


def _note(*_: object) -> None:
    _noted.set()
    raise KeyboardInterrupt


def heed() -> None:
    """Raise KeyboardInterrupt where Ctrl-C was pressed since this was asked last, and whoever swallowed it.

    In the main thread only: sessions in others end when it does.
    """
    if _noted.is_set() and threading.current_thread() is threading.main_thread():
        _noted.clear()
        raise KeyboardInterrupt


def settled() -> None:
    """The interrupt has done its work: what runs now, such as the last words, is not interrupted by it again."""
    _noted.clear()


@contextmanager
def noted() -> Iterator[None]:
    """Each Ctrl-C inside raises KeyboardInterrupt as ever, and is noted for `heed`; a time limit's SIGTERM as well."""
    settled()
    if threading.current_thread() is not threading.main_thread():  # signals are the main thread's
        yield
        return
    # What is ignored stays so: a shell starts what runs in the background that way.
    taken = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is not signal.SIG_IGN]
    kept = {number: signal.signal(number, _note) for number in taken}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not set from Python
