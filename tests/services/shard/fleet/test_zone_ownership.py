"""Shards that own whole zones, for gangs that want one."""

from __future__ import annotations

from pathlib import Path

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.model.domain import BY_ZONE, Domain
from bigfleet.model.group import PodGroup
from bigfleet.model.labels import RACK_LABEL, ZONE_LABEL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.model.need import Need, Operator, Requirement, profile, sizes_of
from tests.support.fake_coordinator import FakeCoordinator
from tests.support.shard_rig import CPU_PER_MACHINE, cycles, machine, need, shard, short
from tests.support.waiting import eventually


def zone(name: str) -> Domain:
    """A zone as a domain."""
    return Domain(ZONE_LABEL, name)


def fleet() -> list[Machine]:
    """Three racks of two machines in each of two zones."""
    return [
        machine(f"{where}-{number}", zone=where, labels={RACK_LABEL: f"{where}-r{number % 3}"})
        for where in "ab"
        for number in range(6)
    ]


def gang(pods: int) -> Need:
    """Pods as large as a machine, all in one zone."""
    one_zone = profile((Requirement(ZONE_LABEL, Operator.SAME),), (), 0, 1, 1)
    return Need(one_zone, sizes_of([({"cpu": CPU_PER_MACHINE}, pods)]), PodGroup('["gang"]'))


async def test_a_gang_that_wants_a_zone_gets_all_of_it_and_nothing_of_another_shards(
    tmp_path: Path,
) -> None:
    """A zone comes and goes as a whole, with all its racks; that is what the coordinator hears."""
    provider = MemoryProvider(fleet(), auto_finish=True)
    coordinator = FakeCoordinator(gives_domains=False)
    async with shard(
        provider, tmp_path, None, coordinator, shard_id="s-0", domain_keys=BY_ZONE
    ) as rig:
        await eventually(lambda: coordinator.seen.get("s-0") == {zone("a"), zone("b")})
        assert list(coordinator.reports["s-0"].domain_keys) == [ZONE_LABEL]
        coordinator.give(zone("a"), "s-0")
        coordinator.give(zone("b"), "s-1")
        operator = await rig.operator()
        await operator.roll_up(gang(6))
        for number in range(6):
            await operator.receives_state(f"a-{number}", MachineState.CONFIGURED)
        await operator.roll_up(gang(6), need(zone="b"))
        await cycles(rig, 10)
        assert {name for _, name, _ in provider.orders} == {f"a-{number}" for number in range(6)}
        assert not coordinator.reports["s-0"].splits
        assert not rig.shard.inventory.owns("b-0")


async def test_by_racks_a_zone_may_be_split_and_that_is_said(tmp_path: Path) -> None:
    """Of such a gang a part waits, though the zone has machines enough."""
    provider = MemoryProvider(fleet(), auto_finish=True)
    coordinator = FakeCoordinator(gives_domains=False)
    async with shard(provider, tmp_path, None, coordinator, shard_id="s-0") as rig:
        await eventually(lambda: len(coordinator.seen.get("s-0", ())) == 6)
        for rack in ("a-r0", "a-r1"):
            coordinator.give(Domain(RACK_LABEL, rack), "s-0")
        operator = await rig.operator()
        await operator.roll_up(gang(6))
        await eventually(lambda: bool(coordinator.reports["s-0"].splits))
        await eventually(lambda: len(provider.orders) == 4)
        await cycles(rig, 10)
        assert len(provider.orders) == 4
        assert short(rig)
