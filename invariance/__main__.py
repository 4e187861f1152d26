"""`python -m invariance`, and what `softcap-verify` runs."""

from __future__ import annotations

import os
import signal
import sys

from invariance.process import start_server


def main() -> int:
    """Run the command; the exit status.

    The children's server starts before the command is imported: both import torch at the same time (2 s each). An
    interrupt ends the imports at once, for there is nothing to save, and numpy takes no exception amid its own.
    """
    kept = signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    start_server()
    from invariance.cli import main as command  # noqa: PLC0415 - see above

    signal.signal(signal.SIGINT, kept)
    return command()


if __name__ == "__main__":
    sys.exit(main())
