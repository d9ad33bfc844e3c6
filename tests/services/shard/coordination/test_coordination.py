"""Several shards: each decides about what it owns, with and without a coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.model.domain import Domain
from bigfleet.model.labels import RACK_LABEL
from bigfleet.model.machine import Machine, MachineState
from bigfleet.observe.metrics import shard_incidents
from bigfleet.ports.provider import Fence, Operation
from tests.support.fake_coordinator import FakeCoordinator, rack
from tests.support.shard_rig import Rig, cycles, machine, need, shard, short
from tests.support.waiting import eventually

S = MachineState


def in_rack(name: str, number: int, state: MachineState = S.IDLE) -> Machine:
    """A machine of a rack; its id tells the rack."""
    return machine(f"{name}-{number}", state, labels={RACK_LABEL: name})


def fleet(*racks: str, each: int = 2) -> MemoryProvider:
    """Idle machines in some racks; transitions end by themselves."""
    machines = [in_rack(name, number) for name in racks for number in range(each)]
    return MemoryProvider(machines, auto_finish=True)


def placed(provider: MemoryProvider, cluster: str) -> set[str]:
    """The machines configured for a cluster."""
    known = provider._machines.values()
    return {m.id for m in known if m.cluster == cluster and m.state is S.CONFIGURED}


@asynccontextmanager
async def shards(
    provider: MemoryProvider, coordinator: FakeCoordinator, directory: Path, *names: str
) -> AsyncIterator[list[Rig]]:
    """Shards of one provider and one coordinator."""
    if not names:
        yield []
        return
    here = shard(provider, directory / names[0], None, coordinator, shard_id=names[0])
    async with here as first, shards(provider, coordinator, directory, *names[1:]) as others:
        yield [first, *others]


def out_of_domain_machines(coordinator: FakeCoordinator, name: str) -> list[tuple[str, str, str]]:
    """Out-of-domain machines that a shard has reported: id, cluster and domain."""
    told = coordinator.reports[name].out_of_domain_machines
    return [(each.machine_id, each.cluster_id, each.topology_value) for each in told]


def domains(rig: Rig) -> set[Domain]:
    """What a shard owns."""
    assert rig.shard.coordination is not None
    return set(rig.shard.coordination.ownership.domains)


async def test_only_machines_of_owned_domains_take_part(tmp_path: Path) -> None:
    """Two shards see the same machines; each orders its own only, even when its needs are short."""
    provider, coordinator = fleet("a", "b"), FakeCoordinator(gives_domains=False)
    coordinator.give(rack("a"), "s-0")
    coordinator.give(rack("b"), "s-1")
    async with shards(provider, coordinator, tmp_path, "s-0", "s-1") as (one, two):
        east, west = await one.operator("east"), await two.operator("west")
        await east.roll_up(need(4))
        await west.roll_up(need(1))
        await eventually(
            lambda: len(placed(provider, "east")) == 2 and len(placed(provider, "west")) == 1
        )
        await eventually(lambda: short(one))
        assert placed(provider, "east") == {"a-0", "a-1"}
        assert placed(provider, "west") < {"b-0", "b-1"}
    assert {m[0] for _, m, fence in provider.orders if fence.shard_id == "s-0"} == {"a"}
    assert {m[0] for _, m, fence in provider.orders if fence.shard_id == "s-1"} == {"b"}


async def test_unowned_domains_are_reported_and_each_gets_one_owner(tmp_path: Path) -> None:
    """Nothing is ordered before; afterwards every machine is one shard's and no other's."""
    provider, coordinator = fleet("a", "b", "c"), FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0", "s-1") as rigs:
        await eventually(lambda: sum(len(domains(rig)) for rig in rigs) == 3)
        owned = [rig.shard.inventory.owns(f"{r}-0") for rig in rigs for r in "abc"]
        assert owned.count(True) == 3
        await eventually(
            lambda: sum(r.summary.total_machines for r in coordinator.reports.values()) == 6
        )


async def test_machines_of_other_shards_can_be_inspected(tmp_path: Path) -> None:
    """They are known here, and reported as not owned."""
    provider, coordinator = fleet("a"), FakeCoordinator(gives_domains=False)
    async with shards(provider, coordinator, tmp_path, "s-0") as (rig,):
        await eventually(lambda: rig.shard.inventory.state("a-0") is S.IDLE)
        view = rig.shard.machines.view("a-0", rig.shard.cycle.latest)
        assert "topology.bigfleet/rack=a" in view.not_owned_reason
        coordinator.give(rack("a"), "s-0")
        await eventually(lambda: rig.shard.inventory.owns("a-0"))
        assert rig.shard.machines.view("a-0", rig.shard.cycle.latest).not_owned_reason == ""


async def test_a_bound_machine_counts_where_its_cluster_is_served(tmp_path: Path) -> None:
    """Its domain changes hands while it is at work: it is not bought again, not counted twice, and
    not drained; once its cluster needs it no more it is the new owner's to use."""
    provider, coordinator = fleet("a", each=1), FakeCoordinator(gives_domains=False)
    coordinator.give(rack("a"), "s-0")
    async with shards(provider, coordinator, tmp_path, "s-0", "s-1") as (one, two):
        east, west = await one.operator("east"), await two.operator("west")
        await east.roll_up(need(1))
        await eventually(lambda: placed(provider, "east") == {"a-0"})
        moved = coordinator.take(rack("a"))
        await eventually(lambda: coordinator.accepted(moved))
        coordinator.give(rack("a"), "s-1")
        await eventually(lambda: domains(two) == {rack("a")})
        await eventually(
            lambda: out_of_domain_machines(coordinator, "s-0") == [("a-0", "east", "a")]
        )
        await west.roll_up(need(1, priority=1000))
        await eventually(lambda: short(two))
        assert not short(one)
        assert placed(provider, "east") == {"a-0"}
        await east.roll_up()
        await eventually(lambda: placed(provider, "west") == {"a-0"})
        await eventually(lambda: out_of_domain_machines(coordinator, "s-0") == [])
        assert out_of_domain_machines(coordinator, "s-1") == []
    assert [(what, fence.shard_id) for what, _, fence in provider.orders] == [
        ("CONFIGURE", "s-0"), ("DRAIN", "s-0"), ("CONFIGURE", "s-1"),
    ]  # fmt: skip


