"""An operator that keeps its session open and does not read."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import transport
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.model.machine import MachineState
from bigfleet.observe import metrics
from bigfleet.services.shard.sessions import servicer, session
from tests.support.shard_rig import Rig, machine, need, shard
from tests.support.waiting import eventually

_S = MachineState
# More than a connection takes for somebody who does not read.
_MACHINES, _LABEL_BYTES = 400, 60_000


def _talkative(cluster: str) -> MemoryProvider:
    """Machines about which there is very much to tell, and one for whoever wants it."""
    labels = {"kubernetes.io/hostname": "x", "long": "x" * _LABEL_BYTES}
    told = [machine(f"m-{n}", _S.CONFIGURED, cluster, labels=labels) for n in range(_MACHINES)]
    return MemoryProvider([*told, machine("spare")], auto_finish=True)


async def _hello(rig: Rig, channel: grpc.aio.Channel, cluster: str) -> Any:
    """A session of an operator that reads nothing."""
    call = ShardStub(channel).Session(None)
    await call.write(shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id=cluster)))
    await eventually(lambda: rig.shard.sessions.of(cluster) is not None)
    return call


async def _reads_on(call: Any) -> None:
    """Read what had come already, to the end of the session."""
    with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
        while await call.read() is not vars(grpc.aio)["EOF"]:  # the stubs forget it
            pass


async def test_the_session_of_an_operator_that_does_not_read_is_terminated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted, its cluster counts as away, and the others are served meanwhile; whoever
    dials again is told everything.
    """
    monkeypatch.setattr(servicer, "READ_TIMEOUT_SECONDS", 4.0)
    before = metrics.shard_stalled_sessions._value.get()
    async with shard(_talkative("deaf"), tmp_path) as rig:
        await eventually(lambda: len(rig.shard.inventory) == _MACHINES + 1)
        async with transport.channel(rig.address) as channel:
            call = await _hello(rig, channel, "deaf")
            other = await rig.operator("other")
            await other.roll_up(need())
            await other.receives_state("spare", _S.CONFIGURED)
            await eventually(lambda: rig.shard.sessions.of("deaf") is None)
            assert metrics.shard_stalled_sessions._value.get() == before + 1
            await _reads_on(call)
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "read nothing for 4 s; reconnect" in str(await call.details())
        again = await rig.operator("deaf")
        await again.receives_state(f"m-{_MACHINES - 1}", _S.CONFIGURED)
        assert rig.shard.sessions.of("other") is not None


async def test_a_replaced_session_ends_though_its_operator_does_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each such session would keep its messages in memory for as long as its process lives."""
    monkeypatch.setattr(servicer, "READ_TIMEOUT_SECONDS", 4.0)
    before = metrics.shard_stalled_sessions._value.get()
    async with shard(_talkative("deaf"), tmp_path) as rig:
        await eventually(lambda: len(rig.shard.inventory) == _MACHINES + 1)
        async with transport.channel(rig.address) as channel:
            await _hello(rig, channel, "deaf")
            newer = await rig.operator("deaf")
            await eventually(lambda: metrics.shard_stalled_sessions._value.get() == before + 1)
        assert newer.status is None
        assert rig.shard.sessions.of("deaf") is not None


async def test_an_abandoned_request_is_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An operator that reads again after hours would begin to empty Nodes that are needed."""
    monkeypatch.setattr(session, "ANSWER_TIMEOUT_SECONDS", 0.05)
    deaf = session.Session("deaf", iter(range(10)))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await deaf.instruct_reclaim("m-1", 30, 0)
    with pytest.raises(TimeoutError):
        await deaf.request_bootstrap("m-2", ())
    assert len(deaf.outbox) == 0
