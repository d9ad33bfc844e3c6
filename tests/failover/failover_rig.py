"""A coordinator of three under load, faults of its leader, and how long nobody could write."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from bigfleet.adapters.coordinator.client import LeaderClient
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import Unavailable
from tests.support.fake_shard import FakeShard, many_shortfalls
from tests.support.replicas import ReplicaProcess, Replicas

KEY = "topology.bigfleet/rack"
# What a caller that cares waits for one replica before it asks the next.
_CALL_SECONDS = 0.3
_SHARDS = 3
_TIMEOUT_SECONDS = 30.0
_BETWEEN_FAULTS_SECONDS = 0.3


@dataclass
class Writes:
    """Every acknowledged write, and when each began and was acknowledged (monotonic seconds)."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    times: list[tuple[float, float]] = field(default_factory=list)
    failed: int = 0

    def first_since(self, moment: float) -> float | None:
        """When the first write that began after `moment` was acknowledged."""
        found = None
        for began, ended in reversed(self.times):
            if began < moment:
                break
            found = ended
        return found


class Load:
    """A writer that rests `write_seconds` after each write, and shards that report."""

    def __init__(self, replicas: Replicas, write_seconds: float = 0.02) -> None:
        self.replicas, self.writes = replicas, Writes()
        self._write_seconds = write_seconds
        self.shards = [FakeShard(f"s{n}", port=7780 + n) for n in range(_SHARDS)]
        for shard in self.shards:
            shard.shortfalls = many_shortfalls(100)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Load]:
        """Load inside the `async with`; what breaks in it breaks the test."""
        async with contextlib.AsyncExitStack() as closing:
            clients = [
                await closing.enter_async_context(self.client())
                for _ in range(len(self.shards) + 1)
            ]
            for shard, client in zip(self.shards, clients, strict=False):
                await shard.report_once(client, _TIMEOUT_SECONDS)
            tasks = [
                asyncio.create_task(shard.keep_reporting(client, 10 * self._write_seconds))
                for shard, client in zip(self.shards, clients, strict=False)
            ]
            tasks.append(asyncio.create_task(self._write(clients[-1])))
            try:
                yield self
                for task in tasks:
                    if task.done():
                        task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)

    def client(self) -> LeaderClient:
        return LeaderClient(self.replicas.addresses(), call_seconds=_CALL_SECONDS)

    async def _write(self, client: LeaderClient) -> None:
        number = 0
        while True:
            number += 1
            name, shard = f"d{number}", self.shards[number % len(self.shards)].shard_id
            request = wire.AssignDomainRequest(
                topology_key=KEY, topology_value=name, shard_id=shard
            )
            began = time.monotonic()
            try:
                await client.call("AssignDomain", request, _TIMEOUT_SECONDS)
            except Unavailable:
                self.writes.failed += 1
                continue
            self.writes.times.append((began, time.monotonic()))
            self.writes.acknowledged[name] = shard
            await asyncio.sleep(self._write_seconds)

    async def lost(self, client: LeaderClient) -> list[str]:
        """Acknowledged writes that are not there any more."""
        acknowledged = dict(self.writes.acknowledged)
        request = wire.ListDomainAssignmentsRequest()
        answer = await client.call("ListDomainAssignments", request, _TIMEOUT_SECONDS)
        there = {row.topology_value: row.shard_id for row in answer.assignments}
        return [name for name, shard in acknowledged.items() if there.get(name) != shard]


@dataclass(frozen=True)
class Fault:
    """What is done to a leader, and undone once another has taken over."""

    name: str
    strike: Callable[[ReplicaProcess], None]
    heal: Callable[[ReplicaProcess], None]


def _kill_etcd(replica: ReplicaProcess) -> None:
    replica.etcd().kill()


def _pause_etcd(replica: ReplicaProcess) -> None:
    replica.etcd().suspend()


def _resume_etcd(replica: ReplicaProcess) -> None:
    replica.etcd().resume()


FAULTS: Sequence[Fault] = (
    Fault("coordinator killed", lambda r: r.send(signal.SIGKILL), lambda _: None),
    Fault("etcd killed", _kill_etcd, lambda _: None),
    Fault(
        "coordinator paused",
        lambda r: r.send(signal.SIGSTOP),
        lambda r: r.send(signal.SIGCONT),
    ),
    Fault("etcd paused", _pause_etcd, _resume_etcd),
)


@dataclass(frozen=True)
class Outage:
    """How long it took from the fault until a write that was sent after it was acknowledged."""

    fault: str
    seconds: float


async def strike(load: Load, fault: Fault) -> Outage:
    """Hit the leader once, wait for the next accepted write, heal, and let all come back."""
    async with LeaderClient(load.replicas.addresses()) as client:
        await client.call("ListShards", wire.ListShardsRequest(), _TIMEOUT_SECONDS)
        leader = load.replicas.at(client.leader)
        struck = time.monotonic()
        fault.strike(leader)
        accepted = await _next_write(load, struck)
        fault.heal(leader)
        await asyncio.to_thread(_recover, load.replicas, leader)
        lost = await load.lost(client)
        assert not lost, f"after {fault.name}: acknowledged and gone: {lost[:5]}"
    await asyncio.sleep(_BETWEEN_FAULTS_SECONDS * (1 + random.random()))
    return Outage(fault.name, accepted - struck)


async def _next_write(load: Load, moment: float) -> float:
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        while (accepted := load.writes.first_since(moment)) is None:  # noqa: ASYNC110 - a bound wait
            await asyncio.sleep(0.005)
    return accepted


def _recover(replicas: Replicas, struck: ReplicaProcess) -> None:
    """Start again what was killed, as a host would; wait until every replica knows a leader."""
    struck.start_again()
    replicas.wait_until_ready()


def quantile(values: Sequence[float], level: float) -> float:
    """The smallest value that at least this share does not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * level) - 1]


def summary(outages: Sequence[Outage]) -> list[str]:
    """The distribution, by fault and in all, in a Markdown table."""
    lines = ["| fault | times | p50 | p95 | max |", "|---|---|---|---|---|"]
    for name in (*dict.fromkeys(outage.fault for outage in outages), "all"):
        values = [o.seconds for o in outages if name in (o.fault, "all")]
        cells = (quantile(values, 0.5), quantile(values, 0.95), max(values))
        cells_text = " | ".join(f"{cell:.3f} s" for cell in cells)
        lines.append(f"| {name} | {len(values)} | {cells_text} |")
    return lines
