"""The on-disk cache of binaries by version and platform; installs are atomic."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from controlplane.errors import BinaryError
from controlplane.pins import CHANGES, MODULES_DIRECTORY, Module
from controlplane.platforms import Platform

# Longer than the slowest build; a lock ends with its process.
LOCK_DEADLINE_SECONDS = 3600.0

_LOCK_POLL_SECONDS = 0.2
_DIGEST_DIGITS = 12
_OWN_SOURCES = ("main.go", CHANGES)


def cached_path(root: Path, module: Module, component: str, platform: Platform) -> Path:
    """The path of an installed component.

    A program of this repository's own, or one with changes of its own, is known by them too, as its
    version is that of the module which it is made of.
    """
    own = MODULES_DIRECTORY / module.name
    sources = [path for name in _OWN_SOURCES if (path := own / name).is_file()]
    source = "".join(f"-{_digest(path)}" for path in sources)
    return root / f"{component}-{module.version}{source}-{platform}" / component


@cache
def _digest(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()[:_DIGEST_DIGITS]


@contextmanager
def disk_errors_as_binary_errors(root: Path) -> Iterator[None]:
    """Convert OSError (disk full, read-only, no permission) to a one-line BinaryError."""
    try:
        yield
    except OSError as error:
        raise BinaryError(
            f"the cache {root} cannot be used: {error.strerror or error} "
            f"({error.filename or root}); fix it, or give another cache directory"
        ) from error


def install(staged: Path, target: Path) -> None:
    """Move a staged binary of the same file system to its target atomically."""
    with staged.open("rb") as file:
        os.fsync(file.fileno())
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(staged, target)


@contextmanager
def staging_directory(root: Path, module: Module) -> Iterator[Path]:
    """A temporary directory on the cache's file system.

    Removes those of killed processes first, so the caller must hold the module's lock.
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
    """Hold the lock on a module's binaries across processes."""
    activity = f"installing {', '.join(module.components)}"
    with file_lock(root / f"{module.name}.lock", activity, progress, interval_seconds):
        yield


@contextmanager
def file_lock(
    path: Path,
    activity: str,
    progress: Callable[[str], None],
    interval_seconds: float,
) -> Iterator[None]:
    """Hold a lock file; `activity` ("installing etcd") describes the holder in messages.

    Reports progress every interval_seconds while another process holds it. Raises BinaryError
    after LOCK_DEADLINE_SECONDS.
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
                "find it with `fuser`, end it, and try again"
            )
        if waited_seconds >= next_line_seconds:
            progress(
                f"waiting for another process that is {activity}: {waited_seconds:.0f} s elapsed"
            )
            next_line_seconds += interval_seconds
        time.sleep(_LOCK_POLL_SECONDS)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
