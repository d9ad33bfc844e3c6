"""End whatever a run left behind: processes that carry its marker, directories that bear it.

Standard library only: the warden must start fast and need nothing that a broken run broke.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

RUN_VARIABLE = "BIGFLEET_RUN"
MARKER_FILE = ".bigfleet-run"

_SCAN_PAUSE_SECONDS = 0.05
# A child between fork and exec still shows its parent's environment; a later scan sees its own.
_EMPTY_SCANS_TO_BE_SURE = 2


@dataclass(frozen=True)
class Account:
    """What cleaning found: processes ended and left, directories removed and left alone."""

    ended: int
    survivors: tuple[int, ...]
    removed: int
    refused: tuple[Path, ...]

    def sentence(self, run_id: str) -> str:
        """One line for people."""
        parts = [f"{self.ended} left-over processes ended", f"{self.removed} directories removed"]
        if self.survivors:
            parts.append(f"could not end processes {', '.join(map(str, self.survivors))}")
        if self.refused:
            parts.append(f"left alone: {', '.join(map(str, self.refused))}")
        return f"run {run_id} cleaned up: {'; '.join(parts)}"


def clean(run_id: str, directories: Sequence[Path], deadline_seconds: float) -> Account:
    """End the run's processes, then remove its directories.

    A directory without the run's marker file is left alone, and so are all of them while a
    process that may still write there survives.
    """
    ended, survivors = end_processes(run_id, deadline_seconds)
    present = [directory for directory in directories if directory.exists()]
    removable = [d for d in present if not survivors and bears_marker(d, run_id)]
    for directory in removable:
        shutil.rmtree(directory, ignore_errors=True)
    gone = [directory for directory in removable if not directory.exists()]
    refused = tuple(directory for directory in present if directory not in gone)
    return Account(ended, survivors, len(gone), refused)


def bears_marker(directory: Path, run_id: str) -> bool:
    """Say whether a directory was made by this run."""
    try:
        return (directory / MARKER_FILE).read_text().strip() == run_id
    except OSError:
        return False


def end_processes(run_id: str, deadline_seconds: float) -> tuple[int, tuple[int, ...]]:
    """Kill until none is left: how many processes ended, and which were still there at the end."""
    deadline = time.monotonic() + deadline_seconds
    seen: set[int] = set()
    empty_scans = 0
    alive: tuple[int, ...] = ()
    while empty_scans < _EMPTY_SCANS_TO_BE_SURE and time.monotonic() < deadline:
        alive = tuple(_killed(run_id))
        seen.update(alive)
        empty_scans = 0 if alive else empty_scans + 1
        time.sleep(_SCAN_PAUSE_SECONDS)
    return len(seen - set(alive)), alive


def _killed(run_id: str) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid() and _kill_if_marked(int(entry), run_id):
            yield int(entry)


def _kill_if_marked(pid: int, run_id: str) -> bool:
    # The descriptor comes first: it keeps meaning the process whose environment is then read.
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries_marker(pid, run_id):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except PermissionError:
        return True
    finally:
        os.close(descriptor)


def _carries_marker(pid: int, run_id: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{RUN_VARIABLE}={run_id}".encode() in environment.split(b"\0")
