"""The fork server: it has imported torch and run nothing, so that a child starts in a tenth of a second."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerContext

CONTEXT = multiprocessing.get_context("forkserver")
_PRELOAD = ["invariance.preloaded"]

_spawning = threading.Lock()  # sessions may run in threads, and a start borrows environment and __main__
_closing = threading.Event()


@contextlib.contextmanager
def starting() -> Iterator[ForkServerContext]:
    """A process may be started inside, from the context given; raises ClosedDown."""
    with _spawning:
        if _closing.is_set():
            raise ClosedDown
        start_server()
        with _without_main():
            yield CONTEXT


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """multiprocessing re-imports `__main__` in children, which would run a user's script again."""
    main = sys.modules["__main__"]
    kept = {name: getattr(main, name) for name in ("__file__", "__spec__") if hasattr(main, name)}
    for name in kept:
        setattr(main, name, None)
    try:
        yield
    finally:
        for name, value in kept.items():
            setattr(main, name, value)


def start_server() -> None:
    """Start the fork server and do not wait for it; again is a no-op.

    It looks for its imports along PYTHONPATH and not along the parent's sys.path, which is handed over so.
    """
    CONTEXT.set_forkserver_preload(_PRELOAD)
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        resource_tracker.ensure_running()  # in the next line's place it would let SIGINT through again
        with _interrupts_held():
            forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH") if kept is None else os.environ.update(PYTHONPATH=kept)


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """What starts meanwhile is deaf to SIGINT for life: Ctrl-C reaches the whole group, and the parent alone decides.

    An interrupt that comes meanwhile is delivered afterwards.
    """
    kept = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, kept)


class ClosedDown(Exception):
    """No child is started any more: whoever waits for one ends with this."""


@contextlib.contextmanager
def closed_down() -> Iterator[None]:
    """Every child is killed, and inside none is started: sessions in other threads come to their end."""
    with _spawning:
        _closing.set()
        for child in multiprocessing.active_children():
            child.kill()
    try:
        yield
    finally:
        _closing.clear()
