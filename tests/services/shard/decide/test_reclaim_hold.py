"""Which of several surplus machines a shard releases first."""

from __future__ import annotations

from pathlib import Path

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import MachineState
from tests.support.shard_rig import Rig, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState


def surplus_machines(rig: Rig) -> int:
    latest = rig.shard.cycle.latest
    memories = latest.decision.cycle_memory.clusters if latest is not None else ()
    return sum(memory.surplus[-1].machines for memory in memories if memory.surplus)


async def test_a_machine_is_held_from_when_it_joined_its_cluster(tmp_path: Path) -> None:
    """It is empty, and the dearest, but what asked for it may be about to use it: another one that
    has been surplus for longer goes first.
    """
    machines = [
        machine("m-old", _S.CONFIGURED, "east", price_per_hour=0.2),
        machine("m-new", zone="b", price_per_hour=0.9),
    ]
    hold = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=2.0)
    async with shard(MemoryProvider(machines, auto_finish=True), tmp_path, engine=hold) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(1))
        await operator.roll_up()
        await eventually(lambda: surplus_machines(rig) == 1)
        await operator.roll_up(need(1, zone="b"))
        await operator.receives_state("m-new", _S.CONFIGURED)
        await operator.roll_up()
        await operator.receives_state("m-new", _S.DRAINING)
        drained = [
            m.node_state_update.machine_id
            for m in operator.received
            if m.node_state_update.state == int(_S.DRAINING)
        ]
    assert drained == ["m-old", "m-new"]
