"""Whatever is sent to a shard, it lives on, keeps the last good state, and says what was wrong."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import machine_codec, need_codec
from bigfleet.api.v1alpha1 import capacity_pb2, shard_pb2
from bigfleet.api.v1alpha1 import provider_pb2 as wire
from bigfleet.model.errors import InvalidInput
from bigfleet.model.machine import MachineState
from bigfleet.observe.metrics import REGISTRY
from bigfleet.ports.provider import Fence, Listing, Operation
from bigfleet.services.shard.demand import demand_limit
from bigfleet.services.shard.demand.rollup_rows import MAX_NEED_BYTES
from tests.support import malformed
from tests.support.listing_provider import listing_provider
from tests.support.shard_rig import FakeOperator, Rig, cycles, machine, need, rollup, shard, states
from tests.support.waiting import eventually

_S = MachineState


def failures() -> float:
    """Cycles that a bug has ended so far."""
    value = REGISTRY.get_sample_value("bigfleet_shard_cycle_failures_total", {"reason": "error"})
    return value or 0.0


def unconfirmed_reductions() -> float:
    """Full listings that were not believed so far."""
    return REGISTRY.get_sample_value("bigfleet_shard_listings_suspect_total") or 0.0


async def tell(operator: FakeOperator, *needs: capacity_pb2.CapacityNeed) -> str:
    """Send a roll-up of raw needs; what the shard has against it, or else what is left out."""
    message = rollup(operator.cluster)
    message.needs.extend(needs)
    await operator.say(rollup=message)
    echo = str(message.timestamp_unix_nanos)
    said = (await operator.receives(lambda m: m.ack.echo == echo)).ack
    return said.rejected or "; ".join(each.why for each in said.rejected_items)


async def still_works(rig: Rig, operator: FakeOperator, free: str) -> None:
    """A sound roll-up brings a machine."""
    assert await tell(operator, need_codec.need_to_wire(need())) == ""
    await operator.receives_state(free, _S.CONFIGURED)
    assert rig.shard.cycle.not_ready() == ""


@pytest.mark.parametrize("seed", range(3))
async def test_no_roll_up_harms_the_shard(tmp_path: Path, seed: int) -> None:
    """Absurd needs are refused with a sentence that names the need; the session goes on."""
    draw, before = random.Random(seed), failures()
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        for _ in range(150):
            said = await tell(operator, *(malformed.need(draw) for _ in range(draw.randint(1, 3))))
            assert not said or said.startswith("cluster east, need ")
        await still_works(rig, operator, "m-1")
    assert failures() == before


@pytest.mark.parametrize("seed", range(3))
async def test_no_accepted_need_harms_the_decision(tmp_path: Path, seed: int) -> None:
    """Needs at the edge of sense are decided upon like any others."""
    draw, before = random.Random(seed), failures()
    machines = [machine(f"m-{n}", price_per_hour=draw.choice((0.0, 1e308))) for n in range(4)]
    spot = [replace(m, interruption_probability=1.0) for m in machines[:2]]
    provider = MemoryProvider([*machines[2:], *spot], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        for _ in range(40):
            wanted = {need_codec.need_from_wire(n, "").key: n for n in
                      (malformed.plausible_need(draw) for _ in range(6))}  # fmt: skip
            assert await tell(operator, *wanted.values()) == ""
            done = rig.shard.cycle.latest
            await eventually(lambda done=done: rig.shard.cycle.latest is not done)  # type: ignore[misc]
            decided = rig.shard.cycle.latest
            assert decided is not None
            assert not decided.quarantine
    assert failures() == before


async def test_a_roll_up_is_bounded(tmp_path: Path) -> None:
    """One need that is too large is refused by name; what was good stays."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await still_works(rig, operator, "m-1")
        large = need_codec.need_to_wire(need(group="x" * MAX_NEED_BYTES))
        assert "cluster east, need 0" in await tell(operator, large)
        assert len(rig.shard.needs) == 1


