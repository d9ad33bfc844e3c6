"""CPU that others took while we measured: other processes of this machine, and its hypervisor."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

# Of version 2 of control groups, and of version 1.
_QUOTAS = (Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
_NO_QUOTA = ("max", "-1")


@dataclass(frozen=True)
class CpuTimes:
    """Seconds of CPU since it started: those that somebody used, and all that there were.

    Time stolen by a hypervisor counts as used. Interrupts do not: on a machine that runs a fleet
    over loopback they are its own traffic, and no process's time either.
    """

    used: float
    all: float


def read_cpu_times() -> CpuTimes:
    """Of the CPUs that we may run on."""
    usable = os.sched_getaffinity(0)
    times = [each for number, each in enumerate(psutil.cpu_times(percpu=True)) if number in usable]
    used = sum(each.user + each.nice + each.system + each.steal for each in times)
    others = sum(each.idle + each.iowait + each.irq + each.softirq for each in times)
    return CpuTimes(used, used + others)


def other_cpu_share(before: CpuTimes, now: CpuTimes, our_seconds: float) -> float | None:
    """What neither was ours nor idle, of all CPU time between two readings, 0 to 1."""
    there = now.all - before.all
    if there <= 0:
        return None
    return max(0.0, now.used - before.used - our_seconds) / there


def unmeasurable_reason(quotas: Sequence[Path] = _QUOTAS) -> str:
    """Why it cannot be said what others take from us, or an empty text.

    With a quota, the CPUs that we see are not ours to use, and what others use of them is not
    taken from us.
    """
    for path in quotas:
        try:
            limited = path.read_text().split()[0] not in _NO_QUOTA
        except (OSError, IndexError):
            continue
        if limited:
            return "this container has a quota of CPU time"
    return ""
