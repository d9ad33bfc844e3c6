"""The cache of binaries on disk: a binary in it is whole, and named by version and platform."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.errors import BinaryError
from controlplane.pins import Module, Platform

# Longer than the slowest build worth waiting for; a lock dies with its process.
LOCK_DEADLINE_SECONDS = 3600.0

_LOCK_POLL_SECONDS = 0.2


def cached_path(root: Path, module: Module, component: str, platform: Platform) -> Path:
    """Where a component lies once it is installed."""
    return root / f"{component}-{module.version}-{platform}" / component


@contextmanager
def disk_errors_as_binary_errors(root: Path) -> Iterator[None]:
    """Turns what the disk says (full, read-only, not ours) into one line for people."""
    try:
        yield
    except OSError as error:
        raise BinaryError(
            f"the cache {root} cannot be used: {error.strerror or error} "
            f"({error.filename or root}); put that right, or give another cache directory"
        ) from error


def install(staged: Path, target: Path) -> None:
    """Moves a staged binary of the same file system to its place, whole or not at all."""
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(staged, target)


@contextmanager
def staging_directory(root: Path, module: Module) -> Iterator[Path]:
    """A folder on the cache's file system that is gone afterwards.

    Folders that a killed process left are removed first; the caller must hold the module's lock.
    """
    prefix = f".staging-{module.name}-"
    for leftover in root.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def module_lock(
    root: Path,
    module: Module,
    progress: Callable[[str], None],
    interval_seconds: float,
) -> Iterator[None]:
    """Keeps other processes from getting the same module's binaries at the same time."""
    activity = f"getting {', '.join(module.components)}"
    with file_lock(root / f"{module.name}.lock", activity, progress, interval_seconds):
        yield


@contextmanager
def file_lock(
    path: Path,
    activity: str,
    progress: Callable[[str], None],
    interval_seconds: float,
) -> Iterator[None]:
    """Keeps other processes from `activity` the same at the same time.

    While another process holds it, says so every interval_seconds. Raises BinaryError when that
    takes longer than any build could.
    """
    with path.open("w", encoding="ascii") as file:
        _wait_for_lock(file.fileno(), activity, path, progress, interval_seconds)
        yield


def _wait_for_lock(
    descriptor: int,
    activity: str,
    path: Path,
    progress: Callable[[str], None],
    interval_seconds: float,
) -> None:
    started = time.monotonic()
    next_line_seconds = 0.0
    while not _try_lock(descriptor):
        waited_seconds = time.monotonic() - started
        if waited_seconds > LOCK_DEADLINE_SECONDS:
            raise BinaryError(
                f"another process has held {path} for {waited_seconds / 60:.0f} min: "
                "see what it is doing (`fuser` names it), end it, and try again"
            )
        if waited_seconds >= next_line_seconds:
            progress(
                f"waiting for another process that is {activity}: {waited_seconds:.0f} s so far"
            )
            next_line_seconds += interval_seconds
        time.sleep(_LOCK_POLL_SECONDS)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
