"""A made-up machine: kernel files in a folder, and a clock that the fixed task advances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loaddriver.doctor.canary import Instruments, run_canary
from loaddriver.doctor.facts import Disk, Machine
from loaddriver.doctor.reading import Roots, read_clock, read_cpu, read_limits, read_memory
from loaddriver.record.cpu import RUNNER, CpuReading, CpuTimes
from loaddriver.run.cpu_quota import read_quotas

GIBIBYTE = 2**30
TASK_SECONDS = 0.1
CALM: Mapping[str, str] = {
    "proc/cpuinfo": "processor\t: 0\nmodel name\t: Example 9000\n",
    "proc/meminfo": "MemTotal:       25165824 kB\nMemFree: 5 kB\nMemAvailable:   20971520 kB\n",
    "proc/self/cgroup": "0::/\n",
    "proc/self/limits": (
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max processes             96000                96000                processes\n"
        "Max open files            1024                 1048576              files\n"
    ),
    "proc/self/mounts": "overlay / overlay rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n",
    "proc/net/sockstat": "sockets: used 90\nTCP: inuse 27 orphan 0 tw 3 alloc 30 mem 1\n",
    "proc/sys/fs/inotify/max_user_instances": "512\n",
    "proc/sys/fs/inotify/max_user_watches": "524288\n",
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
}
QUOTA = {"sys/fs/cgroup/cpu.max": "100000 100000\n"}


def write(root: Path, files: Mapping[str, str]) -> Roots:
    """Put files below a folder."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return Roots(root / "proc", root / "sys")


@dataclass
class MadeUpMachine:
    """Each repetition of the task takes `TASK_SECONDS` of CPU, and longer by the clock.

    `slowness` are factors of successive repetitions' durations, over and over. Of the machine's
    CPU, `others` and `stolen` are used by a neighbour process and by the hypervisor. With a
    `throttled` share, that part of the quota's periods is used up. The clock is set by `step`
    seconds once.
    """

    root: Path
    files: Mapping[str, str] = field(default_factory=dict)
    cores: int = 2
    slowness: tuple[float, ...] = (1.0,)
    others: float = 0.0
    stolen: float = 0.0
    throttled: float = 0.0
    step: float = 0.0
    now: float = 0.0
    cpu: float = 0.0
    done: int = 0

    def __post_init__(self) -> None:
        self.roots = write(self.root, {**CALM, **self.files})
        self._count_periods()

    def task(self) -> float:
        """Do the fixed work once."""
        self.now += TASK_SECONDS * self.slowness[self.done % len(self.slowness)]
        self.cpu += TASK_SECONDS
        self.done += 1
        self._count_periods()
        return TASK_SECONDS

    def read(self) -> CpuReading:
        """The kernel's counts so far."""
        everything = self.cores * self.now
        stolen, others = self.stolen * everything, self.others * everything
        return CpuReading(
            at_seconds=self.now,
            machine=CpuTimes(self.cpu + stolen + others, everything, stolen),
            run_seconds=self.cpu,
            processes={RUNNER: self.cpu},
            others={"make (7)": others},
            waits={RUNNER: self.now - self.cpu},
            quotas=read_quotas(self.roots.quotas()),
        )

    def examined(self) -> Machine:
        """What the doctor finds out about it."""
        by = Instruments(
            read_cpu=self.read,
            task=self.task,
            monotonic=lambda: self.now,
            clock_offset=lambda: self.step if self.done > 50 else 0.0,
        )
        return Machine(
            cpu=read_cpu(self.roots, self.cores),
            memory=read_memory(self.roots),
            clock=read_clock(self.roots, synchronised=True),
            data=disk("/dev/shm", "tmpfs"),
            results=disk("/results", "ext4"),
            limits=read_limits(self.roots),
            noise=run_canary(by, has_quota=bool(self.roots.quotas())),
        )

    def _count_periods(self) -> None:
        periods = int(10 * self.now)
        throttled = f"nr_throttled {int(self.throttled * periods)}\nthrottled_usec 0\n"
        write(self.root, {"sys/fs/cgroup/cpu.stat": f"nr_periods {periods}\n{throttled}"})


def disk(path: str, file_system: str, sync_seconds: float = 0.002) -> Disk:
    """A file system with room for any small run."""
    return Disk(
        path=path,
        file_system=file_system,
        free_bytes=100 * GIBIBYTE,
        syncs=200,
        sync_p50_seconds=sync_seconds / 2,
        sync_p99_seconds=sync_seconds,
        sync_max_seconds=2 * sync_seconds,
    )
