"""A shard as seen by its operators and its provider, over real sessions."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import grpc
import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.capacity_pb2 import NodeSelectorRequirement
from bigfleet.engine.decision import ActionType
from bigfleet.model.errors import BigFleetError, IllegalTransition, Unavailable
from bigfleet.model.group import PodGroup
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.model.need import Need, Operator, Requirement, Spread, profile
from bigfleet.observe import metrics
from bigfleet.observe.metrics import REGISTRY
from bigfleet.ports.provider import Fence
from bigfleet.services.shard import role
from bigfleet.services.shard.config import ShardConfig
from bigfleet.services.shard.demand.rollup_rows import MAX_NEED_BYTES
from tests.support.shard_rig import FakeOperator, machine, need, rollup, shard, states
from tests.support.waiting import eventually

_S = MachineState


async def test_a_need_becomes_a_configured_machine(tmp_path: Path) -> None:
    """A roll-up leads to a blob, a configured machine, and news of it to the operator."""
    provider = MemoryProvider([machine("m-1")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        assert (await operator.roll_up(need())).rejected == ""
        await operator.receives_state("m-1", _S.CONFIGURING)
        provider.finish("m-1")
        update = await operator.receives_state("m-1", _S.CONFIGURED)
    assert provider.blobs == {"m-1": b"blob for m-1"}
    assert update.supersedes_key == "node:m-1"
    assert update.cluster_id == "east"
    assert update.node_name == "m-1"
    assert update.provider_id == "bigfleet://memory/m-1"
    assert update.labels["kubernetes.io/hostname"] == "m-1"
    assert update.labels["topology.bigfleet/rack"] == "rack-1"
    assert update.labels["bigfleet.lucy.sh/capacity-type"] == "on-demand"
    assert update.resources.resources["cpu"] == "4"


async def test_actions_that_never_happened_are_reported_as_none(tmp_path: Path) -> None:
    """Every kind reads 0 from the start: what is absent cannot be told from what is misspelt."""
    metrics.shard_actions.clear()
    async with shard(MemoryProvider([machine("m-1")]), tmp_path):
        counts = {
            action_type: REGISTRY.get_sample_value(
                "bigfleet_shard_actions_total", {"type": action_type.value}
            )
            for action_type in ActionType
        }
    assert counts == dict.fromkeys(ActionType, 0)


async def test_the_bootstrap_request_names_machine_and_requirements(tmp_path: Path) -> None:
    """The operator learns which machine will join, and its own value of each label that the need's
    pods are placed by: which zone of two it is, and which rack they spread over.
    """
    rack, zone = "topology.bigfleet/rack", "topology.kubernetes.io/zone"
    need_profile = profile(
        [Requirement(zone, Operator.IN, ("a", "b")), Requirement("gone", Operator.DOES_NOT_EXIST)],
        [Spread(rack, 1, hard=True)],
        0,
        1,
        1,
        alternatives=[[Requirement("team", Operator.EXISTS)], [Requirement("x", Operator.EXISTS)]],
    )
    wanted = Need(need_profile, need().sizes, PodGroup('["spread"]'))
    labels = {rack: "r7", "team": "ml", "other": "y"}
    async with shard(MemoryProvider([machine("m-1", labels=labels)]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        received = await operator.receives(lambda m: m.bootstrap_request.request_id != "")
    request = received.bootstrap_request
    assert (request.machine_id, request.cluster_id) == ("m-1", "east")
    assert {r.operator for r in request.requirements} == {NodeSelectorRequirement.IN}
    told = {r.key: list(r.values) for r in request.requirements}
    assert told == {"team": ["ml"], rack: ["r7"], zone: ["a"]}


async def test_a_missing_machine_is_bought_then_bound(tmp_path: Path) -> None:
    """A need that only a speculative machine can serve has it created, then configured."""
    provider = MemoryProvider([machine("m-1", _S.SPECULATIVE)], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
    assert states(provider.orders) == [("CREATE", "m-1"), ("CONFIGURE", "m-1")]
    sequences = [(fence.epoch, fence.sequence) for _, _, fence in provider.orders]
    assert sequences == [(1, 1), (1, 2)]


async def test_unneeded_machines_are_drained_and_released(tmp_path: Path) -> None:
    """An empty roll-up reclaims through the operator; the idle machine goes after its hold."""
    clock = ManualClock()
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path, clock) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
        await operator.roll_up()
        instruction = await operator.receives(lambda m: m.reclaim_instruction.instruction_id != "")
        idle = await operator.receives_state("m-1", _S.IDLE)
        assert idle.cluster_id == "east"
        clock.advance(601)
        await eventually(lambda: rig.shard.inventory.state("m-1") is _S.SPECULATIVE)
    assert list(instruction.reclaim_instruction.nodes) == ["m-1"]
    assert instruction.reclaim_instruction.grace_period_seconds == 600
    assert states(provider.orders) == [("CONFIGURE", "m-1"), ("DRAIN", "m-1"), ("DELETE", "m-1")]


async def test_a_machine_being_created_is_announced_to_its_cluster(tmp_path: Path) -> None:
    """Its record names no cluster yet. When nobody wants it any more, it is heard of as gone."""
    elastic = machine("m-1", _S.SPECULATIVE)
    async with shard(MemoryProvider([elastic]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        coming = await operator.receives_state("m-1", _S.CREATING)
        assert dict(coming.resources.resources)
        await operator.roll_up()
        await operator.receives_state("m-1", _S.SPECULATIVE)


async def test_nothing_is_drained_without_the_operators_acknowledgement(tmp_path: Path) -> None:
    """A reclaim that the operator has not acknowledged never reaches the provider."""
    bound = machine("m-1", _S.CONFIGURED, "east")
    provider = MemoryProvider([bound])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up()
        await operator.receives(lambda m: m.reclaim_instruction.instruction_id != "")
        await operator.leave()
        await eventually(lambda: "unavailable" in str(rig.journal("m-1")))
        second = await rig.operator()
        await second.roll_up()
        await second.receives_state("m-1", _S.DRAINING)
    assert states(provider.orders) == [("DRAIN", "m-1")]


async def test_clusters_that_have_not_reported_lose_nothing(tmp_path: Path) -> None:
    """A machine of a cluster that has sent no roll-up since the start is left alone."""
    bound = [machine("m-1", _S.CONFIGURED, "east"), machine("m-2", _S.CONFIGURED, "west")]
    provider = MemoryProvider(bound)
    async with shard(provider, tmp_path) as rig:
        east, west = await rig.operator("east"), await rig.operator("west")
        await east.roll_up()
        await east.receives_state("m-1", _S.DRAINING)
        assert not [m for m in west.received if m.reclaim_instruction.instruction_id]


async def test_a_bad_need_does_not_keep_the_others_from_machines(tmp_path: Path) -> None:
    """It is left out by itself, and the answer says which it is and what is wrong with it."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    rejected_items = (
        REGISTRY.get_sample_value("bigfleet_shard_rollup_entries_rejected_total") or 0.0
    )
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        bad = rollup("east", need(group="bad"), need(2))
        bad.needs[0].requirements[0].values.append("x" * MAX_NEED_BYTES)
        await operator.say(rollup=bad)
        await operator.receives_state("m-2", _S.CONFIGURED)
        ack = (await operator.receives(lambda m: m.ack.echo == str(bad.timestamp_unix_nanos))).ack
        assert ack.rejected == ""
        [told] = ack.rejected_items
        assert told.index == 0
        assert told.why.startswith("cluster east, need 0: 26")
        assert "bytes exceed the limit" in told.why
    assert (
        REGISTRY.get_sample_value("bigfleet_shard_rollup_entries_rejected_total") or 0.0
    ) == rejected_items + 1
    journal = (tmp_path / "journal.jsonl").read_text()
    assert "rollup-accepted-in-part" in journal


