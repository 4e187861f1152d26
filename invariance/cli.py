"""The command. `softcap-verify` and `python -m invariance` are the same."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from invariance.commands import check, compare, fuzz, laws, merge, mutants, replay, sweep
from invariance.usage import UsageError


class Parser(argparse.ArgumentParser):
    """argparse with one line for a mistake, and no abbreviations."""

    def __init__(self, **kwargs: object) -> None:
        super().__init__(allow_abbrev=False, **kwargs)  # type: ignore[arg-type]  # argparse's own keywords

    def error(self, message: str) -> NoReturn:
        """Usage errors are raised, and printed in one place."""
        raise UsageError(message)


DESCRIPTION = "Judge softcap kernels: accuracy and invariance, forward and gradient."
COMMANDS = {
    "check": check,
    "laws": laws,
    "replay": replay,
    "fuzz": fuzz,
    "sweep": sweep,
    "merge": merge,
    "compare": compare,
    "mutants": mutants,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Exit status: 0 all asked for passes, 1 a law failed, 2 bad request, 130 interrupted."""
    parser = Parser(prog="softcap-verify", description=DESCRIPTION)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)
    for name, module in COMMANDS.items():
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    try:
        options = parser.parse_args(argv)
        run: Callable[[argparse.Namespace], int] = options.run
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


if __name__ == "__main__":
    sys.exit(main())
