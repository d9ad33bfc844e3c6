"""Everything that can end a run early, by whose fault it is.

Each class carries the exit code that its kind of failure stands for, so that
the command line needs one `except` and scripts can tell the kinds apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """What the process's exit status says about a run."""

    PASS = 0
    HARNESS_BUG = 1
    USAGE = 2
    GATE_MISSED = 3
    REGRESSION = 4
    INVALID_RUN = 5
    INFRASTRUCTURE = 6
    INTERRUPTED = 130


class LoaddriverError(Exception):
    """The root of what the harness says to people; its text is the whole message."""

    exit_code = ExitCode.HARNESS_BUG


class ProfileError(LoaddriverError):
    """A profile, catalog, expectation or override asks for something impossible.

    `problems` holds one line each, all that were found: fixing a file should
    take one round, not one round per mistake.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class InfrastructureError(LoaddriverError):
    """This machine or a part the run stands on cannot do its share."""

    exit_code = ExitCode.INFRASTRUCTURE


class LoadProcessError(InfrastructureError):
    """The process that plays the load did not start, or ended on its own."""