async def test_no_pods_are_evicted_for_a_machine_that_another_would_get(tmp_path: Path) -> None:
    """An out-of-domain machine is no victim: drained, it would pass to its domain's owner."""
    provider, coordinator = fleet("a", each=1), FakeCoordinator(gives_domains=False)
    coordinator.give(rack("a"), "s-0")
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east, north = await one.operator("east"), await one.operator("north")
        await east.roll_up(need(1))
        await eventually(lambda: placed(provider, "east") == {"a-0"})
        moved = coordinator.take(rack("a"))
        await eventually(lambda: coordinator.accepted(moved))
        await north.roll_up(need(1, priority=1000))
        await eventually(lambda: short(one))
        await cycles(one, 3)
    assert [what for what, _, _ in provider.orders] == ["CONFIGURE"]


async def test_who_takes_over_restores_what_machines_are_for(tmp_path: Path) -> None:
    """A removed shard's domains and clusters go to another, which counts what is at work there as
    after a restart of its own: nothing is bought, drained or credited twice."""
    provider, coordinator = fleet("a", "b", each=3), FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await east.roll_up(need(2, priority=3), need(1, priority=9))
        await eventually(lambda: len(placed(provider, "east")) == 3)
    coordinator.owners.clear()
    coordinator.clusters.clear()
    orders = list(provider.orders)
    async with shards(provider, coordinator, tmp_path, "s-1") as (two,):
        east = await two.operator("east")
        await eventually(lambda: len(domains(two)) == 2)
        await east.roll_up(need(2, priority=3), need(1, priority=9))
        await cycles(two, 3)
        assert two.shard.cycle.latest is not None
        fleet_now = two.shard.cycle.latest.inputs.fleet
        assert sorted(fleet_now.priority[fleet_now.state == S.CONFIGURED]) == [3, 3, 9]
        assert not short(two)
    assert provider.orders == orders


class SlowProvider(MemoryProvider):
    """Answers an order to configure only once `may_answer` is set."""

    def __init__(self, *machines: Machine) -> None:
        super().__init__(machines, auto_finish=True)
        self.asked, self.may_answer = asyncio.Event(), asyncio.Event()

    async def configure(self, machine_id: str, *rest: Any) -> Operation:
        self.asked.set()
        await self.may_answer.wait()
        return await super().configure(machine_id, *rest)


async def test_a_domain_is_given_up_only_after_its_last_order(tmp_path: Path) -> None:
    """The acknowledgement waits for the order, and no new order is issued meanwhile."""
    provider = SlowProvider(in_rack("a", 0), in_rack("a", 1))
    coordinator = FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await east.roll_up(need(1))
        await provider.asked.wait()
        moved = coordinator.take(rack("a"))
        await eventually(lambda: domains(one) == set())
        await east.roll_up(need(2))
        await cycles(one, 3)
        assert moved not in coordinator.answers
        provider.may_answer.set()
        await eventually(lambda: coordinator.accepted(moved))
        assert placed(provider, "east") <= {"a-0", "a-1"}
    assert len(provider.orders) == 1


