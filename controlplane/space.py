"""Whether the disk has room for a build, asked before the minutes are spent."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from controlplane.errors import BinaryError

_GIBIBYTE = 1 << 30


def _existing(path: Path) -> Path:
    """The nearest folder that is there: a cache is often made by its first use."""
    while not path.exists():
        path = path.parent
    return path


def device_of(path: Path) -> int:
    """The file system that `path` lies on, or will lie on once it is made."""
    return os.stat(_existing(path)).st_dev


def free_bytes_at(path: Path) -> int:
    """What that file system has free."""
    return shutil.disk_usage(_existing(path)).free


def require_space(
    purpose: str,
    needs_bytes: Mapping[Path, int],
    device: Callable[[Path], int] = device_of,
    free_bytes: Callable[[Path], int] = free_bytes_at,
) -> None:
    """Raises BinaryError if some file system has less free than what falls to it.

    needs_bytes is by directory; directories on one file system share its free space.
    """
    by_device: dict[int, list[Path]] = {}
    for directory in needs_bytes:
        by_device.setdefault(device(directory), []).append(directory)
    for directories in by_device.values():
        needed = sum(needs_bytes[directory] for directory in directories)
        free = free_bytes(directories[0])
        if free < needed:
            raise BinaryError(
                f"too little disk space for {purpose}: it needs {needed / _GIBIBYTE:.1f} GiB, "
                f"{free / _GIBIBYTE:.1f} GiB is free where {_listed(directories)} "
                f"{'lies' if len(directories) == 1 else 'lie'}: free some, or give a directory "
                "that already has the binaries"
            )


def _listed(directories: list[Path]) -> str:
    return " and ".join(str(directory) for directory in directories)
