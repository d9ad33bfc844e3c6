"""CPU used while the load ran, in windows of ten seconds: by the run, by others, and withheld.

An average hides a window in which the run got no CPU at all, so limits apply to windows too. Pure;
`loaddriver.run.cpu_reader` takes the readings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from loaddriver.load.files import LOCUST, LOCUST_WORKERS

WINDOW_SECONDS = 10.0
# What remains at the end is added to the last window if it is shorter than this.
_MIN_WINDOW_SECONDS = 5.0
# Other processes are kept by name only if they used this share of a window's CPU.
_NAMED_SHARE = 0.01

RUNNER = "runner"
PROVIDER = "provider"
"""Of several providers each is `provider-NAME`."""


def is_driver(process: str) -> bool:
    """Whether a process is the harness's own: the runner, or one of those that play the load."""
    return process in (RUNNER, LOCUST) or process.startswith(LOCUST_WORKERS)


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds since boot: those in use, all, and those that a hypervisor withheld.

    Withheld time counts as used. Interrupts do not: on a machine that runs a fleet over loopback
    they are the run's own traffic, and belong to no process.
    """

    used: float
    all: float
    stolen: float = 0.0


@dataclass(frozen=True)
class QuotaPeriods:
    """The enforcement periods of a cgroup's CPU quota so far, and those in which it was used up."""

    elapsed: int
    throttled: int


@dataclass(frozen=True)
class CpuReading:
    """CPU seconds so far, at one moment of the monotonic clock.

    `run_seconds` is of all processes of the run, `processes` of each by its name, and
    `other_run_seconds` of the run that a comparison plays at the same time. `others` has other
    processes by command and process id. `waits` has the seconds that the main threads of
    the harness's own processes were ready to run and had no core. `quotas` are those that limit
    this process.
    """

    at_seconds: float
    machine: CpuTimes
    run_seconds: float
    processes: Mapping[str, float]
    others: Mapping[str, float] = field(default_factory=dict)
    waits: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, QuotaPeriods] = field(default_factory=dict)
    other_run_seconds: float = 0.0


@dataclass(frozen=True)
class CpuWindow:
    """CPU seconds within a window; `others` names other processes that used much of it.

    `throttled_share` is the share of a quota's periods in which it was used up, 0 to 1. `waits` are
    the seconds that the harness's own processes waited for a core.
    """

    seconds: float
    machine: CpuTimes
    run_seconds: float
    processes: Mapping[str, float]
    others: Mapping[str, float] = field(default_factory=dict)
    throttled_share: float = 0.0
    waits: Mapping[str, float] = field(default_factory=dict)
    other_run_seconds: float = 0.0

    @property
    def others_share(self) -> float:
        """The share of the machine's CPU used by other processes or withheld, 0 to 1."""
        return other_cpu_share(self.machine, self.run_seconds + self.other_run_seconds) or 0.0

    @property
    def other_run_share(self) -> float:
        """The share of the machine's CPU used by the run that is played at the same time."""
        return self.other_run_seconds / self.machine.all if self.machine.all else 0.0

    @property
    def busy_share(self) -> float:
        """The share of the machine's CPU in use, 0 to 1."""
        return self.machine.used / self.machine.all if self.machine.all else 0.0

    def cores(self, name: str) -> float:
        """How many cores this process of the run kept busy."""
        return self.processes.get(name, 0.0) / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class RemoteUse:
    """What components that are no processes of this machine used, CPU in seconds, by name.

    Memory is the largest of a few readings. Nothing is known of those that are `unknown`.
    """

    cpu_seconds: Mapping[str, float] = field(default_factory=dict)
    peak_memory_bytes: Mapping[str, int] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True)