class DelayedOrders(MemoryProvider):
    """Orders arrive only once `may_arrive` is set, also if their shard has ended by then."""

    def __init__(self, *machines: Machine) -> None:
        super().__init__(machines, auto_finish=True)
        self.sent, self.may_arrive = asyncio.Event(), asyncio.Event()
        self.on_their_way: list[asyncio.Task[Operation]] = []

    async def configure(self, machine_id: str, *rest: Any) -> Operation:
        task = asyncio.create_task(self._arrive(machine_id, *rest))
        self.on_their_way.append(task)
        self.sent.set()
        return await asyncio.shield(task)

    async def _arrive(self, machine_id: str, *rest: Any) -> Operation:
        await self.may_arrive.wait()
        return await super().configure(machine_id, *rest)


async def test_a_restarted_shard_gives_up_no_domain_while_its_old_orders_may_arrive(
    tmp_path: Path,
) -> None:
    """Such an order takes effect, since the new life has sent none for that machine; it would in
    another shard's domain as well.
    """
    provider, coordinator, clock = DelayedOrders(in_rack("a", 0)), FakeCoordinator(), ManualClock()
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await east.roll_up(need(1))
        await provider.sent.wait()
    here = shard(provider, tmp_path / "s-0", clock, coordinator, shard_id="s-0")
    async with here as one:
        moved = coordinator.take(rack("a"))
        await eventually(lambda: domains(one) == set())
        clock.advance(29)
        await cycles(one, 5)
        assert moved not in coordinator.answers
        provider.may_arrive.set()
        await asyncio.wait(provider.on_their_way)
        await eventually(lambda: placed(provider, "east") == {"a-0"})
        clock.advance(2)
        await eventually(lambda: coordinator.accepted(moved))