async def test_a_cluster_has_a_decent_name(tmp_path: Path) -> None:
    """A Hello with an endless name, or one that no log line could show, ends its session."""
    async with shard(MemoryProvider(), tmp_path) as rig:
        for name in ("x" * 254, "a\nb"):
            stranger = rig.stranger()
            await stranger.say(hello=shard_pb2.Hello(cluster_id=name))
            _, details = await stranger.ends()
            assert "Hello: cluster_id" in details


class Absurd:
    """Lists one sound machine among nonsense, which changes with each listing."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self.listings = 0

    async def list(self, *_: object) -> wire.MachineList:
        """Everything, every time: it gives no revision."""
        self.listings += 1
        nonsense = [malformed.machine(self._draw) for _ in range(self._draw.randint(0, 30))]
        sound = machine_codec.machine_to_wire(machine("sound"), "absurd")
        return wire.MachineList(machines=[sound, *nonsense])


class Constant:
    """Lists one sound machine and `records`."""

    def __init__(self, *records: wire.Machine) -> None:
        self._records = records
        self.listings = 0

    async def list(self, *_: object) -> wire.MachineList:
        """Everything, every time."""
        self.listings += 1
        sound = machine_codec.machine_to_wire(machine("sound"), "constant")
        return wire.MachineList(machines=[*self._records, sound])


@pytest.mark.parametrize("seed", range(3))
async def test_no_machine_record_harms_the_shard(tmp_path: Path, seed: int) -> None:
    """Records that cannot be right are refused one by one, and the sound ones among them count."""
    before, provider = failures(), Absurd(seed)
    async with (
        listing_provider(provider.list) as address,
        shard(GrpcProvider(address), tmp_path, cycle_seconds=0.01) as rig,
    ):
        operator = await rig.operator()
        await tell(operator, *(need_codec.need_to_wire(need(9, group=g)) for g in ("", "a")))
        await eventually(lambda: provider.listings > 40)
        assert rig.shard.inventory.state("sound") is _S.IDLE
    assert failures() == before


_BYTES = str(2**62)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"price_per_hour": math.nan}, "price_per_hour"),
        ({"price_per_hour": -1.0}, "price_per_hour"),
        ({"interruption_probability": math.inf}, "interruption_probability"),
        ({"state": 999}, "state"),
        ({"capacity_type": 999}, "capacity_type"),
        ({"resources": wire.Resources(resources={"cpu": "-4", "memory": "1Gi"})}, "cpu"),
        ({"resources": wire.Resources(resources={"cpu": "4", "memory": _BYTES})}, "memory"),
        ({"allocatable": wire.Resources(resources={"cpu": "NaN"})}, "cpu"),
        ({"id": "x" * 37}, "id is not 1 to 36"),
        ({"id": "sound", "state": 8}, "listed twice"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
async def test_a_machine_that_cannot_be_is_refused_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: dict[str, Any], words: str
) -> None:
    """Alone: whoever is listed with it counts, and the log says which machine and what of it."""
    record = machine_codec.machine_to_wire(machine("bad"), "constant")
    record.MergeFrom(wire.Machine(**fault))
    listed = Constant(machine_codec.machine_to_wire(machine("sound"), "constant"), record)
    name = record.id
    before = failures()
    async with (
        listing_provider(listed.list) as address,
        shard(GrpcProvider(address), tmp_path) as rig,
    ):
        await eventually(lambda: listed.listings > 2)
        assert rig.shard.inventory.state("sound") is _S.IDLE
        assert len(rig.shard.inventory) == 1
    refusals = {str(getattr(each, "why", "")) for each in caplog.records}
    assert any(words in why and name[:30] in why for why in refusals), refusals
    assert failures() == before


def _bad_need(**fields: Any) -> capacity_pb2.CapacityNeed:
    message = need_codec.need_to_wire(need())
    for name, value in fields.items():
        message.ClearField(name)  # type: ignore[arg-type]
        message.MergeFrom(capacity_pb2.CapacityNeed(**{name: value}))
    return message


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        (_bad_need(sizes=None, aggregate_resources={}), "request nothing"),
        (_bad_need(sizes=None, aggregate_resources={"cpu": "0"}), "request nothing"),
        (
            _bad_need(sizes={"resources": ["cpu"], "amounts": [0], "counts": [1]}),
            "are all the amounts",
        ),
        (_bad_need(sizes={"resources": ["cpu"], "amounts": [1, 2], "counts": [1]}), "amounts"),
        (_bad_need(sizes={"resources": ["cpu"], "amounts": [1], "counts": [2**31]}), "counts"),
        (_bad_need(sizes={"resources": ["cpu"], "amounts": [-1], "counts": [1]}), "amounts"),
        (_bad_need(aggregate_resources={"cpu": "-1"}), "aggregate_resources"),
        (_bad_need(aggregate_resources={"cpu": "NaN"}), "aggregate_resources"),
        (_bad_need(aggregate_resources={"memory": "9" * 30}), "aggregate_resources"),
        (_bad_need(min_unit={"memory": "-1Gi"}), "min_unit"),
        (_bad_need(interruption_penalty_bucket=28), "interruption_penalty_bucket"),
        (_bad_need(requirements=[{"key": "zone", "operator": 999}]), "operator of zone"),
        (need_codec.need_to_wire(need()), "repeats the profile and group"),
    ],
    ids=lambda case: case.replace(" ", "-") if isinstance(case, str) else "",
)
async def test_a_need_that_cannot_be_is_left_out_by_name(
    tmp_path: Path, faulty: capacity_pb2.CapacityNeed, words: str
) -> None:
    """Everything else of its roll-up is in force."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await still_works(rig, operator, "m-1")
        said = await tell(operator, need_codec.need_to_wire(need()), faulty)
        assert "cluster east, need 1" in said
        assert words in said
        assert len(rig.shard.needs) == 1


