"""The temporary data directory of a run: in memory if possible, marked, swept if orphaned."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.reaper.cleanup import MARKER_FILE, CleanupReport, clean

_SHARED_MEMORY = Path("/dev/shm")
REQUIRED_BYTES = 2 << 30
"""Several etcds with their logs and snapshots; a container's default 64 MiB is too small."""
_SWEEP_DEADLINE_SECONDS = 10.0
# Used in paths, socket names (at most 107 bytes) and an environment variable.
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


class DataDirectory:
    """A directory with its run's marker file, which is locked during the run."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor

    @classmethod
    def create(cls, run_id: str, root: Path) -> DataDirectory:
        """Make `<root>/bigfleet-<uid>-<run id>`. Raises SubstrateError."""
        if not _RUN_ID.fullmatch(run_id):
            raise SubstrateError(
                f"run id {run_id!r} must be 1 to 60 letters, digits, dots, dashes or underscores"
            )
        path = root / f"{_prefix()}{run_id}"
        try:
            path.mkdir(mode=0o700)
            return cls(path, _locked_marker(path, run_id))
        except OSError as error:
            raise SubstrateError(
                f"cannot make the data directory {path}: {error.strerror}"
            ) from error

    def discard(self) -> None:
        """Remove it if nothing was started in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Unlock the marker, so that a sweep may remove the directory."""
        os.close(self.descriptor)


def data_roots() -> tuple[Path, ...]:
    """Candidate parents of data directories, best first."""
    return (_SHARED_MEMORY, Path(tempfile.gettempdir()))


def root_with_space(roots: Sequence[Path]) -> Path:
    """The first root that is writable and has enough space. Raises SubstrateError."""
    for root in roots:
        if _writable(root) and shutil.disk_usage(root).free >= REQUIRED_BYTES:
            return root
    raise SubstrateError(
        f"not enough space for the clusters' data: {' and '.join(map(str, roots))} "
        f"must offer {REQUIRED_BYTES >> 30} GiB free; free some space"
    )


def _writable(root: Path) -> bool:
    return root.is_dir() and os.access(root, os.W_OK | os.X_OK)


def sweep(roots: Sequence[Path]) -> list[tuple[str, CleanupReport]]:
    """Clean up after this user's runs without runner and reaper, by run id."""
    return [
        (run_id, clean(run_id, [path], _SWEEP_DEADLINE_SECONDS))
        for root in roots
        for path, run_id in _orphans(root)
    ]


def _orphans(root: Path) -> Iterator[tuple[Path, str]]:
    for path in root.glob(f"{_prefix()}*"):
        run_id = path.name.removeprefix(_prefix())
        if _marker_is_unlocked(path):
            yield path, run_id


def _marker_is_unlocked(path: Path) -> bool:
    try:
        descriptor = os.open(path / MARKER_FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


def _locked_marker(path: Path, run_id: str) -> int:
    # Locked before it is renamed: a sweep never sees an unlocked marker of a live run.
    draft = path / f"{MARKER_FILE}.draft"
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, run_id.encode())
    draft.rename(path / MARKER_FILE)
    return descriptor


def _prefix() -> str:
    return f"bigfleet-{os.getuid()}-"
