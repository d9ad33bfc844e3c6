"""What a machine's facts mean: what is wrong with it, which profiles it can measure, and how
large an effect must be for a comparison to find it. Pure.

A run's self-checks have the limits beyond which a run is invalid; a machine that exceeds them at
rest is refused for the same reasons, before an hour is spent on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np

from loaddriver.compare.sequential import LOOKS, Spending
from loaddriver.distributions import t_quantile
from loaddriver.doctor.facts import SCHEMA, Disk, Facts, Machine
from loaddriver.judge.check_limits import CLOCK_STEP, OTHERS_SHARE, THROTTLED_SHARE, CheckLimit
from loaddriver.profile.loading import Profile
from loaddriver.sizing.estimate import (
    CORES_MEASURED,
    HostCapacity,
    gibibytes,
    host_shortfalls,
    run_seconds,
)
from loaddriver.substrates.datadir import REQUIRED_BYTES

_POWER, _BISECTIONS = 0.95, 30
_NORMAL, _CHI_SPAN, _CHI_STEPS = NormalDist(), 8.0, 400
# Beyond this, waits that contain a synchronised write would be those of the disk.
_SLOW_SYNC_SECONDS = 0.05
_FEW_FILES, _FEW_PORTS = 4096, 2000
# What kind advises; several nodes on a default of 128 fail with "too many open files".
_KIND_INSTANCES = 512
_UNSTEADY_SOURCES = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")


class Finding(Facts, frozen=True, kw_only=True):
    """A sentence about the machine. With a `problem`, runs here are invalid or fail."""

    level: Literal["problem", "note"]
    sentence: str


class ProfileFit(Facts, frozen=True, kw_only=True):
    """Whether a profile's results mean something on this machine; `reason` says why not."""

    profile: str
    fits: bool
    minutes: float
    reason: str


class LeastEffect(Facts, frozen=True, kw_only=True):
    """The smallest increase, as a share, that so many pairs find with 95 % probability.

    For endpoints in elapsed time and in CPU time, were this machine's noise the only one.
    """

    pairs: int
    elapsed: float
    cpu: float


class Assessment(Facts, frozen=True, kw_only=True):
    """All that `loaddriver doctor` says."""

    schema: str = SCHEMA
    machine: Machine
    findings: list[Finding]
    profiles: list[ProfileFit]
    least_effects: list[LeastEffect]


def assess(machine: Machine, profiles: Sequence[Profile]) -> Assessment:
    """Judge a machine for these profiles."""
    problems = [Finding(level="problem", sentence=each) for each in _problems(machine)]
    effects = [_least_effect(machine, pairs) for pairs in LOOKS]
    notes = [Finding(level="note", sentence=each) for each in _notes(machine, effects[-1])]
    return Assessment(
        machine=machine,
        findings=[*problems, *notes],
        profiles=[_fit(profile, machine, bool(problems)) for profile in profiles],
        least_effects=effects,
    )


def _problems(machine: Machine) -> Iterator[str]:
    noise, cpu = machine.noise, machine.cpu
    if cpu.effective_cores < CORES_MEASURED:
        yield (
            f"A run can keep {_counted(cpu.effective_cores)} busy{_of_quota(machine)}, and the "
            f"load and the limits of all profiles are made for {CORES_MEASURED}; give it more."
        )
    if _exceeds(noise.others_share, OTHERS_SHARE):
        named = f" Those that used most: {noise.busiest}." if noise.busiest else ""
        yield (
            f"Other processes or the hypervisor took {noise.others_share:.0%} of the CPU in "
            f"{noise.seconds:.0f} s, and runs are invalid above {OTHERS_SHARE.maximum:.0%}.{named}"
        )
    if _exceeds(noise.throttled_share, THROTTLED_SHARE):
        yield (
            f"The CPU quota was used up in {noise.throttled_share:.0%} of its periods by one "
            f"process alone, and runs are invalid above {THROTTLED_SHARE.maximum:.0%}; raise it."
        )
    if _exceeds(noise.clock_step_max_seconds, CLOCK_STEP):
        yield (
            f"The clock was set by {noise.clock_step_max_seconds:.3f} s within "
            f"{noise.seconds:.0f} s, and runs are invalid above {CLOCK_STEP.maximum:g} s; have it "
            "slewed, not stepped."
        )
    if machine.data.free_bytes < REQUIRED_BYTES:
        yield (
            f"{machine.data.path} has the most room for the clusters' data, and that is "
            f"{gibibytes(machine.data.free_bytes)}; a run needs {gibibytes(REQUIRED_BYTES)}."
        )
    limit = machine.limits.open_files_hard
    if limit is not None and limit < _FEW_FILES:
        yield (
            f"A process may open {limit} files, and API servers need up to {_FEW_FILES}; raise "
            "the hard limit (ulimit -Hn)."
        )