async def test_a_rollup_that_is_all_bad_is_refused_as_a_whole(tmp_path: Path) -> None:
    """The session lives on, the refusal names the fault, and the last good roll-up stays."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
        bad = rollup("east", need(2))
        bad.needs[0].aggregate_resources["cpu"] = "four"
        await operator.say(rollup=bad)
        ack = await operator.receives(lambda m: m.ack.echo == str(bad.timestamp_unix_nanos))
        assert "cluster east, need 0" in ack.ack.rejected
        assert "four" in ack.ack.rejected
        assert (await operator.roll_up(need())).rejected == ""
    assert states(provider.orders) == [("CONFIGURE", "m-1")]


async def test_a_rollup_for_another_cluster_is_refused(tmp_path: Path) -> None:
    """An operator speaks for the cluster of its Hello only."""
    async with shard(MemoryProvider(), tmp_path) as rig:
        operator = await rig.operator("east")
        stray = rollup("west", need())
        await operator.say(rollup=stray)
        ack = await operator.receives(lambda m: m.ack.echo == str(stray.timestamp_unix_nanos))
        assert "the session's, east" in ack.ack.rejected


async def test_a_session_begins_with_hello(tmp_path: Path) -> None:
    """Anything else first ends the stream with INVALID_ARGUMENT, and so does a second Hello."""
    async with shard(MemoryProvider(), tmp_path) as rig:
        stranger = rig.stranger()
        await stranger.say(rollup=rollup("east"))
        status, details = await stranger.ends()
        assert status is grpc.StatusCode.INVALID_ARGUMENT
        assert "Hello" in details
        operator = await rig.operator()
        await operator.say(hello=shard_pb2.Hello(cluster_id="east"))
        assert (await operator.ends())[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_newer_session_replaces_the_older(tmp_path: Path) -> None:
    """The older stream ends with ABORTED; the newer one hears the state of its machines."""
    provider = MemoryProvider([machine("m-1", _S.CONFIGURED, "east")])
    async with shard(provider, tmp_path) as rig:
        older = await rig.operator()
        newer = await rig.operator()
        status, details = await older.ends()
        assert status is grpc.StatusCode.ABORTED
        assert "newer session" in details
        await newer.receives_state("m-1", _S.CONFIGURED)
        assert (await newer.roll_up(need())).rejected == ""
        assert rig.shard.sessions.clusters() == ["east"]


async def test_an_unreachable_provider_stops_nothing_for_good(tmp_path: Path) -> None:
    """Without its provider a shard decides nothing and says so; with it back, it goes on."""
    (tmp_path / "epoch").write_text("7\n")
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    provider.reachable = False
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        assert (await operator.roll_up(need())).rejected == ""
        await eventually(lambda: "cycles failed" in rig.shard.cycle.not_ready())
        provider.reachable = True
        await operator.receives_state("m-1", _S.CONFIGURED)
        assert rig.shard.cycle.not_ready() == ""


async def test_a_restart_keeps_machines_and_raises_the_epoch(tmp_path: Path) -> None:
    """A restarted shard knows what each machine is for from the provider and orders nothing new."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    wanted = need(priority=7, group="default/app=db")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        await operator.receives_state("m-1", _S.CONFIGURED)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.receives_state("m-1", _S.CONFIGURED)
        view = rig.shard.inventory.view("m-1")
        assert view is not None
        assert view.need == ("east", wanted.profile.fingerprint, "default/app=db")
        assert (await operator.roll_up(wanted)).rejected == ""
        await operator.roll_up(wanted, need(2, priority=1))
        await operator.receives_state("m-2", _S.CONFIGURED)
    assert states(provider.orders) == [("CONFIGURE", "m-1"), ("CONFIGURE", "m-2")]
    assert [fence.epoch for _, _, fence in provider.orders] == [1, 2]


