"""Clean up after a run: processes and directories with its marker.

Standard library only: the reaper must start fast and not depend on a broken environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

RUN_VARIABLE = "BIGFLEET_RUN"
MARKER_FILE = ".bigfleet-run"
# The run's command to remove resources without a marker, such as containers.
REMOVAL_FILE = ".bigfleet-removal"

_SCAN_PAUSE_SECONDS = 0.05
_REMOVAL_SECONDS = 180.0
# Between fork and exec a child has its parent's environment; a later scan sees its own.
_EMPTY_SCANS_TO_BE_SURE = 2


@dataclass(frozen=True)
class CleanupReport:
    """The result of a cleanup: processes ended and surviving, directories removed and kept."""

    ended: int
    survivors: tuple[int, ...]
    removed: int
    refused: tuple[Path, ...]

    def sentence(self, run_id: str) -> str:
        """The report as one line."""
        parts = [f"{self.ended} left-over processes ended", f"{self.removed} directories removed"]
        if self.survivors:
            parts.append(f"could not end processes {', '.join(map(str, self.survivors))}")
        if self.refused:
            parts.append(f"kept: {', '.join(map(str, self.refused))}")
        return f"run {run_id} cleaned up: {'; '.join(parts)}"


def clean(run_id: str, directories: Sequence[Path], deadline_seconds: float) -> CleanupReport:
    """End the run's processes, run its cleanup command, then remove its directories.

    Directories without the run's marker file are kept; so are all of them if a process survives,
    and one whose cleanup command failed.
    """
    ended, survivors = end_processes(run_id, deadline_seconds)
    present = [directory for directory in directories if directory.exists()]
    marked = [d for d in present if not survivors and has_marker(d, run_id)]
    removable = [directory for directory in marked if removal_done(directory)]
    for directory in removable:
        shutil.rmtree(directory, ignore_errors=True)
    gone = [directory for directory in removable if not directory.exists()]
    refused = tuple(directory for directory in present if directory not in gone)
    return CleanupReport(ended, survivors, len(gone), refused)


def removal_file(directory: Path, part: str = "") -> Path:
    """The file with the cleanup command of a part of the run, or of the run itself."""
    return directory / (f"{REMOVAL_FILE}-{part}" if part else REMOVAL_FILE)


def write_removal(
    directory: Path, command: Sequence[str], environment: Mapping[str, str], part: str = ""
) -> None:
    """Record a cleanup command for other resources of a run; it must be idempotent.

    Those of parts run in the order of their names, after the run's own.
    """
    draft = directory / f".draft{removal_file(directory, part).name}"
    draft.touch(mode=0o600)
    draft.write_text(json.dumps({"command": list(command), "environment": dict(environment)}))
    draft.rename(removal_file(directory, part))


def removal_done(directory: Path) -> bool:
    """Run the directory's cleanup commands, if any; return whether nothing remains to be done.

    Commands in a directory that others can write to are not trusted and not run.
    """
    recorded = sorted(directory.glob(f"{REMOVAL_FILE}*"))
    if recorded and not _is_private(directory):
        return False
    failed = [file for file in recorded if not _succeeds(file)]  # one failure must not stop others
    return not failed


def _succeeds(recorded: Path) -> bool:
    left = json.loads(recorded.read_text())
    try:
        ended = subprocess.run(
            left["command"],
            env=left["environment"],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=_REMOVAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return ended.returncode == 0


def _is_private(directory: Path) -> bool:
    status = directory.stat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def has_marker(directory: Path, run_id: str) -> bool:
    """Whether a directory has this run's marker."""
    try:
        return (directory / MARKER_FILE).read_text().strip() == run_id
    except OSError:
        return False


def end_processes(run_id: str, deadline_seconds: float) -> tuple[int, tuple[int, ...]]:
    """Kill all marked processes; return the number of ended ones, and the survivors."""
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
    # Open the pidfd first, so that it refers to the process whose environment is read.
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _process_has_marker(pid, run_id):
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except PermissionError:
        return True
    finally:
        os.close(descriptor)


def _process_has_marker(pid: int, run_id: str) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{RUN_VARIABLE}={run_id}".encode() in environment.split(b"\0")