class CpuUse:
    """The CPU used while the load ran, and the peak memory of each of the run's processes.

    `remote` is of those on other machines or in pods, of which windows do not tell.
    `run_peak_memory_bytes` is of all processes at one moment, without pages of files; None if some
    are remote.
    """

    windows: Sequence[CpuWindow]
    peak_memory_bytes: Mapping[str, int] = field(default_factory=dict)
    remote: RemoteUse = RemoteUse()
    run_peak_memory_bytes: int | None = None

    @property
    def whole(self) -> CpuWindow:
        """All windows as one, with remote processes. If these are all known, the run's CPU is that
        of all its processes.
        """
        whole, remote = total(self.windows), self.remote
        processes = {**whole.processes, **remote.cpu_seconds}
        known = bool(remote.cpu_seconds) and not remote.unknown
        run_seconds = sum(processes.values()) if known else whole.run_seconds
        return replace(whole, processes=processes, run_seconds=run_seconds)

    @property
    def worst_driver_wait_share(self) -> float:
        """The largest share of a window that runner or load waited for a core, 0 to 1."""
        waited = ((part, seconds) for part in self.windows for seconds in part.waits.values())
        return max((seconds / part.seconds for part, seconds in waited), default=0.0)

    @property
    def busiest_driver_cores(self) -> float:
        """The most cores that one of the harness's own processes kept busy in one window."""
        used = (
            part.cores(name) for part in self.windows for name in part.processes if is_driver(name)
        )
        return max(used, default=0.0)


def other_cpu_share(elapsed: CpuTimes, run_seconds: float) -> float | None:
    """The share of CPU time that others used, 0 to 1; None if no time has passed.

    Rounding may make the run's own time the larger one.
    """
    return max(0.0, elapsed.used - run_seconds) / elapsed.all if elapsed.all > 0 else None


def windows(readings: Sequence[CpuReading]) -> tuple[CpuWindow, ...]:
    """The windows between successive readings; a short last one is added to the one before."""
    if len(readings) > 2 and _gap(readings[-2], readings[-1]) < _MIN_WINDOW_SECONDS:
        readings = [*readings[:-2], readings[-1]]
    return tuple(_window(before, now) for before, now in pairwise(readings))


def total(parts: Sequence[CpuWindow]) -> CpuWindow:
    """Successive windows as one; the throttled share is their mean by length."""
    seconds = sum(part.seconds for part in parts)
    throttled = sum(part.throttled_share * part.seconds for part in parts)
    return CpuWindow(
        seconds=seconds,
        machine=CpuTimes(
            sum(part.machine.used for part in parts),
            sum(part.machine.all for part in parts),
            sum(part.machine.stolen for part in parts),
        ),
        run_seconds=sum(part.run_seconds for part in parts),
        processes=_summed([part.processes for part in parts]),
        others=_summed([part.others for part in parts]),
        throttled_share=throttled / seconds if seconds else 0.0,
        waits=_summed([part.waits for part in parts]),
        other_run_seconds=sum(part.other_run_seconds for part in parts),
    )


def _gap(before: CpuReading, now: CpuReading) -> float:
    return now.at_seconds - before.at_seconds


def _window(before: CpuReading, now: CpuReading) -> CpuWindow:
    machine = CpuTimes(
        now.machine.used - before.machine.used,
        now.machine.all - before.machine.all,
        now.machine.stolen - before.machine.stolen,
    )
    others = _used(before.others, now.others)
    return CpuWindow(
        seconds=_gap(before, now),
        machine=machine,
        run_seconds=now.run_seconds - before.run_seconds,
        processes=_used(before.processes, now.processes),
        others={name: used for name, used in others.items() if used > _NAMED_SHARE * machine.all},
        throttled_share=_throttled_share(before.quotas, now.quotas),
        waits=_used(before.waits, now.waits),
        other_run_seconds=now.other_run_seconds - before.other_run_seconds,
    )


def _used(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    """The CPU used between two readings; a process that started in between used all of its own."""
    used = {name: seconds - before.get(name, 0.0) for name, seconds in now.items()}
    return {name: seconds for name, seconds in used.items() if seconds > 0}


def _throttled_share(before: Mapping[str, QuotaPeriods], now: Mapping[str, QuotaPeriods]) -> float:
    """The share of the strictest of all quotas."""
    shares = [0.0]
    for name, periods in now.items():
        since = before.get(name, QuotaPeriods(0, 0))
        elapsed = periods.elapsed - since.elapsed
        if elapsed > 0:
            shares.append((periods.throttled - since.throttled) / elapsed)
    return max(shares)


def _summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: sum(part.get(name, 0.0) for part in parts) for name in names}
