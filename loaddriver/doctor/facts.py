"""What `loaddriver doctor` finds out about a machine. What cannot be known is null."""

from __future__ import annotations

import msgspec

SCHEMA = "bigfleet.doctor/v1"


class Facts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of all parts."""


class Cpu(Facts, frozen=True, kw_only=True):
    """`cores` may be used by this process; its quota is worth `quota_cores`, null without one."""

    processor: str
    cores: int
    quota_cores: float | None

    @property
    def effective_cores(self) -> float:
        """The cores that a run can keep busy."""
        return self.cores if self.quota_cores is None else min(self.cores, self.quota_cores)


class Memory(Facts, frozen=True, kw_only=True):
    """Bytes of the machine, free ones, and those that cgroups leave (null without a limit)."""

    total_bytes: int
    available_bytes: int
    cgroup_left_bytes: int | None

    @property
    def free_bytes(self) -> int:
        """What a run can use."""
        left = self.cgroup_left_bytes
        return self.available_bytes if left is None else min(self.available_bytes, left)


class Clock(Facts, frozen=True, kw_only=True):
    """The kernel's clock source, and whether a time service steers the clock."""

    source: str
    synchronised: bool | None


class Disk(Facts, frozen=True, kw_only=True):
    """A folder's file system, and seconds until a small append has been synchronised to it."""

    path: str
    file_system: str
    free_bytes: int
    syncs: int
    sync_p50_seconds: float | None
    sync_p99_seconds: float | None
    sync_max_seconds: float | None


class Limits(Facts, frozen=True, kw_only=True):
    """Limits of this process and of the kernel; ports are those that the kernel hands out."""

    open_files: int | None
    open_files_hard: int | None
    inotify_instances: int | None
    inotify_watches: int | None
    ports: int | None
    ports_in_use: int | None


class Noise(Facts, frozen=True, kw_only=True):
    """What became of a fixed task that was repeated for some seconds.

    A `spread` is the standard deviation of the logarithm of the task's durations of about a
    second: by the clock, and by the CPU time that it took. Shares are 0 to 1: `others_share` of the
    machine's CPU was used by other processes or withheld by a hypervisor, which alone withheld
    `stolen_share`; in `throttled_share` of a quota's periods it was used up; for `wait_share` of
    the time the task was ready and had no core. With a quota, CPU of others says nothing and
    `others_share` is null. `busiest` names processes that used most.
    """

    seconds: float
    task_cpu_seconds: float
    elapsed_spread: float
    cpu_spread: float
    others_share: float | None
    stolen_share: float
    throttled_share: float
    wait_share: float
    clock_step_max_seconds: float | None
    busiest: str


class Machine(Facts, frozen=True, kw_only=True):
    """All of it; `data` is where clusters keep their state during a run."""

    cpu: Cpu
    memory: Memory
    clock: Clock
    data: Disk
    results: Disk
    limits: Limits
    noise: Noise
