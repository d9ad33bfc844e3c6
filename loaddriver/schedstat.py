"""How long processes waited for a core, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def wait_seconds(pid: int, proc: Path = _PROC) -> float:
    """How long a process's main thread has been ready to run and had no core; 0 if unknown.

    Unknown if it has exited, or if the kernel does not count it.
    """
    try:
        return int((proc / str(pid) / "schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
