"""Errors that end a run early, and the exit codes they map to.

Each class carries its exit code, so that the command line needs one `except` and scripts can
tell the causes apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of the process; 4 and 7 are those of comparisons."""

    PASS = 0
    HARNESS_BUG = 1
    USAGE = 2
    GATE_MISSED = 3
    REGRESSION = 4
    INVALID_RUN = 5
    INFRASTRUCTURE = 6
    NOT_ENOUGH_DATA = 7
    INTERRUPTED = 130


class LoaddriverError(Exception):
    """The base class of all errors shown to users; its text is the whole message."""

    exit_code = ExitCode.HARNESS_BUG


class ProfileError(LoaddriverError):
    """A profile, catalog, expectation file or override is invalid.

    `problems` holds one line per mistake, all that were found, so that a file can be fixed in one
    round.
    """

    exit_code = ExitCode.USAGE

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class InfrastructureError(LoaddriverError):
    """This machine, or a component that the run depends on, failed or is insufficient."""

    exit_code = ExitCode.INFRASTRUCTURE


class LoadProcessError(InfrastructureError):
    """The load process did not start, or exited early."""


class LoadTimeoutError(LoadProcessError):
    """The load process is alive, and did not do something in time."""
