"""`loaddriver runs`: lists finished runs, and pins those that are never removed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from loaddriver.commands.common import print_table
from loaddriver.errors import ExitCode
from loaddriver.report import formatting
from loaddriver.run.folder import FinishedRun, finished_runs, set_pinned

_REVISION_DIGITS = 12


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser("runs", help="list finished runs; pin those to be kept")
    command.add_argument("--results", type=Path, default=Path("results"), metavar="DIR")
    command.set_defaults(do=_list)
    actions = command.add_subparsers(metavar="ACTION")
    for name, text in (
        ("pin", "keep runs for good: no later run removes them"),
        ("unpin", "let later runs remove them once they are old"),
    ):
        action = actions.add_parser(name, help=text)
        action.add_argument("runs", nargs="+", metavar="RUN", help="as `loaddriver runs` prints it")
        action.set_defaults(do=_pin, pinned=name == "pin")


def _list(flags: argparse.Namespace) -> ExitCode:
    found = finished_runs(flags.results)
    if not found:
        print(f"no finished runs in {flags.results}")
        return ExitCode.PASS
    lines = [("RUN", "VERDICT", "STARTED", "REVISION", "MIB", ""), *map(_line, found)]
    print_table(lines)
    return ExitCode.PASS


def _pin(flags: argparse.Namespace) -> ExitCode:
    for name in flags.runs:
        set_pinned(flags.results, name, pinned=flags.pinned)
        print(f"{name} is {'pinned' if flags.pinned else 'no longer pinned'}")
    return ExitCode.PASS


def _line(run: FinishedRun) -> tuple[str, ...]:
    revision = run.revision[:_REVISION_DIGITS] + ("+" if run.revision.endswith("+") else "")
    return (
        run.folder.name,
        run.verdict or "unreadable",
        formatting.moment(run.started_unix_seconds),
        revision or "-",
        f"{run.size_bytes() / 2**20:.1f}",
        "pinned" if run.pinned else "",
    )