async def test_a_refused_bootstrap_frees_the_machine(tmp_path: Path) -> None:
    """An operator that cannot take a machine now is asked again; nothing is configured blindly."""
    provider = MemoryProvider([machine("m-1")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need())
        received = await operator.receives(lambda m: m.bootstrap_request.request_id != "")
        first = received.bootstrap_request
        no = shard_pb2.BootstrapBlobResponse(request_id=first.request_id, error="no token today")
        await operator.say(bootstrap_response=no)
        again = await operator.receives(
            lambda m: m.bootstrap_request.request_id not in ("", first.request_id)
        )
        assert rig.shard.inventory.state("m-1") is _S.IDLE
        yes = shard_pb2.BootstrapBlobResponse(
            request_id=again.bootstrap_request.request_id, user_data=b"blob"
        )
        await operator.say(bootstrap_response=yes)
        await operator.receives_state("m-1", _S.CONFIGURING)
    assert "no token today" in str(rig.journal("m-1"))


async def test_a_lost_spot_machine_is_adopted_and_replaced(tmp_path: Path) -> None:
    """A machine that fails while serving is adopted, counted, told, and its need served anew."""
    spot = CapacityType.SPOT
    machines = [machine("m-1", capacity_type=spot), machine("m-2", capacity_type=spot)]
    provider = MemoryProvider(machines)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURING)
        provider.finish("m-1")
        await operator.receives_state("m-1", _S.CONFIGURED)
        provider.fail("m-1", "spot capacity reclaimed")
        failed = await operator.receives_state("m-1", _S.FAILED)
        await operator.receives_state("m-2", _S.CONFIGURING)
    assert failed.last_error == "spot capacity reclaimed"


