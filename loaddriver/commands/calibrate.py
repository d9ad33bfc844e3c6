"""`loaddriver calibrate`: runs a profile several times and sets limits from the results."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from loaddriver.commands.common import print_verdicts, run_once, say
from loaddriver.commands.flags import bare_flag, profile_flags, run_options
from loaddriver.errors import ExitCode, LoaddriverError, ProfileError
from loaddriver.judge.calibrate import FEWEST_RUNS, Calibrated, Measured, calibrate
from loaddriver.judge.expect_text import expectations_text
from loaddriver.judge.gates import format_number
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.report.results import read_bare, read_summary

_RUNS = 5
_TRIES = 2  # for each valid run


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "calibrate", help="run a profile several times and set its limits from the results"
    )
    profile_flags(command)
    bare_flag(command)
    command.add_argument("--runs", type=int, default=_RUNS, help=f"valid ones, default {_RUNS}")
    command.add_argument(
        "--from",
        dest="finished",
        nargs="+",
        type=Path,
        default=[],
        metavar="RESULTS",
        help="use these finished runs instead of new ones",
    )
    command.add_argument("--out", type=Path, help="instead of the profile's own expect.yaml")
    command.set_defaults(do=_calibrate)


def _calibrate(flags: argparse.Namespace) -> ExitCode:
    if not flags.finished and flags.runs < FEWEST_RUNS:
        raise ProfileError([f"--runs {flags.runs}: must be at least {FEWEST_RUNS}"])
    profile = load_profile(flags.profile, flags.profiles, flags.set, flags.seed)
    folders = flags.finished or _run_all(flags, profile)
    runs = [Measured(read_summary(folder), read_bare(folder)) for folder in folders]
    found = calibrate(flags.profile, profile.gates, runs)
    out = flags.out or flags.profiles / flags.profile / "expect.yaml"
    out.write_text(expectations_text(found, [run.summary for run in runs]))
    for each in found:
        say(_limit_line(each))
    say(f"wrote {out}")
    return ExitCode.PASS


def _run_all(flags: argparse.Namespace, profile: Profile) -> list[Path]:
    """Run the profile's plan until enough runs are valid, at most twice as often.

    Each gets a bare run if the profile limits a ratio to one.
    """
    bare = any(gate.ratio_to == "bare" for gate in profile.gates)
    folders: list[Path] = []
    for number in range(1, _TRIES * flags.runs + 1):
        say(f"run {number}: {len(folders)} of {flags.runs} are valid")
        outcome = run_once(replace(run_options(flags), bare=bare))
        print_verdicts(outcome)
        if outcome.interrupted:
            raise _Interrupted(flags.results, len(folders))
        if outcome.summary.verdict == "error":
            raise _BrokenRun(outcome.exit_code, outcome.folder, len(folders))
        if outcome.summary.verdict != "invalid":
            folders.append(outcome.folder)
        if len(folders) == flags.runs:
            return folders
    raise _TooFewValid(flags.results, len(folders), _TRIES * flags.runs)


class _BrokenRun(LoaddriverError):
    """A run broke off, so no limits can be set."""

    def __init__(self, exit_code: ExitCode, folder: Path, good: int) -> None:
        self.exit_code = exit_code
        super().__init__(f"{folder.name} broke off; {_no_limit(folder.parent, good)}")


class _TooFewValid(LoaddriverError):
    """Too many runs were invalid, as on a machine that others use."""

    exit_code = ExitCode.INVALID_RUN

    def __init__(self, results: Path, good: int, tries: int) -> None:
        super().__init__(f"{tries - good} of {tries} runs were invalid; {_no_limit(results, good)}")


class _Interrupted(LoaddriverError):
    """The user interrupted the series."""

    exit_code = ExitCode.INTERRUPTED

    def __init__(self, results: Path, good: int) -> None:
        super().__init__(_no_limit(results, good))


def _no_limit(results: Path, good: int) -> str:
    return f"no limit was set; {results} has {good} valid runs, which can be used with --from"


def _limit_line(each: Calibrated) -> str:
    limit = f"{each.gate.op} {format_number(each.limit)} {each.gate.unit}"
    if each.kept:
        return f"  {each.gate.name}: {limit}, kept: {each.kept}"
    return f"  {each.gate.name}: {limit}, was {format_number(each.gate.limit)}"
