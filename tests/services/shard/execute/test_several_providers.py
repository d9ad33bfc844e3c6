"""One shard and several providers, each a real process: what one does not do, others still do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.model.errors import Fenced, InvalidInput
from bigfleet.model.machine import MachineState
from bigfleet.ports.provider import Fence
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.execute import providers as providers_module
from tests.support.fake_coordinator import FakeCoordinator
from tests.support.provider_process import ProviderProcess, provider_process
from tests.support.shard_rig import Rig, cycles, machine, need, shard, short, states
from tests.support.waiting import eventually

_S = MachineState
SIZE = {"resources": {"cpu": "4", "memory": "16Gi", "pods": "110"}, "zone": "a"}
OWNED = {**SIZE, "capacity_type": "BARE_METAL", "state": "IDLE", "price_per_hour": 0.0}
ON_DEMAND = {**SIZE, "price_per_hour": 0.4}
SPOT = {**SIZE, "capacity_type": "SPOT", "price_per_hour": 0.1}


def named(kind: dict[str, Any], *names: str) -> list[dict[str, Any]]:
    """Machines of one kind."""
    return [{**kind, "id": name} for name in names]


@asynccontextmanager
async def shard_of(
    directory: Path, *running: ProviderProcess, **overrides: Any
) -> AsyncIterator[Rig]:
    """A shard served by all of them."""
    clients = {each.address: GrpcProvider(each.address) for each in running}
    async with shard(clients, directory, **overrides) as rig:
        yield rig


@asynccontextmanager
async def two(
    folder: Path, first: Sequence[dict[str, Any]], second: Sequence[dict[str, Any]]
) -> AsyncIterator[tuple[ProviderProcess, ProviderProcess]]:
    """Two running providers called hall and cloud."""
    async with AsyncExitStack() as closing:
        made = [
            await closing.enter_async_context(provider_process(name, folder / name, *machines))
            for name, machines in (("hall", first), ("cloud", second))
        ]
        yield made[0], made[1]


def state_of(rig: Rig, machine_id: str) -> MachineState | None:
    """As the shard knows it."""
    return rig.shard.inventory.state(machine_id)


def states_of(rig: Rig, *machine_ids: str) -> list[MachineState]:
    """As the shard knows them, without those that it does not."""
    found = (state_of(rig, each) for each in machine_ids)
    return [state for state in found if state is not None]


async def test_machines_of_all_providers_are_considered_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheapest machine is acquired first, whichever provider has it."""
    # On a busy machine a listing may take longer, and then a dearer machine is acquired.
    monkeypatch.setattr(providers_module, "LATE_SECONDS", 60.0)
    hall, cloud = named(OWNED, "h-0"), named(SPOT, "s-0")
    async with (
        two(tmp_path, [*hall, *named(ON_DEMAND, "d-0")], cloud) as (first, second),
        shard_of(tmp_path / "shard", first, second) as rig,
    ):
        operator = await rig.operator()
        await operator.roll_up(need(machines=2))
        from_hall = await operator.receives_state("h-0", _S.CONFIGURED)
        from_cloud = await operator.receives_state("s-0", _S.CONFIGURED)
        assert state_of(rig, "d-0") is _S.SPECULATIVE
    assert from_hall.provider_id == "bigfleet://hall/h-0"
    assert from_cloud.provider_id == "bigfleet://cloud/s-0"


async def test_a_killed_provider_stops_nothing_of_the_others(tmp_path: Path) -> None:
    """Its idle machine is not acquired, the one in service counts and is left alone, and both are
    used as before once it is back.
    """
    hall = named(OWNED, "h-0", "h-1")
    async with (
        two(tmp_path, hall, named(ON_DEMAND, "d-0")) as (first, second),
        shard_of(tmp_path / "shard", first, second) as rig,
    ):

        def both() -> set[MachineState | None]:
            return {state_of(rig, "h-0"), state_of(rig, "h-1")}

        operator = await rig.operator()
        await operator.roll_up(need(machines=1))
        await eventually(lambda: _S.CONFIGURED in both())
        await first.kill()
        await eventually(lambda: bool(rig.shard.inventory.holds.silent))
        await operator.roll_up(need(machines=2))
        await operator.receives_state("d-0", _S.CONFIGURED)
        assert both() == {_S.IDLE, _S.CONFIGURED}
        await operator.roll_up()
        await operator.receives_state("d-0", _S.IDLE)
        await cycles(rig, 5)
        assert both() == {_S.IDLE, _S.CONFIGURED}, "nothing is drained there meanwhile"
        await first.start()
        await eventually(lambda: both() == {_S.IDLE})
        await operator.roll_up(need(machines=2))
        await eventually(lambda: both() == {_S.CONFIGURED})
        assert not rig.shard.actuation.fenced


