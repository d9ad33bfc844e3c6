"""What to do when a run has ended, by its exit code."""

from __future__ import annotations

from collections.abc import Mapping

from loaddriver.errors import ExitCode

NEXT_STEPS: Mapping[ExitCode, str] = {
    ExitCode.PASS: "",
    ExitCode.HARNESS_BUG: "Next: report it with the folder {folder}; it is no result.",
    ExitCode.USAGE: "Next: change what is named above; nothing was started.",
    ExitCode.GATE_MISSED: (
        "Next: see in the report where the time went; to judge by other limits: "
        "loaddriver judge {folder} --expect FILE"
    ),
    ExitCode.REGRESSION: "Next: see in the report which hop became slower.",
    ExitCode.INVALID_RUN: (
        "Next: run it again with this machine for itself, or with less load (--set); it is no "
        "result, good or bad."
    ),
    ExitCode.INFRASTRUCTURE: (
        "Next: read the log that is named above, put that right and run it again; it is no result."
    ),
    ExitCode.INTERRUPTED: "Next: nothing, all is cleaned up; the report shows what was played.",
}
"""Sentences for people; `{folder}` is where the results lie."""
