"""The cgroups that hold this process, of version 1 or 2, and the memory that they leave it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")
# Names of the files of version 2 and 1: limit, use, and the share of it that can be dropped.
_MEMORY_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
# Version 1 has no word for "no limit", but the largest number of whole pages.
_UNLIMITED_BYTES = 1 << 60


def cgroup_folders(
    controller: str, root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS
) -> Iterator[Path]:
    """The folders of this process's cgroups of a controller, innermost first, some twice.

    In a container, the paths may be those of the host: not every folder exists.
    """
    try:
        lines = own.read_text(errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        top = root / controller if controllers else root
        inner = top / path.lstrip("/")
        yield from (inner, *(parent for parent in inner.parents if parent.is_relative_to(top)))
    yield from (root, root / controller)


def memory_left(root: Path = CGROUP_ROOT, own: Path = OWN_CGROUPS) -> int | None:
    """The bytes that this process may still use under the strictest memory limit around it.

    None without a limit. Files in the page cache count as free, as they are dropped first.
    """
    found = map(_left_in, dict.fromkeys(cgroup_folders("memory", root, own)))
    return min((left for left in found if left is not None), default=None)


def _left_in(folder: Path) -> int | None:
    for limit_file, used_file, droppable in _MEMORY_FILES:
        try:
            limit = int((folder / limit_file).read_text())
            used = int((folder / used_file).read_text())
            counted = dict(map(str.split, (folder / "memory.stat").read_text().splitlines()))
        except (OSError, ValueError):  # of the other version; or "max", which is no limit
            continue
        if limit < _UNLIMITED_BYTES:
            return max(0, limit - max(0, used - int(counted.get(droppable, 0))))
    return None
