"""`loaddriver gates`: what each gate of a profile would let pass, by the last run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from loaddriver.commands.common import print_table
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.history.record import VALID
from loaddriver.judge.gates import OPERATOR_WORDS, GateResult, format_number, judge_gates
from loaddriver.judge.schema import Summary
from loaddriver.judge.sensitivity import least_regression
from loaddriver.profile.gates import load_gates
from loaddriver.profile.loading import PROFILES
from loaddriver.report.results import read_bare, read_summary
from loaddriver.run.folder import finished_runs


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "gates", help="print each gate's limit, its last value, and the least regression that fails"
    )
    command.add_argument("profile", help="a folder below --profiles")
    command.add_argument("--profiles", type=Path, default=PROFILES, metavar="DIR")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.set_defaults(do=_gates)


def _gates(flags: argparse.Namespace) -> ExitCode:
    limits = load_gates(flags.profiles / flags.profile / "expect.yaml")
    folder, summary = _last_run(flags.results, flags.profile)
    bare = read_bare(folder)
    to_plain = msgspec.to_builtins
    found = judge_gates(to_plain(summary), limits, None if bare is None else to_plain(bare))
    print(f"measured by {summary.run.id} ({summary.verdict})")
    lines = [("GATE", "LIMIT", "LAST VALUE", "FAILS AT"), *map(_line, found)]
    print_table(lines)
    return ExitCode.PASS


def _last_run(results: Path, profile: str) -> tuple[Path, Summary]:
    """The newest valid run of a profile that this build can read. Raises ProfileError."""
    for run in reversed(finished_runs(results)):
        if run.profile == profile and run.verdict in VALID:
            try:
                return run.folder, read_summary(run.folder)
            except ProfileError:
                continue  # of another schema
    raise ProfileError(
        [
            f"{results} has no valid run of {profile} that this build can read; "
            f"run it first: loaddriver run {profile}"
        ]
    )


def _line(gate: GateResult) -> tuple[str, ...]:
    last = "-" if gate.value is None else format_number(gate.value)
    limit = f"{OPERATOR_WORDS[gate.op]} {format_number(gate.limit)} {gate.unit}"
    return gate.name, limit, last, least_regression(gate)
