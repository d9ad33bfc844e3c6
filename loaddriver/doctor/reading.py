"""Reads what does not change within seconds: resources, limits, clock source, file systems."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from loaddriver.doctor.facts import Clock, Cpu, Disk, Limits, Memory
from loaddriver.run.cgroups import memory_left
from loaddriver.run.cpu_quota import CpuQuota, find_quotas

_CLOCK_SOURCE = "devices/system/clocksource/clocksource0/current_clocksource"
_KIBIBYTE = 1024
# struct timex of Linux has 208 bytes; the state TIME_ERROR means that nothing steers the clock.
_TIMEX_BYTES, _TIME_ERROR = 208, 5
_SYNCS, _SYNC_SECONDS, _APPENDED_BYTES = 200, 2.0, 4096


@dataclass(frozen=True)
class Roots:
    """Where the kernel's files are."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")

    def quotas(self) -> tuple[CpuQuota, ...]:
        """The CPU quotas that limit this process."""
        return find_quotas(self.sys / "fs/cgroup", self.proc / "self/cgroup")


def read_cpu(roots: Roots, cores: int) -> Cpu:
    """The processor, and how much of it this process may use; `cores` are those it may run on."""
    lines = (_text(roots.proc / "cpuinfo") or "").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found = [quota.cores for quota in roots.quotas()]
    return Cpu(
        processor=names[0] if names else "unknown",
        cores=cores,
        quota_cores=min((each for each in found if each is not None), default=None),
    )


def read_memory(roots: Roots) -> Memory:
    """The memory of the machine, and what limits leave of it."""
    lines = (_text(roots.proc / "meminfo") or "").splitlines()
    sizes = {name: int(rest.split()[0]) for name, _, rest in (x.partition(":") for x in lines)}
    return Memory(
        total_bytes=_KIBIBYTE * sizes.get("MemTotal", 0),
        available_bytes=_KIBIBYTE * sizes.get("MemAvailable", 0),
        cgroup_left_bytes=memory_left(roots.sys / "fs/cgroup", roots.proc / "self/cgroup"),
    )


def read_clock(roots: Roots, synchronised: bool | None) -> Clock:
    """The clock's source; whether it is steered is asked of the kernel (`clock_synchronised`)."""
    source = (_text(roots.sys / _CLOCK_SOURCE) or "unknown").strip()
    return Clock(source=source, synchronised=synchronised)


def clock_synchronised() -> bool | None:
    """Whether the kernel believes that its clock is right; None if it does not tell."""
    try:
        call = ctypes.CDLL(None, use_errno=True).adjtimex
    except (OSError, AttributeError):
        return None
    state: int = call(ctypes.create_string_buffer(_TIMEX_BYTES))
    return None if state < 0 else state != _TIME_ERROR


def read_limits(roots: Roots) -> Limits:
    """The limits that runs have met."""
    soft, hard = _open_files(roots)
    ports = (_text(roots.proc / "sys/net/ipv4/ip_local_port_range") or "").split()
    return Limits(
        open_files=soft,
        open_files_hard=hard,
        inotify_instances=_number(roots.proc / "sys/fs/inotify/max_user_instances"),
        inotify_watches=_number(roots.proc / "sys/fs/inotify/max_user_watches"),
        ports=int(ports[1]) - int(ports[0]) + 1 if len(ports) == 2 else None,
        ports_in_use=_sockets_in_use(roots),
    )


Sync = Callable[[Path], Sequence[float]]
"""Appends to a new file in a folder and synchronises it, repeatedly; the seconds of each time."""


def read_disk(path: Path, roots: Roots, sync: Sync, free_bytes: int) -> Disk:
    """A folder's file system, and how long it takes to synchronise an append to it."""
    times = sorted(sync(path))
    return Disk(
        path=str(path),
        file_system=_file_system(path.resolve(), roots),
        free_bytes=free_bytes,
        syncs=len(times),
        sync_p50_seconds=_rank(times, 0.5),
        sync_p99_seconds=_rank(times, 0.99),
        sync_max_seconds=times[-1] if times else None,
    )


def sync_times(folder: Path) -> list[float]:
    """The seconds of each of at most 200 synchronised appends of 4 KiB, within two seconds."""
    found: list[float] = []
    with TemporaryFile(dir=folder, prefix=".doctor-") as file:
        ends = time.monotonic() + _SYNC_SECONDS
        while len(found) < _SYNCS and time.monotonic() < ends:
            began = time.monotonic()
            os.write(file.fileno(), bytes(_APPENDED_BYTES))
            os.fdatasync(file.fileno())
            found.append(time.monotonic() - began)
    return found


def _rank(ordered: Sequence[float], level: float) -> float | None:
    return ordered[min(len(ordered) - 1, int(level * len(ordered)))] if ordered else None


def _file_system(path: Path, roots: Roots) -> str:
    """The type of the innermost mount that holds a path."""
    best, kind = -1, "unknown"
    for line in (_text(roots.proc / "self/mounts") or "").splitlines():
        _, where, found, *_ = line.split(" ")
        mount = Path(where.replace("\\040", " "))
        if path.is_relative_to(mount) and len(mount.parts) >= best:
            best, kind = len(mount.parts), found
    return kind


def _open_files(roots: Roots) -> tuple[int | None, int | None]:
    for line in (_text(roots.proc / "self/limits") or "").splitlines():
        if line.startswith("Max open files"):
            soft, hard = (int(each) if each.isdecimal() else None for each in line.split()[3:5])
            return soft, hard
    return None, None


def _sockets_in_use(roots: Roots) -> int | None:
    for line in (_text(roots.proc / "net/sockstat") or "").splitlines():
        if line.startswith("TCP: inuse "):
            words = line.split()
            return int(words[2]) + int(words[words.index("tw") + 1])
    return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return None if text is None else int(text)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="surrogateescape")  # names of files may be any bytes
    except OSError:
        return None
