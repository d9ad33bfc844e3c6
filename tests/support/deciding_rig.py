"""Roll-ups taken and decided about by all parts of a shard, one after the other, without a wire."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.adapters.store.eviction_file import EvictionFile
from bigfleet.adapters.store.removal_file import RemovalFile
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2, shardread_pb2
from bigfleet.engine.checks.invariants import violations
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import Machine
from bigfleet.ports.store import ShardStores
from bigfleet.services.shard.assembly import Shard, assemble
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.coordination import report
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.inspect import need_views
from bigfleet.services.shard.records.journal import Journal
from tests.support.wire_strategies import CLUSTERS

_EAGER = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=0.0)
# Longer than a doubtful roll-up is held.
_STEP_SECONDS = 31.0


def made(directory: Path, fleet: Sequence[Machine], clock: ManualClock) -> Shard:
    """All parts of a shard, whose cycles run when they are told to."""
    config = ShardConfig("s", 0, 0, ("in memory",), directory, engine=_EAGER)
    providers = {"in memory": MemoryProvider(fleet)}
    stores = ShardStores(EvictionFile(directory), RemovalFile(directory))
    return assemble(config, providers, clock, Journal(None, clock), 1, stores)


async def _at_once(work: Callable[[], CycleResult]) -> CycleResult:
    return work()


def look_at(result: CycleResult) -> None:
    """A sound decision about all that was asked, which can be told to everybody."""
    assert not result.quarantine, [(k, left.error) for k, left in result.quarantine.items()]
    found = [*violations(result.fleet, result.demand, result.decision)]
    assert not found, found
    for view in need_views.needs(result, shardread_pb2.InspectNeedsRequest()):
        view.SerializeToString()
    report.shortfalls(result)


async def play(
    fleet: Sequence[Machine], history: Sequence[capacity_pb2.ClusterCapacityNeeds]
) -> None:
    """A decision after each roll-up; every need of it is in force."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as directory:
        shard = made(Path(directory), fleet, clock)
        shard.cycle.offload = _at_once
        sessions = {c: shard.sessions.open(shard_pb2.Hello(cluster_id=c)) for c in CLUSTERS}
        for number, rollup in enumerate(history, 1):
            rollup.timestamp_unix_nanos = number
            session = sessions[rollup.cluster_id]
            shard.sessions.receive(session, shard_pb2.OperatorMessage(rollup=rollup))
            clock.advance(_STEP_SECONDS)
            await shard.cycle.once()
            assert shard.cycle.count == number, "the cycle failed"
            assert shard.cycle.latest is not None
            look_at(shard.cycle.latest)
        for session in sessions.values():
            session.end()
            accepted = [m.ack async for m in session.outbox.drain() if m.HasField("ack")]
            assert [ack.rejected for ack in accepted if ack.rejected] == []
            told = [each.why for ack in accepted for each in ack.rejected_items]
            assert all("repeats the profile and group" in why for why in told), told
