"""`loaddriver history`: keeps a line for each run, draws them, and holds a run against them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from loaddriver.commands.common import say
from loaddriver.compare.sequential import Spending
from loaddriver.errors import ExitCode, ProfileError
from loaddriver.history.check import check
from loaddriver.history.files import History, append, path_of, read_history
from loaddriver.history.page import render_history
from loaddriver.history.record import Line, line_of
from loaddriver.history.terminal import drawing
from loaddriver.report.manifest import MANIFEST, is_sealed
from loaddriver.report.results import check_unchanged, read_pods, read_summary

_COLUMNS = 80


def add(commands: Any) -> None:
    """Register the command."""
    command = commands.add_parser(
        "history",
        help="draw a profile over revisions; `add` a run to them, or `check` it against them",
    )
    command.add_argument(
        "words",
        nargs="+",
        metavar="PROFILE | add RESULTS ... | check RESULTS",
        help="a profile to draw; or what to do with folders of finished runs. `check`: exit code "
        "0 if as good as the stored runs, 4 if worse, 7 if these are too few",
    )
    command.add_argument("--history", type=Path, default=Path("history"), metavar="DIR")
    command.add_argument("--html", type=Path, metavar="FILE", help="draw on a page as well")
    command.set_defaults(do=_history)


def _history(flags: argparse.Namespace) -> ExitCode:
    first, *rest = flags.words
    folders = [Path(word) for word in rest]
    if first == "add" and folders:
        return _add(flags.history, folders)
    if first == "check" and len(folders) == 1:
        return _check(flags.history, folders[0])
    if folders or first in ("add", "check"):
        raise ProfileError(["give a profile; or add and folders; or check and one folder"])
    return _draw(flags.history, first, flags.html)


def _add(history: Path, folders: Sequence[Path]) -> ExitCode:
    lines = [_line(folder) for folder in folders]
    for line in lines:
        done = "added to" if append(history, line) else "is already in"
        say(f"{line.run}: {done} {path_of(history, line)}")
    return ExitCode.PASS


def _check(history: Path, folder: Path) -> ExitCode:
    run = _line(folder)
    if not run.is_valid:
        raise ProfileError([f"{run.run}: its verdict is {run.verdict}, so it measured nothing"])
    stored = read_history(history, run.profile)
    if stored.bad:
        raise ProfileError([*map(str, stored.bad), "repair these lines, or remove them"])
    found = check(run, stored.lines, Spending().least_effect)
    for sentence in found.sentences:
        print("\n".join(wrap(sentence, _COLUMNS, subsequent_indent="  ")))
    word = {ExitCode.PASS: "SAME OR BETTER", ExitCode.REGRESSION: "REGRESSION"}
    print(f"{word.get(found.exit_code, 'NOT ENOUGH DATA')} {run.run}")
    return found.exit_code


def _line(folder: Path) -> Line:
    """The line of a results folder whose files are as its run left them."""
    summary = read_summary(folder)
    if not is_sealed(folder):
        raise ProfileError(
            [f"{folder}: no {MANIFEST} that can be read: are these files its run's?"]
        )
    check_unchanged(folder)
    return line_of(summary, read_pods(folder))


def _draw(folder: Path, profile: str, page: Path | None) -> ExitCode:
    history = read_history(folder, profile)
    for bad in history.bad:
        say(f"left out: {bad}")
    if not history.lines:
        raise ProfileError(
            [f"{folder / profile}: no runs; add one with `loaddriver history add RESULTS`"]
        )
    print("\n\n".join(_drawings(history, profile)))
    if page is not None:
        page.write_text(render_history(profile, history))
        say(f"drawn on {page}")
    return ExitCode.USAGE if history.bad else ExitCode.PASS


def _drawings(history: History, profile: str) -> list[str]:
    machines = dict.fromkeys(line.machine.id for line in history.lines)
    return [
        "\n".join(drawing(profile, machine, history.of_machine(machine))) for machine in machines
    ]
