"""What goes wrong in a simulated world, and how often."""

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
    """Chances in 0..1 per occasion; all 0 is a healthy world.

    Of a call to the provider: `request_lost`, `answer_lost`, and `request_late` (the caller gives
    up, the request arrives `LATE_SECONDS` later all the same). Of a machine: `stock_out` when it is
    bought, `boot_failure`, `drain_failure`. Of an operator: `bootstrap_refused`,
    `reclaim_unanswered`. Of a roll-up: `rollup_stale` repeats the one before, `rollup_empty`
    forgets everything. Of a write to a disk: `disk_full` refuses it, and at a `crash_at_write` its
    process dies. Of a write of the coordinator's: `commit_unanswered`, done or not.
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
        """Nothing goes wrong any more."""
        for each in fields(self):
            setattr(self, each.name, 0.0)


LATE_SECONDS = 7.0


@dataclass
class Delays:
    """Seconds that things take, each drawn evenly from its range."""

    call: tuple[float, float] = (0.0, 0.0)
    boot: tuple[float, float] = (0.0, 0.0)
    eviction: tuple[float, float] = (0.0, 0.0)
    answer: tuple[float, float] = (0.0, 0.0)


class FaultInjector:
    """Draws faults and delays from one seeded source; the order of asking is part of the seed.

    `forced` holds (fault, machine id): each of these strikes once for certain. What is `broken`
    never works. `injected` counts what has happened, by fault.
    """

    def __init__(
        self, seed: int, faults: FaultRates, delays: Delays, broken: PermanentFaults
    ) -> None:
        self.faults, self.delays, self.broken = faults, delays, broken
        self.forced: set[tuple[str, str]] = set()
        self.injected: Counter[str] = Counter()
        self._random = random.Random(seed)

    def occurs(self, fault: str) -> bool:
        """Whether `fault`, a field of Faults, happens this time."""
        chance: float = getattr(self.faults, fault)
        occurs = chance > 0 and self._random.random() < chance
        self.injected[fault] += occurs
        return occurs

    def fails(self, fault: str, machine: Machine) -> None:
        """HostFailure when `fault` happens to the machine this time, by chance or by doom, and
        always where it is broken for good.
        """
        forced = (fault, machine.id) in self.forced
        self.forced.discard((fault, machine.id))
        certain = self.broken.fails(fault, machine) or forced
        if certain or self.occurs(fault):
            self.injected[fault] += certain
            raise HostFailure(f"{fault.replace('_', ' ')} of {machine.id}, as the seed has it")

    async def delay(self, what: str) -> None:
        """Let `what`, a field of Delays, take its time."""
        least, most = getattr(self.delays, what)
        if most > 0:
            await asyncio.sleep(self._random.uniform(least, most))

    def uniform(self, least: float, most: float) -> float:
        """Seconds between the two."""
        return self._random.uniform(least, most)