async def test_a_provider_that_hangs_delays_no_decision_for_long(tmp_path: Path) -> None:
    """Its listing is waited for once, and taken when it comes."""
    async with (
        two(tmp_path, named(OWNED, "h-0"), named(ON_DEMAND, "d-0")) as (first, second),
        shard_of(tmp_path / "shard", first, second) as rig,
    ):
        operator = await rig.operator()
        await cycles(rig, 1)
        first.pause()
        await eventually(lambda: bool(rig.shard.inventory.holds.silent))
        await operator.roll_up(need(machines=1))
        await operator.receives_state("d-0", _S.CONFIGURED)
        before = rig.shard.cycle.count
        await cycles(rig, 20)
        assert rig.shard.cycle.count >= before + 20
        first.resume()
        await eventually(lambda: not rig.shard.inventory.holds.silent)
        await operator.roll_up(need(machines=2))
        await operator.receives_state("h-0", _S.CONFIGURED)


async def test_a_machine_id_of_two_providers_is_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is ordered for it from either; all other machines are used."""
    hall, cloud = named(OWNED, "m-7", "h-0"), named(SPOT, "m-7", "s-0")
    async with (
        two(tmp_path, hall, cloud) as (first, second),
        shard_of(tmp_path / "shard", first, second) as rig,
    ):
        operator = await rig.operator()
        await operator.roll_up(need(machines=3))
        await operator.receives_state("h-0", _S.CONFIGURED)
        await operator.receives_state("s-0", _S.CONFIGURED)
        await cycles(rig, 3)
        assert short(rig)
        assert state_of(rig, "m-7") in (_S.IDLE, _S.SPECULATIVE)
        why = rig.shard.machines.view("m-7", rig.shard.cycle.latest).held_reason
    said = [str(vars(record).get("why")) for record in caplog.records]
    refusals = [each for each in said if "machine m-7 of provider" in each]
    assert len(refusals) == 1, "it is logged once"
    for told in (why, *refusals):
        assert first.address in told
        assert second.address in told


async def test_an_id_is_used_again_once_one_provider_has_dropped_it(tmp_path: Path) -> None:
    """Whichever of them it is."""
    hall = MemoryProvider([machine("m-7"), machine("h-0")], auto_finish=True)
    cloud = MemoryProvider([machine("m-7"), machine("s-0")], auto_finish=True)
    async with shard({"hall": hall, "cloud": cloud}, tmp_path) as rig:
        operator = await rig.operator()
        await eventually(lambda: bool(rig.shard.inventory.holds.colliding))
        (owner,) = {rig.shard.inventory.provider_of("m-7")}
        (hall if owner == "hall" else cloud).forget("m-7")
        rig.shard.cycle.providers.request_full_listings()
        await operator.roll_up(need(machines=3))
        await operator.receives_state("m-7", _S.CONFIGURED)
        ordered = states((cloud if owner == "hall" else hall).orders)
        assert ("CONFIGURE", "m-7") in ordered


async def test_a_node_of_a_colliding_id_is_not_reported_as_gone(tmp_path: Path) -> None:
    """Its operator would delete a Node that runs pods: the other machine of the id is idle."""
    hall = MemoryProvider([machine("m-7")])
    cloud = MemoryProvider([machine("m-7", _S.CONFIGURED, "east")])
    async with shard({"hall": hall, "cloud": cloud}, tmp_path) as rig:
        await eventually(lambda: bool(rig.shard.inventory.holds.colliding))
        operator = await rig.operator()
        await operator.say(inquiry=shard_pb2.NodeStateInquiry(machine_ids=["m-7"]))
        await operator.roll_up()
        await cycles(rig, 3)
        gone = [m for m in operator.received if m.node_state_update.state == int(_S.IDLE)]
        assert not gone


async def test_a_shard_that_starts_beside_a_dead_provider_replaces_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster whose Nodes may be machines of a provider that was not listed yet gets nothing;
    others get what the remaining provider has.
    """
    monkeypatch.setattr(providers_module, "FIRST_LISTING_SECONDS", 2.0)
    hall, cloud = MemoryProvider([machine("h-0")]), MemoryProvider([machine("d-0")])
    async with shard({"hall": hall, "cloud": cloud}, tmp_path):
        pass
    hall.reachable = False
    async with shard({"hall": hall, "cloud": cloud}, tmp_path) as rig:
        east, west = await rig.operator("east"), await rig.operator("west")
        await east.say(inquiry=shard_pb2.NodeStateInquiry(machine_ids=["h-0"]))
        await east.roll_up(need(machines=1))
        await cycles(rig, 2)
        assert not cloud.orders
        await west.roll_up(need(machines=1))
        await eventually(lambda: states(cloud.orders) == [("CONFIGURE", "d-0")])
        assert rig.shard.inventory.view("d-0").cluster == "west"  # type: ignore[union-attr]