def _notes(machine: Machine, best: LeastEffect) -> Iterator[str]:
    noise, limits = machine.noise, machine.limits
    wanted = Spending().least_effect - 1
    if max(best.elapsed, best.cpu) > wanted:
        yield (
            f"A fixed task varies so much that not even {best.pairs} pairs find an effect of "
            f"{wanted:.0%}, which comparisons look for."
        )
    if noise.stolen_share > 0.01:
        yield (
            f"The hypervisor withheld {noise.stolen_share:.0%} of the CPU: neighbours are busy, "
            "and waits vary with them."
        )
    if machine.cpu.quota_cores is not None:
        yield (
            f"A CPU quota of {_counted(machine.cpu.quota_cores)} stops all processes together when "
            "it is used up; a cpuset of whole cores measures better."
        )
    if machine.clock.synchronised is False:
        yield (
            "No time service steers the clock. Runs on one machine do not need one, but a first "
            "synchronisation during a run steps the clock and makes it invalid."
        )
    if machine.clock.source in _UNSTEADY_SOURCES:
        yield (
            f"The clock source is {machine.clock.source}, which is slow to read: choose tsc or the "
            "hypervisor's."
        )
    yield from _disk_note(machine.data)
    if limits.inotify_instances is not None and limits.inotify_instances < _KIND_INSTANCES:
        yield (
            f"fs.inotify.max_user_instances is {limits.inotify_instances}: enough for runs in "
            f"processes; with kind set it to {_KIND_INSTANCES}."
        )
    free = _free_ports(machine)
    if free is not None and free < _FEW_PORTS:
        yield (
            f"Only {free} ports are free (net.ipv4.ip_local_port_range): the connections of a "
            "large run may fail."
        )


def _disk_note(data: Disk) -> Iterator[str]:
    slow = data.sync_p99_seconds
    if slow is None or slow <= _SLOW_SYNC_SECONDS:
        return
    yield (
        f"Writes to {data.path}, where clusters keep their state, take {1000 * slow:.0f} ms to be "
        "synchronised, p99: what a shard or provider stores delays its decisions by as much."
    )


def _fit(profile: Profile, machine: Machine, has_problems: bool) -> ProfileFit:
    """By the same needs as preflight's."""
    host = HostCapacity(
        cores=machine.cpu.cores,
        memory_available_bytes=machine.memory.free_bytes,
        disk_free_bytes=machine.results.free_bytes,
    )
    lacking = [each.partition(";")[0] for each in host_shortfalls(profile, host)]
    return ProfileFit(
        profile=profile.name,
        fits=not lacking and not has_problems,
        minutes=round(run_seconds(profile.settings) / 60, 1),
        reason="; ".join(lacking) or ("see the problems above" if has_problems else ""),
    )


def _least_effect(machine: Machine, pairs: int) -> LeastEffect:
    noise = machine.noise
    return LeastEffect(
        pairs=pairs,
        elapsed=least_effect(noise.elapsed_spread, pairs),
        cpu=least_effect(noise.cpu_spread, pairs),
    )


def least_effect(spread: float, pairs: int) -> float:
    """The increase, as a share, that a comparison of so many pairs finds with 95 % probability.

    `spread` is the deviation of the logarithm of one run. A pair's ratio has that of two runs.
    """
    deviation = spread * math.sqrt(2)
    return round(math.expm1(_detectable(pairs) * deviation / math.sqrt(pairs)), 4)


@lru_cache(maxsize=64)
def _detectable(pairs: int) -> float:
    """The mean, in standard errors, whose t exceeds the critical value with 95 % probability."""
    critical = t_quantile(Spending().difference_error, pairs - 1)
    low, high = 0.0, 10 * critical
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _power(middle, critical, pairs - 1) > _POWER else (middle, high)
        )
    return high


def _power(shift: float, critical: float, degrees: int) -> float:
    """The probability that noncentral t exceeds `critical`: over all estimates of the deviation."""
    root = np.linspace(0, math.sqrt(degrees) + _CHI_SPAN, _CHI_STEPS)[1:]
    logs = (degrees - 1) * np.log(root) - root**2 / 2
    weights = np.exp(logs - logs.max())
    beyond = [_NORMAL.cdf(shift - critical * each / math.sqrt(degrees)) for each in root]
    return float(np.dot(weights, beyond) / weights.sum())


def _exceeds(value: float | None, limit: CheckLimit) -> bool:
    return value is not None and value > limit.maximum


def _counted(cores: float) -> str:
    return f"{cores:g} core{'s' * (cores != 1)}"


def _of_quota(machine: Machine) -> str:
    return "" if machine.cpu.quota_cores is None else " (its quota)"


def _free_ports(machine: Machine) -> int | None:
    limits = machine.limits
    if limits.ports is None or limits.ports_in_use is None:
        return None
    return limits.ports - limits.ports_in_use
