"""What each command takes. Nothing here needs torch: help, and what a single argument has wrong, are told at once."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from invariance.offered import (
    CAMPAIGNS,
    DTYPES,
    NARROW_LAWS,
    OPERATORS,
    PROFILES,
    ROUNDINGS,
    SWEPT_PASSES,
    TIERS,
)
from invariance.usage import (
    UsageError,
    flattened,
    read_cap,
    read_choice,
    read_dtype,
    read_folder,
    read_seconds,
    read_shard,
    read_whole,
    shown,
)

ON_A_GPU = 3  # child processes of a campaign: the host prepares as long as the device works
_CANDIDATE = "pkg.mod:attr, path/file.py:attr or a short name (default: registry)"
_DEVICE = "auto, cpu, cuda or cuda:i (default: auto)"
_JSON = "the JSON report on standard output, and nothing else there"


def check(parser: argparse.ArgumentParser) -> None:
    """Four verdicts on one or more candidates."""
    _several(parser, "--candidate", "SPEC", _CANDIDATE)
    _several(parser, "--softcap", "C", "caps to judge at (default: 20 30)", read_cap)
    _several(parser, "--dtype", "DTYPE", f"{', '.join(DTYPES)} (default: all)", read_dtype)
    parser.add_argument("--device", default="auto", help=_DEVICE)
    for name in ("batch", "seq", "vocab"):
        _whole(
            parser, f"--{name}", name[0].upper(), "with its two fellows: add the shape batch x seq x vocab", 1
        )
    gradient = parser.add_mutually_exclusive_group()
    gradient.add_argument(
        "--check-grad",
        dest="check_grad",
        action="store_true",
        default=None,
        help="a candidate without a gradient fails",
    )
    gradient.add_argument(
        "--no-check-grad", dest="check_grad", action="store_false", help="judge no gradient"
    )
    _several(parser, "--law", "NAME", "judge these laws only (see: softcap-verify laws)")
    of_profiles = f"{', '.join(PROFILES)}: every law in each, on more and more cases"
    _choice(parser, "--profile", PROFILES, of_profiles, default="default")
    parser.add_argument(
        "--no-explore", dest="explore", action="store_false", help="only the fixed plan, no Hypothesis on top"
    )
    _seconds(
        parser,
        "--timeout",
        60.0,
        "seconds a cell may take (default: 60); importing the candidate twice that, from 30 to 120",
    )
    _whole(parser, "--seed", "N", "of the plan's hash-drawn cases and of exploration (default: 0)", 0, 0)
    _whole(parser, "--jobs", "N", "child processes at a time (default: cores, one on a GPU)", 1)
    of_roundings = "once, or chain: the contract of an eager chain in the input dtype"
    _choice(parser, "--rounding", ROUNDINGS, of_roundings, default="once")
    _choice(parser, "--op", OPERATORS, ", ".join(OPERATORS), default=OPERATORS[0])
    _path(parser, "--report", "DIR", "write report.json, .md and .html there")
    parser.add_argument("--json", action="store_true", help=_JSON)
    parser.set_defaults(agree=_laws_and_dtypes)


def _laws_and_dtypes(options: argparse.Namespace) -> None:
    """Refuse a law that is stated for none of the dtypes asked for."""
    given = flattened(options.dtype)
    for name in flattened(options.law):
        stated = NARROW_LAWS.get(name, DTYPES)
        if given and not set(stated) & set(given):
            raise UsageError(
                f"--law: law {name} is stated for {', '.join(stated)}, not for {', '.join(given)}"
            )


def laws(parser: argparse.ArgumentParser) -> None:
    """Every law of the suite."""
    parser.add_argument("--json", action="store_true", help="as JSON")


def replay(parser: argparse.ArgumentParser) -> None:
    """One failure again."""
    parser.add_argument(
        "recipe",
        metavar="CASE",
        help="the JSON that a report's replay line holds, or a file of such lines: a corpus; a failure that does not "
        "come each time is tried several times, and `not seen` where it did not come, which is status 0 and no pass",
    )
    _once(parser, "--candidate", metavar="SPEC", help="judge this candidate on the case instead")
    _seconds(parser, "--timeout", None, "seconds for a case (default: those that the line names, else 60)")


def fuzz(parser: argparse.ArgumentParser) -> None:
    """New caps by the thousand."""
    _once(parser, "--candidate", default="registry", metavar="SPEC", help=_CANDIDATE)
    _choice(
        parser,
        "--campaign",
        CAMPAIGNS,
        f"{', '.join(CAMPAIGNS)}: families, Hypothesis and neighbourhoods of the worst; or every BF16 cap",
        default=CAMPAIGNS[0],
    )
    parser.add_argument(
        "--softcap-range",
        metavar="LO:HI",
        help="caps to draw from, as 0.5, 1e-3, 0x1.8p3, 2^-60, 2^10+step or 2^10-step (default: 2^-60:2^60, the judged "
        "domain; failures outside it are reported apart, and are status 1 as well; no cap inside it is status 2)",
    )
    length = parser.add_mutually_exclusive_group()
    minutes = partial(read_seconds, "--minutes", unit="minutes")
    length.add_argument("--minutes", type=minutes, metavar="M", help="how long (default: 1)")
    examples = partial(read_whole, "--examples", least=1)
    length.add_argument("--examples", type=examples, metavar="N", help="how many caps, whatever the time")
    parser.add_argument("--device", default="auto", help=_DEVICE)
    _whole(parser, "--seed", "N", "of every draw (default: 0)", 0, 0)
    _shard(parser, "part K of N of the campaign")
    _whole(
        parser, "--jobs", "N", f"child processes at a time (default: cores, at most {ON_A_GPU} on a GPU)", 1
    )
    _seconds(parser, "--timeout", 30.0, "seconds that a cap may take, at least 1 (default: 30)")
    _path(parser, "--corpus", "FILE", "append each failure there, a line of JSON, for replay")
    _path(parser, "--report", "DIR", "write fuzz.json and fuzz.md there")
    parser.add_argument("--json", action="store_true", help=_JSON)


def sweep(parser: argparse.ArgumentParser) -> None:
    """Every input of a dtype."""
    _once(parser, "--candidate", default="registry", metavar="SPEC", help=_CANDIDATE)
    _several(
        parser,
        "--softcap",
        "C",
        "caps (default: 20 30); judged from 2^-60 to 2^60, beyond that reported only",
        read_cap,
    )
    _several(parser, "--dtype", "DTYPE", f"{', '.join(DTYPES)} (default: all)", read_dtype)
    of_passes = "forward, backward or both (default: what the candidate has)"
    _once(
        parser,
        "--pass",
        type=partial(read_choice, "--pass", (*SWEPT_PASSES, "both")),
        dest="pass_",
        metavar="PASS",
        help=of_passes,
    )
    parser.add_argument("--device", default="auto", help=_DEVICE)
    _shard(parser, "only the K-th of N parts of each FP32 domain (a 16-bit one is one piece, in part N/N)")
    _path(parser, "--report", "DIR", "write the certificates there")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="use the pieces that an interrupted run of the same, unchanged files left in --report DIR",
    )
    _whole(parser, "--jobs", "N", "child processes at a time (default: cores, one on a GPU)", 1)
    _seconds(parser, "--timeout", 600.0, "seconds that a piece of 2^26 inputs may take (default: 600)")


def merge(parser: argparse.ArgumentParser) -> None:
    """The certificates of shards, made whole."""
    parser.add_argument("certificates", nargs="+", metavar="CERT", help="*.cert.json files")
    parser.add_argument(
        "-o",
        "--output",
        type=partial(read_folder, "-o"),
        required=True,
        metavar="DIR",
        help="where the whole ones go",
    )


def compare(parser: argparse.ArgumentParser) -> None:
    """Two certificates, the same function or not."""
    parser.add_argument("a", metavar="A.json", help="a certificate")
    parser.add_argument("b", metavar="B.json", help="another one, of the same cap, dtype and pass")
    parser.add_argument(
        "--candidate",
        nargs=2,
        metavar=("A", "B"),
        help="run these to name the first inputs (default: those certified)",
    )
    parser.add_argument("--device", default="auto", help="where to run them (default: auto)")
    _seconds(parser, "--timeout", 600.0, "seconds for that (default: 600)")


def mutants(parser: argparse.ArgumentParser) -> None:
    """The suite against its own catalogue."""
    read = partial(read_choice, "--tier", (*TIERS, "all"))
    help_ = f"one or several of {', '.join(TIERS)}, or all: every one that this machine has (default: all)"
    _several(parser, "--tier", "TIER", help_, read)
    _several(parser, "--kernel", "NAME", "only these, by their names in the report (default: the catalogue)")
    _path(parser, "--report", "DIR", "write mutants.json and mutants.md there")
    parser.add_argument("--json", action="store_true", help=_JSON)
    _whole(parser, "--jobs", "N", "kernels judged at a time (default: cores)", 1)
    _whole(parser, "--seed", "N", "of the plan's hash-drawn cases (default: 0)", 0, 0)


def _several(
    parser: argparse.ArgumentParser,
    flag: str,
    metavar: str,
    help_: str,
    read: Callable[[str], object] = str,
) -> None:
    """A flag that takes several values and may be repeated: lists of lists, see `usage.flattened`."""
    parser.add_argument(flag, action="append", nargs="+", type=read, metavar=metavar, help=help_)


class _Once(argparse.Action):
    """A flag of one value: where the last of several would silently win, what was asked for is not what runs."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        given = vars(namespace).setdefault("given_once", {})
        if self.dest in given:
            raise UsageError(
                f"{option_string} {given[self.dest]} and {_spelled(values)}: this command takes one, run it for each"
            )
        given[self.dest] = _spelled(values)
        setattr(namespace, self.dest, values)


