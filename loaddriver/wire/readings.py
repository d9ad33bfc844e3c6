"""What shards say of themselves while a fleet is played: each cycle by itself."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from loaddriver.substrates.base import Endpoint

_EVERY_SECONDS = 0.25
_CYCLES, _CYCLE_SECONDS, _DECISION_SECONDS = (
    "bigfleet_shard_cycle_duration_seconds_count",
    "bigfleet_shard_cycle_duration_seconds_sum",
    "bigfleet_shard_decision_cpu_seconds_sum",
)
_SHORT, _MACHINES = "bigfleet_shard_shortfalls", "bigfleet_shard_inventory_machines"
_SESSIONS, _DOMAINS = "bigfleet_shard_active_sessions", "bigfleet_shard_owned_domains"
_NEEDS = "bigfleet_shard_demand_needs"
_NAMES = (
    *(_CYCLES, _CYCLE_SECONDS, _DECISION_SECONDS),
    *(_SHORT, _MACHINES, _SESSIONS, _DOMAINS, _NEEDS),
)
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)
_IN_SERVICE = 'state="CONFIGURED"'

Sample = Mapping[tuple[str, str], float]


@dataclass
class ShardReadings:
    """One shard's. Times are of the monotonic clock, in seconds."""

    name: str
    last: Sample = field(default_factory=dict)
    #: seconds of each cycle, and CPU seconds of its decision; a mean where two ended in one reading
    cycle_seconds: list[float] = field(default_factory=list)
    decision_cpu_seconds: list[float] = field(default_factory=list)
    #: when it did not answer, and then the first cycle of the process that came back
    silent_since: float | None = None
    first_cycles: list[float] = field(default_factory=list)

    def total(self, name: str, labels: str = "") -> float:
        """The sum over the last reading's samples with these `labels`."""
        return sum(
            value for (n, with_), value in self.last.items() if n == name and labels in with_
        )

    def note(self, sample: Sample, now: float) -> None:
        """Take in a reading."""
        before, self.last = self.last, sample
        then, ended = (each.get((_CYCLES, ""), 0.0) for each in (before, sample))
        if self.silent_since is not None or ended < then:  # another process
            if ended:
                self.first_cycles.append(now)
                self.silent_since = None
            return
        if cycles := int(ended - then):
            for name, found in (
                (_CYCLE_SECONDS, self.cycle_seconds),
                (_DECISION_SECONDS, self.decision_cpu_seconds),
            ):
                spent = sample.get((name, ""), 0.0) - before.get((name, ""), 0.0)
                found += [spent / cycles] * cycles

    def note_silence(self, now: float) -> None:
        """Note that the shard does not answer."""
        self.silent_since = self.silent_since or now


class FleetReadings:
    """Reads all shards several times a second; more are added when they join."""

    def __init__(self, shards: Sequence[Endpoint]) -> None:
        self._endpoints = {shard.name: shard for shard in shards}
        self.shards = {shard.name: ShardReadings(shard.name) for shard in shards}

    def add(self, shard: Endpoint) -> None:
        """Read this shard, too."""
        self._endpoints[shard.name] = shard
        self.shards[shard.name] = ShardReadings(shard.name)

    def total(self, name: str, labels: str = "") -> float:
        """The sum over all shards."""
        return sum(shard.total(name, labels) for shard in self.shards.values())

    @property
    def all_decide(self) -> bool:
        """Whether every shard has decided at least once."""
        return all(shard.total(_CYCLES) for shard in self.shards.values())

    @property
    def in_service(self) -> int:
        """Machines that are in service."""
        return int(self.total(_MACHINES, _IN_SERVICE))

    @property
    def machines(self) -> int:
        """Machines that shards own."""
        return int(self.total(_MACHINES))

    @property
    def needs(self) -> int:
        """Needs of which decisions are made."""
        return int(self.total(_NEEDS))

    @property
    def short(self) -> int:
        """Needs that lack machines."""
        return int(self.total(_SHORT))

    @property
    def sessions(self) -> int:
        """Sessions as shards count them."""
        return int(self.total(_SESSIONS))

    def domains(self) -> dict[str, int]:
        """How many domains each shard owns."""
        return {name: int(shard.total(_DOMAINS)) for name, shard in self.shards.items()}

    def forget_cycles(self) -> None:
        """Begin anew with cycles: the soak's are to be known alone."""
        for shard in self.shards.values():
            shard.cycle_seconds.clear()
            shard.decision_cpu_seconds.clear()

    def cycles(self) -> Iterator[tuple[float, float]]:
        """Seconds and decision's CPU seconds of each cycle since `forget_cycles`."""
        for shard in self.shards.values():
            yield from zip(shard.cycle_seconds, shard.decision_cpu_seconds, strict=True)

    async def read(self, on_reading: Callable[[], None] = lambda: None) -> None:
        """Read until cancelled."""
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await asyncio.gather(*(self._read(session, name) for name in [*self.shards]))
                on_reading()
                await asyncio.sleep(_EVERY_SECONDS)

    async def _read(self, session: aiohttp.ClientSession, name: str) -> None:
        url = f"http://{self._endpoints[name].observe}/metrics"
        try:
            async with session.get(url, params=[("name[]", each) for each in _NAMES]) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.shards[name].note_silence(time.monotonic())
            return
        found = _SAMPLE.findall(text)
        sample = {(metric, labels): float(value) for metric, labels, value in found}
        self.shards[name].note(sample, time.monotonic())
