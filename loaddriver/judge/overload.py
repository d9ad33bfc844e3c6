"""Whose fault it is when a plan was not played as it is, or its effect not recorded as it was.

A late load, missing pods, failed requests and silent API servers have three possible causes: the
harness, other processes on the machine, or a system under test that is too slow. The first two
make the measurement invalid. The third is what the measurement is for: the system failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loaddriver.judge.check_limits import DRIVER_CORES, LOOP_COMPUTING
from loaddriver.judge.facts import HarnessHealth, InvalidReason
from loaddriver.record.cpu import CpuWindow

# What the harness should need; its limit is further out.
NORMAL_HARNESS_SHARE = 0.1
# What others may take before a slow system could be theirs: on average, and in any window.
LITTLE_SHARE, LITTLE_WINDOW_SHARE = 0.1, 0.25
# A harness that waited for a core for this share of some 10 s was starved of them.
STARVED_SHARE = 0.1
# Above this the sentence says that cores were the limit.
_FULL_SHARE = 0.85
_NAMED = 3


@dataclass(frozen=True)
class Attribution:
    """The reasons that make a run invalid, or the failures of the system under test."""

    invalid: tuple[str, ...]
    failures: tuple[str, ...]


def attribute(reasons: Sequence[InvalidReason], health: HarnessHealth | None) -> Attribution:
    """Attribute the reasons, all together: one that is not the system's makes the run invalid."""
    sentences = tuple(reason.sentence for reason in reasons)
    if not reasons or health is None or not all(reason.overload for reason in reasons):
        return Attribution(sentences, ())
    if not _harness_was_well(health) or not _others_took_little(health):
        return Attribution(sentences, ())
    starved = health.worst_driver_wait_share >= STARVED_SHARE
    if any(reason.starved for reason in reasons) and not starved:
        return Attribution(sentences, ())
    return Attribution((), (_overloaded(health), *sentences))


def _harness_was_well(health: HarnessHealth) -> bool:
    """Whether its cost was normal and none of its threads was saturated by its own work."""
    share = health.harness_cpu_share
    cores = health.busiest_driver_cores
    return (
        share is not None
        and share <= NORMAL_HARNESS_SHARE
        and cores <= DRIVER_CORES.maximum
        and health.loop_computing_max_seconds <= LOOP_COMPUTING.maximum
    )


def _others_took_little(health: HarnessHealth) -> bool:
    """Others, the other run of a pair, the hypervisor and a CPU quota; unknown is not little."""
    if health.others_unknown or not health.cpu.windows:
        return False
    whole, parts = health.cpu.whole, health.cpu.windows
    return (
        max(_not_the_runs(whole), whole.throttled_share) <= LITTLE_SHARE
        and max(map(_not_the_runs, parts)) <= LITTLE_WINDOW_SHARE
        and max(part.throttled_share for part in parts) <= LITTLE_WINDOW_SHARE
    )


def _not_the_runs(window: CpuWindow) -> float:
    """The share of the machine's CPU that others took, the other run of a pair included."""
    return window.others_share + window.other_run_share


def _overloaded(health: HarnessHealth) -> str:
    """The sentence that blames the system under test and says which processes took the CPU."""
    whole = health.cpu.whole
    busiest = max(health.cpu.windows, key=lambda window: window.busy_share)
    share = health.harness_cpu_share or 0.0
    cleared = (
        f"the harness used {_percent(share)} of the run's CPU and others "
        f"{_percent(whole.others_share)} of the machine's"
    )
    if busiest.busy_share < _FULL_SHARE:
        return (
            "Overloaded: the system under test did not keep up, though cores were idle (at most "
            f"{_percent(busiest.busy_share)} busy in 10 s); {cleared}."
        )
    users = largest(busiest.processes, busiest.machine.all)
    return (
        "Overloaded: the system under test did not keep up. In the busiest 10 s the machine was "
        f"{_percent(busiest.busy_share)} busy with {users}; {cleared}."
    )


def largest(used: Mapping[str, float], capacity_seconds: float) -> str:
    """The processes that used most CPU, with their shares of the machine's."""
    ordered = sorted(used.items(), key=lambda item: -item[1])[:_NAMED]
    return ", ".join(f"{name} {_percent(seconds / capacity_seconds)}" for name, seconds in ordered)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