def _spelled(value: object) -> str:
    return shown("/".join(map(str, value)) if isinstance(value, tuple) else str(value))


def _once(parser: argparse.ArgumentParser, flag: str, **more: object) -> None:
    parser.add_argument(flag, action=_Once, **more)  # type: ignore[arg-type]  # argparse's own keywords


def _shard(parser: argparse.ArgumentParser, help_: str) -> None:
    _once(parser, "--shard", type=read_shard, default=(1, 1), metavar="K/N", help=help_)


def _path(parser: argparse.ArgumentParser, flag: str, metavar: str, help_: str) -> None:
    parser.add_argument(flag, type=partial(read_folder, flag), metavar=metavar, help=help_)


def _choice(
    parser: argparse.ArgumentParser, flag: str, known: tuple[str, ...], help_: str, **more: str
) -> None:
    read = partial(read_choice, flag, known)
    parser.add_argument(flag, type=read, metavar=flag.strip("-").upper(), help=help_, **more)  # type: ignore[arg-type]  # default and dest


def _whole(
    parser: argparse.ArgumentParser,
    flag: str,
    metavar: str,
    help_: str,
    least: int,
    default: int | None = None,
) -> None:
    read = partial(read_whole, flag, least=least)
    parser.add_argument(flag, type=read, default=default, metavar=metavar, help=help_)


def _seconds(parser: argparse.ArgumentParser, flag: str, default: float | None, help_: str) -> None:
    parser.add_argument(flag, type=partial(read_seconds, flag), default=default, metavar="S", help=help_)


COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], str]] = {
    "check": (
        check,
        "judge softcap kernels given by import path: accuracy and invariance, forward and gradient",
    ),
    "laws": (laws, "every law: id, judgement, what it states, which public bugs it answers"),
    "replay": (replay, "judge one failing case again"),
    "fuzz": (fuzz, "look for caps at which a kernel is wrong: many caps, each with whole domains of inputs"),
    "sweep": (
        sweep,
        "judge all inputs of a dtype, forward and gradient (grad_y = 1), and write certificates",
    ),
    "merge": (
        merge,
        "merge certificates of shards: grouped by candidate, cap, dtype and pass; overlaps and gaps are refused",
    ),
    "compare": (
        compare,
        "are two certificates of the same function, bit for bit? exit 0 same, 1 different, 2 not comparable",
    ),
    "mutants": (mutants, "the kill matrix: every known-bad kernel must die, no good variant may"),
}
