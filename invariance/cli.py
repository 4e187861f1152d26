"""The command. `softcap-verify` and `python -m invariance` are the same.

Reading the arguments imports nothing heavy; a command's module, and torch with it, is imported once it is to run.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import metadata
from typing import NoReturn

from invariance.arguments import COMMANDS
from invariance.interrupts import noted
from invariance.server import start_server
from invariance.usage import UsageError, abandoned

DESCRIPTION = "Judge softcap kernels: accuracy and invariance, forward and gradient."
CHILDLESS = ("laws", "merge")
REPORTS = {"fuzz": "fuzz"}  # commands whose report says that they were interrupted: the stem of its files


class Parser(argparse.ArgumentParser):
    """argparse with one line for a mistake, and no abbreviations."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(allow_abbrev=False, **kwargs)  # type: ignore[arg-type]  # argparse's own keywords
        # What begins as a negative number is a value, as in -1:1 and -0x1p3: its flag refuses it.
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        """Usage errors are raised, and printed in one place."""
        raise UsageError(message)


def main(
    argv: Sequence[str] | None = None,
    loading: Callable[[Callable[[], None]], AbstractContextManager[object]] = nullcontext,
) -> int:
    """Run one command. Exit status: 0 all asked for passes, 1 a law failed, 2 bad request, 130 interrupted.

    loading: entered while the command's module is imported; given what has to be done if that is interrupted.
    """
    try:
        options = _parser().parse_args(argv)
        if hasattr(options, "agree"):  # what two arguments have wrong together
            options.agree(options)
        with loading(partial(_abandon, options)):
            run = _loaded(options.command)
        with noted():
            return run(options)
    except UsageError as error:
        print(f"softcap-verify: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `softcap-verify laws | head`: nobody reads on
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("softcap-verify: interrupted", file=sys.stderr)
        return 130


def _abandon(options: argparse.Namespace) -> None:
    """An interrupt before a command's own code runs: a report of an older run must not pass for this one's."""
    if options.command in REPORTS:
        abandoned(options.report, REPORTS[options.command])


def _parser() -> Parser:
    parser = Parser(prog="softcap-verify", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, (add_arguments, help_) in COMMANDS.items():
        add_arguments(commands.add_parser(name, help=help_, description=help_))
    return parser


def _loaded(command: str) -> Callable[[argparse.Namespace], int]:
    """The command's `run`. The children's server starts first: both import torch at the same time (2 s each)."""
    if command not in CHILDLESS:
        start_server()
    run: Callable[[argparse.Namespace], int] = importlib.import_module(f"invariance.commands.{command}").run
    return run


def _version() -> str:
    try:
        return metadata.version("softcap-verify")
    except metadata.PackageNotFoundError:
        return "(a source tree, not installed)"


if __name__ == "__main__":
    sys.exit(main())