async def test_instructions_of_a_deposed_coordinator_are_rejected_as_an_incident(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They change nothing, also after a restart; the log and a metric say so."""
    provider, coordinator = fleet("a", "b"), FakeCoordinator(gives_domains=False)
    coordinator.term = 7
    coordinator.give(rack("a"), "s-0")
    before = shard_incidents.labels("stale-instruction")._value.get()
    for number in ("x", "y"):
        async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
            await eventually(lambda: domains(one) == {rack("a")})
            other = wire.AssignDomain(topology_key=RACK_LABEL, topology_value="b")
            coordinator.instruct("s-0", term=6, sequence=99, number=number, assign_domain=other)
            await eventually(lambda: number in coordinator.answers)  # noqa: B023 - awaited at once
            assert coordinator.answers[number].outcome == wire.InstructAck.REJECTED_STALE
            assert domains(one) == {rack("a")}
    assert shard_incidents.labels("stale-instruction")._value.get() == before + 2
    assert any(r.levelno == logging.CRITICAL and "incident" in r.message for r in caplog.records)


async def test_a_shard_decides_and_restarts_without_any_coordinator(tmp_path: Path) -> None:
    """Domains, clusters and quotas are on its disk, and stay in force through an election."""
    provider, coordinator = fleet("a", "b"), FakeCoordinator(gives_domains=False)
    coordinator.give(rack("a"), "s-0")
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await eventually(lambda: domains(one) == {rack("a")})
        coordinator.reachable = False
        await east.roll_up(need(1))
        await eventually(lambda: len(placed(provider, "east")) == 1)
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await east.roll_up(need(2))
        await eventually(lambda: placed(provider, "east") == {"a-0", "a-1"})
        assert one.shard.cycle.not_ready() == ""


async def test_an_operator_is_redirected_to_the_shard_that_serves_its_cluster(
    tmp_path: Path,
) -> None:
    """The first contact decides permanently; other shards redirect and end the stream with OK."""
    provider, coordinator = fleet("a"), FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0", "s-1") as (one, two):
        await eventually(lambda: len(coordinator.addresses) == 2)
        await one.operator("east")
        lost = two.stranger("east")
        await lost.say(hello=shard_pb2.Hello(cluster_id="east"))
        told = (await lost.receives(lambda m: m.HasField("redirect"))).redirect
        assert (told.shard_id, told.address) == ("s-0", one.address)
        assert (await lost.ends())[0] is grpc.StatusCode.OK


async def test_a_cluster_that_cannot_be_resolved_is_unavailable(tmp_path: Path) -> None:
    """Without a coordinator only known clusters are served; others get the reason."""
    provider, coordinator = fleet("a"), FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        await one.operator("east")
        coordinator.reachable = False
        await one.operator("east")
        lost = one.stranger("west")
        await lost.say(hello=shard_pb2.Hello(cluster_id="west"))
        status, why = await lost.ends()
        assert status is grpc.StatusCode.UNAVAILABLE
        assert "west" in why
        assert "coordinator" in why


async def test_a_quota_limits_purchases_and_the_rest_is_reported_as_short(tmp_path: Path) -> None:
    """Never more than the slice; raising it allows the next purchase."""
    machines = [in_rack("a", number, S.SPECULATIVE) for number in range(6)]
    provider = MemoryProvider(machines, auto_finish=True)
    coordinator = FakeCoordinator(gives_domains=False)
    coordinator.limit("s-0", "a", 2)  # zone a stands for the region
    coordinator.give(rack("a"), "s-0")
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await east.roll_up(need(5))
        await eventually(lambda: len(placed(provider, "east")) == 2)
        await eventually(lambda: bool(coordinator.reports["s-0"].shortfalls))
        assert sum(what == "CREATE" for what, _, _ in provider.orders) == 2
        coordinator.limit("s-0", "a", 4)
        await eventually(lambda: len(placed(provider, "east")) == 4)
        await cycles(one, 3)
    assert sum(what == "CREATE" for what, _, _ in provider.orders) == 4


async def test_a_shard_counts_what_it_has_ordered_against_a_quota_that_becomes_smaller(
    tmp_path: Path,
) -> None:
    """Before its next decision as well: what it does not say it holds, another shard may buy."""
    machines = [in_rack("a", number, S.SPECULATIVE) for number in range(6)]
    provider, coordinator = MemoryProvider(machines), FakeCoordinator(gives_domains=False)
    coordinator.limit("s-0", "a", 4)
    coordinator.give(rack("a"), "s-0")
    config: dict[str, Any] = {"shard_id": "s-0", "cycle_seconds": 60.0}
    async with shard(provider, tmp_path, None, coordinator, **config) as one:
        east = await one.operator("east")
        await eventually(lambda: len(domains(one)) == 1)
        await east.roll_up(need(5))
        await eventually(lambda: sum(what == "CREATE" for what, _, _ in provider.orders) == 4)
        coordinator.limit("s-0", "a", 1)
        reported = coordinator.reports
        await eventually(lambda: [each.machines for each in reported["s-0"].quotas] == [1])
        assert [each.held for each in reported["s-0"].quotas] == [4]


async def test_a_removed_shard_stops_ordering_and_sends_its_operators_away(tmp_path: Path) -> None:
    """It becomes unready and says why; what runs goes on, and operators find who comes next."""
    provider, coordinator = fleet("a"), FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        east = await one.operator("east")
        await eventually(lambda: len(domains(one)) == 1)
        coordinator.deposed_shards.add("s-0")
        await eventually(lambda: "fenced by the coordinator" in one.shard.cycle.not_ready())
        assert (await east.ends())[0] is grpc.StatusCode.OK
        again = one.stranger("east")
        await again.say(hello=shard_pb2.Hello(cluster_id="east"))
        assert (await again.ends())[0] is grpc.StatusCode.UNAVAILABLE
    assert provider.orders == []


@pytest.mark.parametrize("owns", [True, False])
async def test_a_removed_shard_is_an_incident_only_while_it_owns_domains(
    tmp_path: Path, owns: bool
) -> None:
    """One that has released everything, as a live one does first, orders for nobody."""
    provider, coordinator = fleet("a"), FakeCoordinator(gives_domains=owns)
    counted = shard_incidents.labels("fenced-by-coordinator")._value
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        await eventually(lambda: len(domains(one)) == owns)
        before = counted.get()
        coordinator.deposed_shards.add("s-0")
        await eventually(lambda: "fenced by the coordinator" in one.shard.cycle.not_ready())
        assert (counted.get() > before) == owns


async def test_an_answer_of_an_older_term_is_ignored(tmp_path: Path) -> None:
    """A leader that was cut off for a while may still believe that it leads."""
    provider, coordinator = fleet("a", "b"), FakeCoordinator(gives_domains=False)
    coordinator.term = 5
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        assert one.shard.coordination is not None
        link = one.shard.coordination.link
        await eventually(lambda: link.term == 5)
        coordinator.term = 4
        coordinator.give(rack("a"), "s-0")
        before = shard_incidents.labels("deposed-coordinator")._value.get()
        incidents = shard_incidents.labels("deposed-coordinator")
        await eventually(lambda: incidents._value.get() > before)
        assert (domains(one), link.term) == (set(), 5)


async def test_a_stale_process_is_rejected_by_the_provider_whatever_it_owns(tmp_path: Path) -> None:
    """Two processes of one shard: the older one's orders are stale for all machines."""
    provider, coordinator = fleet("a", each=1), FakeCoordinator()
    async with shards(provider, coordinator, tmp_path, "s-0") as (one,):
        await eventually(lambda: len(domains(one)) == 1)
        provider._check_fence("a-0", Fence("s-0", one.shard.epoch + 1, 1))
        east = await one.operator("east")
        await east.roll_up(need(1))
        await eventually(lambda: "newer epoch" in one.shard.cycle.not_ready())
    assert placed(provider, "east") == set()