async def test_a_move_outside_the_lifecycle_is_adopted(tmp_path: Path) -> None:
    """Provider truth wins where the lifecycle has no such move, and the move is counted."""
    provider = MemoryProvider([machine("m-1", _S.CONFIGURED, "east")])
    before = _adopted("CONFIGURED->SPECULATIVE")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.receives_state("m-1", _S.CONFIGURED)
        provider.report(machine("m-1", _S.SPECULATIVE))
        gone = await operator.receives_state("m-1", _S.SPECULATIVE)
        await eventually(lambda: bool(rig.journal("m-1")[-1].get("note")))
        assert rig.journal("m-1")[-1]["note"] == "adopted: CONFIGURED->SPECULATIVE"
    assert gone.cluster_id == "east"
    assert _adopted("CONFIGURED->SPECULATIVE") == before + 1


def _adopted(move: str) -> float:
    name = "bigfleet_shard_unexpected_transitions_total"
    return REGISTRY.get_sample_value(name, {"move": move}) or 0.0


async def test_fencing_ends_all_orders(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An order refused as stale means that a newer shard is alive: this one falls silent, and says
    so as an incident.
    """
    provider = MemoryProvider([machine("m-1"), machine("m-2", zone="b")])
    clock, incidents = ManualClock(), metrics.shard_incidents.labels("fenced-by-provider")
    before = incidents._value.get()
    async with shard(provider, tmp_path, clock) as rig:
        operator = await rig.operator()
        with pytest.raises(IllegalTransition):
            await provider.drain("m-1", 0, Fence("shard-0", 2, 1))
        await operator.roll_up(need())
        await eventually(lambda: "newer epoch" in rig.shard.cycle.not_ready())
        await operator.roll_up(need(), need(zone="b"))
        clock.advance(6)
        await operator.receives(lambda m: m.available_capacity.supersedes_key != "")
    assert provider.orders == []
    assert incidents._value.get() == before + 1
    (told,) = [r.message for r in caplog.records if r.levelno == logging.CRITICAL]
    assert told.startswith("incident: fenced: another process of this shard")


async def test_hints_show_available_capacity(tmp_path: Path) -> None:
    """HIGH with idle machines, MEDIUM with speculative ones, NONE without any, one per profile."""
    clock = ManualClock()
    idle = [machine(f"idle-{n}", zone="b") for n in range(3)]
    speculative = [machine(f"spec-{n}", _S.SPECULATIVE, zone="c") for n in range(3)]
    async with shard(MemoryProvider(idle + speculative), tmp_path, clock) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(*(need(zone=zone) for zone in "abc"))
        clock.advance(6)
        hints = [await _hint(operator, zone) for zone in "abc"]
    levels = shard_pb2.AvailableCapacityUpdate
    assert [h.confidence for h in hints] == [levels.NONE, levels.HIGH, levels.MEDIUM]
    assert hints[0].available_count == 0
    assert hints[1].available_count in (2, 3)
    assert hints[1].cost_per_hour == 0.2
    assert hints[1].resources.resources["cpu"] == "4"


async def test_hints_are_rate_limited_and_sent_on_change_only(tmp_path: Path) -> None:
    """Supply that changes is told five seconds later, once; a new session hears all of it."""
    clock = ManualClock()
    provider = MemoryProvider([machine("m-1", zone="b")])
    async with shard(provider, tmp_path, clock) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need(2))
        clock.advance(6)
        await _hint(operator, "a")
        provider.report(machine("m-2", _S.SPECULATIVE, price_per_hour=0.7))
        provider.report(machine("m-3", _S.SPECULATIVE, price_per_hour=0.7))
        await eventually(lambda: rig.shard.inventory.state("m-3") is _S.CREATING)
        assert _hints_heard(operator) == [0]
        provider.report(machine("m-4", _S.SPECULATIVE, price_per_hour=0.7))
        await eventually(lambda: rig.shard.inventory.state("m-4") is not None)
        clock.advance(6)
        await operator.receives(lambda m: m.available_capacity.available_count == 1)
        await operator.roll_up(need(2), need(0.1, zone="b"))
        clock.advance(6)
        await _hint(operator, "b")
        await operator.roll_up(need(2))
        assert _hints_heard(operator) == [0, 1]
        newer = await rig.operator(helpful=False)
        clock.advance(6)
        assert (await _hint(newer, "a")).available_count == 1


async def test_a_hint_is_withdrawn_when_nobody_asks_for_it_any_more(tmp_path: Path) -> None:
    """Once; and told again when somebody does."""
    clock = ManualClock()
    async with shard(MemoryProvider([machine("m-1", zone="c")]), tmp_path, clock) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need(zone="a"), need(zone="b"))
        clock.advance(6)
        kept = (await _hint(operator, "b")).supersedes_key
        gone = (await _hint(operator, "a")).supersedes_key
        await operator.roll_up(need(zone="b"))
        clock.advance(6)
        told = await operator.receives(lambda m: m.available_capacity.withdrawn)
        assert told.available_capacity.supersedes_key == gone
        operator.received.clear()
        await operator.roll_up(need(zone="a"), need(zone="b"))
        clock.advance(6)
        assert not (await _hint(operator, "a")).withdrawn
        assert not [m for m in operator.received if m.available_capacity.supersedes_key == kept]


def _hints_heard(operator: FakeOperator) -> list[int]:
    key = f"capacity:{need().profile.fingerprint}"
    hints = [m.available_capacity for m in operator.received]
    return [hint.available_count for hint in hints if hint.supersedes_key == key]


async def _hint(operator: FakeOperator, zone: str) -> shard_pb2.AvailableCapacityUpdate:
    key = f"capacity:{need(zone=zone).profile.fingerprint}"
    received = await operator.receives(lambda m: m.available_capacity.supersedes_key == key)
    return received.available_capacity


async def test_the_journal_tells_a_machines_story(tmp_path: Path) -> None:
    """Each step of a machine is one JSON line with time, machine, need and group."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    wanted = need(group="default/app=db")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(wanted)
        await operator.receives_state("m-1", _S.CONFIGURED)
        await operator.roll_up()
        await operator.receives_state("m-1", _S.IDLE)
    story = rig.journal("m-1")
    assert [(line["event"], line.get("state")) for line in story] == [
        ("decided", None),
        ("bootstrap-requested", None),
        ("bootstrap-received", None),
        ("configure-sent", None),
        ("state", "CONFIGURING"),
        ("state", "CONFIGURED"),
        ("decided", None),
        ("reclaim-sent", None),
        ("reclaim-acknowledged", None),
        ("drain-sent", None),
        ("state", "DRAINING"),
        ("state", "IDLE"),
    ]
    assert all(line["cluster"] == "east" for line in story)
    assert {line["need"] for line in story[:6]} == {wanted.profile.fingerprint}
    assert {line["group"] for line in story[:6]} == {"default/app=db"}
    times = [line["at"] for line in story]
    assert times == sorted(times)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    rollups = [line for line in lines if line["event"] == "rollup-accepted"]
    assert [(line["cluster"], line["needs"]) for line in rollups] == [("east", 1), ("east", 0)]


def _settings(tmp_path: Path, port: int = 0) -> ShardConfig:
    return ShardConfig("shard-0", port, 0, ("127.0.0.1:1",), tmp_path)


@pytest.mark.parametrize("epoch", ["", "7\n"])
async def test_a_stopped_shard_closes_cleanly(tmp_path: Path, epoch: str) -> None:
    """`run` returns soon after `stop`, even while its provider never answered."""
    if epoch:
        (tmp_path / "epoch").write_text(epoch)
    stop = asyncio.Event()
    running = asyncio.create_task(role.run(_settings(tmp_path), stop))
    await eventually((tmp_path / "lock").exists)
    await asyncio.sleep(0.2)
    assert not running.done()
    stop.set()
    await asyncio.wait_for(running, 20)


async def test_a_shard_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A damaged epoch file and an unusable journal end the start with a sentence."""
    (tmp_path / "epoch").write_text("seven\n")
    with pytest.raises(BigFleetError, match="epoch: holds b'seven"):
        await role.run(_settings(tmp_path), asyncio.Event())
    blocked = ShardConfig(
        "s", 0, 0, ("127.0.0.1:1",), tmp_path / "s", journal=tmp_path / "epoch" / "j"
    )
    with pytest.raises(BigFleetError, match="journal"):
        await role.run(blocked, asyncio.Event())


async def test_an_address_that_cannot_be_bound_is_named(tmp_path: Path) -> None:
    """Listening where this host has no address ends the start with that address."""
    (tmp_path / "epoch").write_text("7\n")
    settings = ShardConfig("s", 0, 0, ("127.0.0.1:1",), tmp_path, listen_host="192.0.2.1")
    with pytest.raises(Unavailable, match=r"cannot listen on 192\.0\.2\.1:0"):
        await role.run(settings, asyncio.Event())
