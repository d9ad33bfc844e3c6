"""The faults and delays of a simulated world."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, fields

from bigfleet.model.machine import Machine
from bigfleet.ports.host import HostFailure
from bigfleet.simulation.runtime.permanent_faults import PermanentFaults


@dataclass
class FaultRates:
    """Probabilities in 0..1 per occasion; all 0 is a healthy world.

    For a call to the provider: `request_lost`, `answer_lost`, and `request_late` (the caller times
    out, and the request still arrives `LATE_SECONDS` later). For a machine: `stock_out` when it is
    purchased, `boot_failure`, `drain_failure`. For an operator: `bootstrap_refused`,
    `reclaim_unanswered`. For a roll-up: `rollup_stale` repeats the previous one, `rollup_empty`
    has no needs. For a write to a disk: `disk_full` rejects it, `crash_at_write` crashes its
    process. For a write of the coordinator: `commit_unanswered`, committed or not.
    """

    request_lost: float = 0.0
    answer_lost: float = 0.0
    request_late: float = 0.0
    stock_out: float = 0.0
    boot_failure: float = 0.0
    drain_failure: float = 0.0
    bootstrap_refused: float = 0.0
    reclaim_unanswered: float = 0.0
    rollup_stale: float = 0.0
    rollup_empty: float = 0.0
    disk_full: float = 0.0
    crash_at_write: float = 0.0
    commit_unanswered: float = 0.0

    def heal(self) -> None:
        """Set all probabilities to 0."""
        for each in fields(self):
            setattr(self, each.name, 0.0)


LATE_SECONDS = 7.0


@dataclass
class Delays:
    """Durations in seconds, each drawn uniformly from its range."""

    call: tuple[float, float] = (0.0, 0.0)
    boot: tuple[float, float] = (0.0, 0.0)
    eviction: tuple[float, float] = (0.0, 0.0)
    answer: tuple[float, float] = (0.0, 0.0)


class FaultInjector:
    """Draws faults and delays from one seeded source; results depend on the order of calls.

    `forced` holds (fault, machine id), each of which happens once. `broken` are permanent faults.
    `injected` counts faults by name.
    """

    def __init__(
        self, seed: int, faults: FaultRates, delays: Delays, broken: PermanentFaults
    ) -> None:
        self.faults, self.delays, self.broken = faults, delays, broken
        self.forced: set[tuple[str, str]] = set()
        self.injected: Counter[str] = Counter()
        self._random = random.Random(seed)

    def occurs(self, fault: str) -> bool:
        """Whether `fault`, a field of FaultRates, happens this time."""
        chance: float = getattr(self.faults, fault)
        occurs = chance > 0 and self._random.random() < chance
        self.injected[fault] += occurs
        return occurs

    def fails(self, fault: str, machine: Machine) -> None:
        """HostFailure if `fault` happens to the machine this time: drawn, forced or permanent."""
        forced = (fault, machine.id) in self.forced
        self.forced.discard((fault, machine.id))
        certain = self.broken.fails(fault, machine) or forced
        if certain or self.occurs(fault):
            self.injected[fault] += certain
            raise HostFailure(f"{fault.replace('_', ' ')} of {machine.id} (injected fault)")

    async def delay(self, what: str) -> None:
        """Wait for `what`, a field of Delays."""
        least, most = getattr(self.delays, what)
        if most > 0:
            await asyncio.sleep(self._random.uniform(least, most))

    def uniform(self, least: float, most: float) -> float:
        """A number drawn uniformly from the range."""
        return self._random.uniform(least, most)