async def test_machines_that_a_dead_provider_was_making_are_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are bought in their place after a while; what is in service still counts."""
    monkeypatch.setattr(providers_module, "EXPECTED_SECONDS", 1.0)
    hall = MemoryProvider([machine("h-0", _S.SPECULATIVE, price_per_hour=0.1), machine("h-1")])
    cloud = MemoryProvider([machine("d-0", _S.SPECULATIVE)], auto_finish=True)
    async with shard({"hall": hall, "cloud": cloud}, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(machines=2))
        await eventually(lambda: state_of(rig, "h-1") is _S.CONFIGURING)
        hall.finish("h-1")
        await eventually(lambda: state_of(rig, "h-1") is _S.CONFIGURED)
        await eventually(lambda: state_of(rig, "h-0") is _S.CREATING)
        hall.reachable = False
        await operator.receives_state("d-0", _S.CONFIGURED)
        await cycles(rig, 3)
        assert not short(rig)
        assert states(cloud.orders) == [("CREATE", "d-0"), ("CONFIGURE", "d-0")]


async def test_a_lost_disk_gets_an_epoch_that_is_new_to_every_provider(tmp_path: Path) -> None:
    """Also to those that have not seen the life before: orders of it are fenced by all."""
    hall, cloud = MemoryProvider([machine("h-0")]), MemoryProvider([machine("d-0")])
    async with shard(hall, tmp_path / "old") as rig:
        operator = await rig.operator()
        await operator.roll_up(need(machines=1))
        await eventually(lambda: bool(hall.orders))
        before = rig.shard.epoch
    async with shard({"cloud": cloud, "hall": hall}, tmp_path / "new") as rig:
        assert rig.shard.epoch > before
    for provider, name in ((hall, "h-0"), (cloud, "d-0")):
        with pytest.raises(Fenced):
            await provider.drain(name, 1, Fence("shard-0", before + 1000, 1))


async def test_a_quota_limits_the_provider_that_it_names(tmp_path: Path) -> None:
    """From the first purchase on, while that provider has no host yet, and no other provider."""
    hall, cloud = named(ON_DEMAND, "h-0", "h-1"), named(SPOT, "s-0", "s-1")
    coordinator = FakeCoordinator()
    told = coordinator.limit("shard-0", "a", 1, provider="cloud")  # zone a stands for the region
    async with (
        two(tmp_path, hall, cloud) as (first, second),
        shard_of(tmp_path / "shard", first, second, coordinator=coordinator) as rig,
    ):
        await eventually(lambda: coordinator.accepted(told))
        operator = await rig.operator()
        await operator.roll_up(need(machines=3))
        await eventually(lambda: not short(rig))
        await eventually(lambda: states_of(rig, "h-0", "h-1") == [_S.CONFIGURED, _S.CONFIGURED])
        await eventually(
            lambda: sorted(states_of(rig, "s-0", "s-1")) == [_S.SPECULATIVE, _S.CONFIGURED]
        )
        listed = {each.name: each.address for each in coordinator.reports["shard-0"].providers}
        assert listed == {"hall": first.address, "cloud": second.address}


async def test_one_providers_failed_offering_is_still_bought_from_another(tmp_path: Path) -> None:
    """Instance type, zone and capacity type are the same; the back-off is of its seller."""
    hall = MemoryProvider([machine(f"h-{n}", _S.SPECULATIVE) for n in range(2)])
    cloud = MemoryProvider([machine("d-0", _S.SPECULATIVE, price_per_hour=0.3)], auto_finish=True)
    async with shard({"hall": hall, "cloud": cloud}, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(machines=1))
        await eventually(lambda: bool(hall.orders))
        hall.fail(hall.orders[0][1], "sold out")
        await operator.receives_state("d-0", _S.CONFIGURED)
        assert len([each for each in hall.orders if each[0] == "CREATE"]) == 1


@pytest.mark.parametrize(
    ("addresses", "why"), [((), "is missing"), (("p:1", "q:1", "p:1"), "is given twice")]
)
def test_a_shard_names_each_of_its_providers_once(
    tmp_path: Path, addresses: tuple[str, ...], why: str
) -> None:
    with pytest.raises(InvalidInput, match=f"--provider.*{why}"):
        ShardConfig("s", 0, 0, addresses, tmp_path)