async def test_the_largest_need_that_can_be_written_is_only_short(tmp_path: Path) -> None:
    """2^62 bytes are a number like any other: what there is serves it, and the rest is lacking."""
    before = failures()
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        vast = _bad_need(aggregate_resources={"memory": _BYTES}, min_unit={})
        assert await tell(operator, vast) == ""
        await operator.receives_state("m-1", _S.CONFIGURED)
    assert failures() == before


async def test_a_hundred_thousand_profiles_end_at_most_their_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but those within the limit are left out, or the message is: the shard goes on."""
    limit = 100 * demand_limit.MIN_BYTES_OF_A_NEED
    monkeypatch.setattr(demand_limit, "MAX_DEMAND_BYTES", limit)
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        flood = rollup("east")
        flood.needs.extend(need_codec.need_to_wire(need(priority=n)) for n in range(100_000))
        operator = await rig.operator()
        await operator.say(rollup=flood)
        echo = str(flood.timestamp_unix_nanos)
        refused = asyncio.create_task(operator.receives(lambda m: m.ack.echo == echo))
        ended = asyncio.create_task(operator.ends())
        await asyncio.wait((refused, ended), return_when=asyncio.FIRST_COMPLETED)
        if refused.done():
            assert len(refused.result().ack.left_out) == 100_000 - 100
            assert len(rig.shard.needs) == 100
        else:
            assert ended.result()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
        for waiting in (refused, ended):
            waiting.cancel()
        await asyncio.wait((refused, ended))
        again = await rig.operator()
        await still_works(rig, again, "m-1")


@pytest.mark.parametrize("odd", ["M-1", "m_1", "-m", "m.", "m..1", "m 1", "m/1", "m" * 37])
async def test_an_id_that_names_no_node_is_refused_where_it_comes_in(
    tmp_path: Path, odd: str
) -> None:
    """Else such a machine is bought, and then no operator can make a credential for its Node."""
    refused = REGISTRY.get_sample_value("bigfleet_shard_machines_rejected_total") or 0.0
    provider = MemoryProvider([machine(odd), machine("m-1.a")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(2))
        await operator.receives_state("m-1.a", _S.CONFIGURED)
        await cycles(rig, 2)
        assert rig.shard.inventory.view(odd) is None
    assert states(provider.orders) == [("CONFIGURE", "m-1.a")]
    assert (REGISTRY.get_sample_value("bigfleet_shard_machines_rejected_total") or 0) > refused


def test_a_machine_at_work_without_a_host_is_not_believed() -> None:
    """Nothing can have joined a cluster there: the record is refused by name."""
    odd = machine_codec.machine_to_wire(machine("m-1", _S.CONFIGURED, "east", host=""), "p")
    with pytest.raises(InvalidInput, match="m-1 is CONFIGURED but has no host"):
        machine_codec.machine_from_wire(odd)


async def test_a_machine_listed_twice_is_what_it_was_first(tmp_path: Path) -> None:
    """The second record of an id is refused and counted, whatever it says."""
    first, second = machine("m-1"), machine("m-1", _S.FAILED, last_error="which one?")

    class Twice(MemoryProvider):
        async def list(self, *asked: Any, **known: Any) -> AsyncGenerator[Listing, None]:
            async for page in super().list(*asked, **known):
                yield replace(page, machines=[first, second], revision=b"")

    refused = REGISTRY.get_sample_value("bigfleet_shard_machines_rejected_total") or 0.0
    async with shard(Twice(), tmp_path) as rig:
        await eventually(lambda: rig.shard.inventory.state("m-1") is not None)
        assert rig.shard.inventory.state("m-1") is _S.IDLE
    assert (REGISTRY.get_sample_value("bigfleet_shard_machines_rejected_total") or 0) > refused


async def test_an_answer_about_another_machine_is_not_believed(tmp_path: Path) -> None:
    """It fails its own order and tells nothing about the machine that it names."""

    class Confused(MemoryProvider):
        async def create(
            self, machine_id: str, shard_metadata: Mapping[str, str], fence: Fence
        ) -> Operation:
            answer = await super().create(machine_id, shard_metadata, fence)
            return replace(answer, machine=machine("m-2", _S.FAILED))

    provider = Confused([machine("m-1", _S.SPECULATIVE), machine("m-2", zone="b")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await eventually(lambda: "names another machine" in str(rig.journal("m-1")))
        assert rig.shard.inventory.state("m-2") is _S.IDLE


async def test_a_listing_that_lacks_most_machines_is_not_believed_at_once(tmp_path: Path) -> None:
    """The machines count as they were while it is in doubt, and when they are back nothing has
    happened; those that stay away are gone.
    """
    clock, before, fleet = (
        ManualClock(),
        unconfirmed_reductions(),
        [machine(f"m-{n:02}") for n in range(12)],
    )
    provider = MemoryProvider(fleet, auto_finish=True)
    async with shard(provider, tmp_path, clock) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(12))
        await operator.receives_state("m-11", _S.CONFIGURED)
        at_work = [await provider.get(m.id) for m in fleet]
        for lost in fleet[1:]:
            provider.forget(lost.id)
        clock.advance(301)
        await eventually(lambda: unconfirmed_reductions() > before)
        clock.advance(29)
        assert len(rig.shard.inventory) == 12
        for back in at_work[1:-1]:
            provider.report(back)
        clock.advance(6)
        await eventually(lambda: len(rig.shard.inventory) == 11)
        assert "FAILED" not in str([m.node_state_update for m in operator.received if
                                    m.node_state_update.machine_id != "m-11"])  # fmt: skip
        for lost in fleet[1:-1]:
            provider.forget(lost.id)
        before = unconfirmed_reductions()
        clock.advance(301)
        await eventually(lambda: unconfirmed_reductions() > before)
        clock.advance(31)
        await operator.receives_state("m-05", _S.FAILED)
