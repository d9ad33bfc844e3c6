"""Inquiries of operators about machines that still have objects in their cluster."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.sessions import registry
from tests.support.shard_rig import FakeOperator, cycles, machine, need, shard

_S = MachineState


async def ask(operator: FakeOperator, *machine_ids: str) -> None:
    """Inquire after machines."""
    await operator.say(inquiry=shard_pb2.NodeStateInquiry(machine_ids=machine_ids))


def told(operator: FakeOperator) -> list[tuple[str, int]]:
    """Machines and states, in the order in which they were told."""
    updates = (m.node_state_update for m in operator.received if m.HasField("node_state_update"))
    return [(update.machine_id, update.state) for update in updates]


async def test_machines_that_left_are_told_and_nothing_is_claimed_of_others(
    tmp_path: Path,
) -> None:
    """One that is at work elsewhere has left as surely as one given back; of one's own, all has
    been said; of an unknown one nobody can say that it has left.
    """
    fleet = [
        machine("m-back", _S.SPECULATIVE),
        machine("m-idle"),
        machine("m-elsewhere", _S.CONFIGURED, "west"),
        machine("m-made-anew", _S.CREATING),
        machine("m-own", _S.CONFIGURED, "east"),
    ]
    async with shard(MemoryProvider(fleet), tmp_path) as rig:
        operator = await rig.operator()
        await ask(operator, *(m.id for m in fleet), "m-unknown", "näme")
        await operator.receives_state("m-made-anew", _S.SPECULATIVE)
        await operator.roll_up(need(2))
        await operator.receives_state("m-idle", _S.CONFIGURING)
    assert sorted(told(operator)) == [
        ("m-back", _S.SPECULATIVE),
        ("m-elsewhere", _S.SPECULATIVE),
        ("m-idle", _S.IDLE),
        ("m-idle", _S.CONFIGURING),
        ("m-made-anew", _S.SPECULATIVE),
        ("m-own", _S.CONFIGURED),
    ]


async def test_a_machine_that_is_about_to_join_is_not_said_to_have_left(tmp_path: Path) -> None:
    """While its order is under way it counts as undecided, and then it is this cluster's."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need())
        request = await operator.receives(lambda m: m.bootstrap_request.request_id != "")
        await ask(operator, "m-1")
        await cycles(rig, 2)
        assert told(operator) == []
        blob = shard_pb2.BootstrapBlobResponse(
            request_id=request.bootstrap_request.request_id, user_data=b"blob"
        )
        await operator.say(bootstrap_response=blob)
        await operator.receives_state("m-1", _S.CONFIGURED)
    assert _S.IDLE not in {state for _, state in told(operator)}


@pytest.mark.parametrize("is_created", [False, True])
async def test_a_machine_that_was_to_come_and_does_not_is_told_to_have_left(
    tmp_path: Path, is_created: bool
) -> None:
    """Its cluster was told of it by an earlier process, and pods would wait for it for good."""
    provider = MemoryProvider([machine("m-1", _S.SPECULATIVE)])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CREATING)
    if is_created:
        provider.finish("m-1")
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await ask(operator, "m-1")
        await cycles(rig, 3)
        assert _S.SPECULATIVE not in {state for _, state in told(operator)}
        await operator.roll_up()
        await operator.receives_state("m-1", _S.SPECULATIVE)


async def test_a_question_waits_for_the_first_listing(tmp_path: Path) -> None:
    """A shard that has just begun knows no machine; it answers once it does."""
    provider = MemoryProvider()
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await ask(operator, "m-late")
        await cycles(rig, 2)
        assert told(operator) == []
        provider.report(machine("m-late", _S.FAILED, last_error="broken"))
        update = await operator.receives_state("m-late", _S.FAILED)
    assert update.last_error == "broken"


async def test_a_cluster_cannot_ask_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More machines than a cluster can hold end the session, with a sentence that says so."""
    monkeypatch.setattr(registry, "MAX_ASKED", 3)
    async with shard(MemoryProvider(), tmp_path) as rig:
        operator = await rig.operator()
        await ask(operator, "a", "b", "c", "d")
        status, details = await operator.ends()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert "Inquiry: machine_ids" in details


async def test_an_eviction_that_the_shard_forgot_is_carried_through(tmp_path: Path) -> None:
    """Its disk is lost, and the operator goes on emptying the Node: without a drain the machine
    would pass for one at work, and nobody could run on it.
    """
    fleet = [
        machine("m-emptied", _S.CONFIGURED, "east"),
        machine("m-elsewhere", _S.CONFIGURED, "west"),
        machine("m-own", _S.CONFIGURED, "east"),
    ]
    provider = MemoryProvider(fleet)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need(2))
        drains = [
            shard_pb2.NodeDrain(machine_id=name, seconds_left=30)
            for name in ("m-emptied", "m-elsewhere", "m-unknown")
        ]
        await operator.say(inquiry=shard_pb2.NodeStateInquiry(drains=drains))
        await operator.receives_state("m-emptied", _S.DRAINING)
        await cycles(rig, 3)
        assert (tmp_path / "evictions.jsonl").read_bytes().count(b"m-emptied") == 1
    orders = [m.reclaim_instruction for m in operator.received if m.HasField("reclaim_instruction")]
    assert [(list(each.nodes), each.grace_period_seconds) for each in orders] == [
        (["m-emptied"], 30)
    ]
    assert [name for call, name, _ in provider.orders if call == "DRAIN"] == ["m-emptied"]
