"""What a shard does when its peers, its machines or its own parts fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
import pytest

from bigfleet.adapters.clock.manual import ManualClock
from bigfleet.adapters.host.instant import InstantHost
from bigfleet.adapters.provider.grpc import GrpcProvider
from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.api.v1alpha1.shard_pb2_grpc import ShardStub
from bigfleet.engine.decision import Decision
from bigfleet.model.machine import CapacityType, MachineState
from bigfleet.observe.metrics import REGISTRY
from bigfleet.ports.provider import Fence, Listing, Operation
from bigfleet.services.provider.config import ProviderConfig
from bigfleet.services.provider.role import serving as serving_provider
from bigfleet.services.shard.decide import cycle
from bigfleet.services.shard.sessions.outbox import MAX_UNKEYED
from bigfleet.services.shard.sessions.registry import Sessions
from bigfleet.services.shard.sessions.servicer import SessionServicer
from tests.support.shard_rig import Rig, cycles, machine, need, rollup, shard, states
from tests.support.waiting import eventually

_S = MachineState


class SlowListing(MemoryProvider):
    """Its listings are taken at once but arrive only while `open` is set."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = asyncio.Event()

    async def list(self, *asked: Any, **known: Any) -> AsyncGenerator[Listing, None]:
        async for page in super().list(*asked, **known):
            if not self.open.is_set():
                self.waiting.set()
                await self.open.wait()
            yield page


def reclaims(message: shard_pb2.ShardMessage) -> bool:
    """Whether it tells the operator to drain Nodes."""
    return message.reclaim_instruction.instruction_id != ""


async def test_a_late_listing_does_not_undo_an_answer(tmp_path: Path) -> None:
    """A record taken before an order was executed is ignored; other changes are listed again."""
    provider = SlowListing([machine("m-1")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need())
        request = await operator.receives(lambda m: m.bootstrap_request.request_id != "")
        provider.report(machine("m-1", price_per_hour=0.5))
        provider.open.clear()
        await provider.waiting.wait()
        await operator.say(bootstrap_response=_blob(request))
        await operator.receives_state("m-1", _S.CONFIGURING)
        provider.open.set()
        provider.finish("m-1")
        await operator.receives_state("m-1", _S.CONFIGURED)
    seen = [line["state"] for line in rig.journal("m-1") if line["event"] == "state"]
    assert seen == ["CONFIGURING", "CONFIGURED"]
    assert not any("note" in line for line in rig.journal("m-1"))


async def test_what_a_late_listing_said_besides_is_not_lost(tmp_path: Path) -> None:
    """A record set aside for an order that then failed is asked for again."""
    provider = SlowListing([machine("m-1")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need())
        request = await operator.receives(lambda m: m.bootstrap_request.request_id != "")
        provider.report(machine("m-1", price_per_hour=0.5))
        provider.open.clear()
        await provider.waiting.wait()
        provider.reachable = False
        await operator.say(bootstrap_response=_blob(request))
        await eventually(lambda: "unavailable" in str(rig.shard.cycle.journal.story("m-1")))
        provider.reachable = True
        provider.open.set()
        await eventually(lambda: _price(rig) == 0.5)


def _blob(request: shard_pb2.ShardMessage) -> shard_pb2.BootstrapBlobResponse:
    number = request.bootstrap_request.request_id
    return shard_pb2.BootstrapBlobResponse(request_id=number, user_data=b"blob")


def _price(rig: Rig) -> float:
    view = rig.shard.inventory.view("m-1")
    assert view is not None
    return view.machine_class.price_per_hour


class SlowAnswers(MemoryProvider):
    """Machines join before the answer to the order to configure them arrives."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.open = asyncio.Event()

    async def configure(
        self,
        machine_id: str,
        cluster: str,
        bootstrap_blob: bytes,
        shard_metadata: Mapping[str, str],
        fence: Fence,
    ) -> Operation:
        answer = await super().configure(machine_id, cluster, bootstrap_blob, shard_metadata, fence)
        self.finish(machine_id)
        await self.open.wait()
        return answer


async def test_a_late_answer_does_not_undo_a_listing(tmp_path: Path) -> None:
    """An answer that took longer than the machine's joining does not make it join again."""
    provider = SlowAnswers([machine("m-1")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
        provider.open.set()
        await eventually(lambda: not rig.shard.cycle.orders.of("m-1"))
        assert rig.shard.inventory.state("m-1") is _S.CONFIGURED
    notes = [line.get("note") for line in rig.journal("m-1") if line["event"] == "state"]
    assert notes == [None], "its own order explains the move"


async def test_a_machine_missing_from_a_full_listing_is_gone(tmp_path: Path) -> None:
    """Its cluster is told FAILED, and its need is served by another machine."""
    clock = ManualClock()
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path, clock) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await operator.receives_state("m-1", _S.CONFIGURED)
        provider.forget("m-1")
        clock.advance(301)
        gone = await operator.receives_state("m-1", _S.FAILED)
        await operator.receives_state("m-2", _S.CONFIGURED)
    assert "no longer" in gone.last_error
    assert rig.journal("m-1")[-1]["state"] == "GONE"


async def test_an_order_for_an_unknown_machine_causes_a_full_listing(tmp_path: Path) -> None:
    """The provider's not knowing a machine brings a full listing at once."""
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        await eventually(lambda: rig.shard.inventory.state("m-1") is not None)
        provider.forget("m-1")
        await operator.roll_up(need())
        await operator.receives_state("m-2", _S.CONFIGURED)
        assert rig.shard.inventory.state("m-1") is None
    assert states(provider.orders) == [("CONFIGURE", "m-2")]


async def test_a_drain_once_announced_is_carried_through(tmp_path: Path) -> None:
    """Once the operator empties a Node, the drain is repeated until the provider answers."""
    provider = MemoryProvider([machine("m-1", _S.CONFIGURED, "east")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up()
        told = await operator.receives(reclaims)
        provider.reachable = False
        instruction = told.reclaim_instruction.instruction_id
        await operator.say(reclaim_ack=shard_pb2.ReclaimAck(instruction_id=instruction))
        await eventually(lambda: "drain-unanswered" in str(rig.journal("m-1")))
        provider.reachable = True
        await operator.receives_state("m-1", _S.DRAINING)
        asked = [m for m in operator.received if m.reclaim_instruction.instruction_id]
        assert len(asked) == 1


async def test_a_reclaim_whose_answer_is_lost_is_repeated_at_no_higher_cost(
    tmp_path: Path,
) -> None:
    """Without its limit the operator would drain the Node whatever has come to run there."""

    provider = MemoryProvider([machine("m-1", _S.CONFIGURED, "east")])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up()
        first = (await operator.receives(reclaims)).reclaim_instruction
        await operator.leave()
        next_operator = await rig.operator(helpful=False)
        again = (await next_operator.receives(reclaims)).reclaim_instruction
    async with shard(provider, tmp_path) as rig:  # a restart remembers it as well
        last = await rig.operator(helpful=False)
        restarted = (await last.receives(reclaims)).reclaim_instruction
    assert [each.HasField("max_cost") for each in (first, again, restarted)] == [True] * 3
    assert first.max_cost == again.max_cost == restarted.max_cost == 0


async def test_a_need_whose_preemption_nobody_carries_out_gets_another_machine(
    tmp_path: Path,
) -> None:
    """The victim's operator was told, or not, and is away since then."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path, cluster_absence_seconds=1.0) as rig:
        victim = await rig.operator("east")
        await victim.roll_up(need())
        await victim.receives_state("m-1", _S.CONFIGURED)
        victim.helpful = False
        urgent = await rig.operator("west")
        await urgent.roll_up(need(priority=1000))
        await victim.receives(reclaims)
        provider.report(machine("m-2"))
        await cycles(rig, 5)
        assert rig.shard.inventory.state("m-2") is _S.IDLE, "m-1 is on its way"
        await victim.leave()
        await urgent.receives_state("m-2", _S.CONFIGURED)


async def test_what_is_too_much_at_once_is_derived_again(tmp_path: Path) -> None:
    """One order of a cluster at a time; all five machines serve in the end."""
    provider = MemoryProvider([machine(f"m-{n}") for n in range(5)], auto_finish=True)
    before = _dropped()
    async with shard(provider, tmp_path, execute_concurrency=1) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need(5))
        await operator.receives(lambda m: m.bootstrap_request.request_id != "")
        await eventually(lambda: _dropped() > before)
        assert rig.journal("m-1") == []
        asked = [m for m in operator.received if m.bootstrap_request.request_id]
        assert len(asked) == 1
        helper = await rig.operator()
        await asyncio.gather(*(helper.receives_state(f"m-{n}", _S.CONFIGURED) for n in range(5)))


async def test_many_clusters_share_what_a_shard_does_at_once(tmp_path: Path) -> None:
    """All orders of a large fleet's first fill would time out together. Each cluster has one order
    at a time then, and one whose operator does not answer delays no other.
    """
    clusters = [f"c{number}" for number in range(6)]
    provider = MemoryProvider([machine(f"m-{n}") for n in range(18)], auto_finish=True)
    async with shard(provider, tmp_path, execute_concurrency=2) as rig:
        silent = [await rig.operator(cluster, helpful=False) for cluster in clusters[:-1]]
        for operator in silent:
            await operator.roll_up(need(3))
        helper = await rig.operator(clusters[-1])
        await helper.roll_up(need(3))
        for _ in range(3):
            await helper.receives(lambda m: m.node_state_update.state == _S.CONFIGURED.value)

        def under_way() -> Counter[str]:
            return Counter(order.cluster for order in rig.shard.cycle.orders)

        # A machine may be seen to serve before the answer to its order is.
        await eventually(lambda: set(under_way()) == set(clusters[:-1]))
        assert sum(under_way().values()) < 2 * len(silent)


def _dropped() -> float:
    return REGISTRY.get_sample_value("bigfleet_shard_actions_dropped_total") or 0.0


async def test_an_order_whose_machine_moved_is_not_carried_out(tmp_path: Path) -> None:
    """A machine that fails while its operator still thinks is not configured."""
    fixed = CapacityType.BARE_METAL
    provider = MemoryProvider([machine("m-1", capacity_type=fixed)])
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator(helpful=False)
        await operator.roll_up(need())
        received = await operator.receives(lambda m: m.bootstrap_request.request_id != "")
        provider.report(machine("m-1", _S.FAILED, capacity_type=fixed))
        await eventually(lambda: rig.shard.inventory.state("m-1") is _S.FAILED)
        await operator.say(bootstrap_response=_blob(received))
        await eventually(lambda: "overtaken" in str(rig.journal("m-1")))
    assert "CONFIGURE" not in [call for call, _ in states(provider.orders)]


async def test_a_failing_decision_makes_the_shard_unready_not_dead(tmp_path: Path) -> None:
    """Cycles that raise are counted; sessions live on, and so does the shard once it can decide."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)

    def broken(*_: object) -> Decision:
        raise RuntimeError("no idea")

    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        decide, rig.shard.cycle.decide = rig.shard.cycle.decide, broken
        await eventually(lambda: "no idea" in rig.shard.cycle.not_ready())
        assert (await operator.roll_up(need())).rejected == ""
        rig.shard.cycle.decide = decide
        await operator.receives_state("m-1", _S.CONFIGURED)
        assert rig.shard.cycle.not_ready() == ""


async def test_a_cycle_that_hangs_makes_the_shard_unready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing that does not arrive shows in the shard's readiness while it is awaited."""
    monkeypatch.setattr(cycle, "STALLED_SECONDS", 0.05)
    provider = SlowListing()
    async with shard(provider, tmp_path) as rig:
        provider.open.clear()
        await eventually(lambda: "has not ended" in rig.shard.cycle.not_ready())
        provider.open.set()
        await eventually(lambda: rig.shard.cycle.not_ready() == "")


async def test_an_absent_operator_blocks_nobody_else(tmp_path: Path) -> None:
    """A cluster whose operator left takes no place in the queue of those who are there."""
    provider = MemoryProvider([machine(f"m-{n}") for n in range(3)], auto_finish=True)
    async with shard(provider, tmp_path, execute_concurrency=1) as rig:
        absent = await rig.operator("absent", helpful=False)
        await absent.roll_up(need(2, priority=9))
        await absent.leave()
        await eventually(lambda: rig.shard.sessions.of("absent") is None)
        operator = await rig.operator("east")
        await operator.roll_up(need())
        await operator.receives(lambda m: m.node_state_update.state == _S.CONFIGURED.value)
        assert rig.shard.sessions.clusters() == ["east"]


async def test_a_session_is_over_however_often_its_stream_is_cancelled(tmp_path: Path) -> None:
    """gRPC may cancel a stream again while it is ending; its operator is gone all the same."""

    async def requests() -> AsyncIterator[shard_pb2.OperatorMessage]:
        yield shard_pb2.OperatorMessage(hello=shard_pb2.Hello(cluster_id="east"))
        await asyncio.Event().wait()

    async def play(sessions: Sessions) -> None:
        context: Any = None  # nothing is refused
        async with aclosing(SessionServicer(sessions).Session(requests(), context)) as stream:  # type: ignore[type-var]
            async for _ in stream:
                pass

    async with shard(MemoryProvider(), tmp_path) as rig:
        playing = asyncio.create_task(play(rig.shard.sessions))
        await eventually(lambda: rig.shard.sessions.of("east") is not None)
        while not playing.done():
            playing.cancel()
            await asyncio.sleep(0)
        assert rig.shard.sessions.of("east") is None


@pytest.mark.parametrize("damage", [b"\xff\xff\xff\xff", b""])
async def test_nonsense_on_the_wire_ends_one_session_only(tmp_path: Path, damage: bytes) -> None:
    """Bytes that are no message, or a message that says nothing, disturb no other session."""
    async with shard(MemoryProvider(), tmp_path) as rig:
        healthy = await rig.operator("east")
        call = rig.channel.stream_stream("/bigfleet.v1alpha1.Shard/Session", None, None)(None)
        await call.write(damage)
        await call.code()
        assert (await healthy.roll_up(need())).rejected == ""


async def test_it_works_with_a_provider_over_the_wire(tmp_path: Path) -> None:
    """The same way in, with the provider that comes with BigFleet behind gRPC."""
    line = {
        "id": "m-1",
        "state": "SPECULATIVE",
        "instance_type": "m6i.xlarge",
        "zone": "a",
        "capacity_type": "ON_DEMAND",
        "price_per_hour": 0.2,
        "interruption_probability": 0.0,
        "resources": {"cpu": "4", "memory": "16Gi", "pods": "110"},
    }
    inventory = tmp_path / "inventory.jsonl"
    inventory.write_text(json.dumps(line) + "\n")
    settings = ProviderConfig(0, 0, tmp_path / "provider", inventory, None)
    async with serving_provider(settings, InstantHost()) as server:
        provider = GrpcProvider(f"127.0.0.1:{server.port}")
        async with shard(provider, tmp_path) as rig:
            operator = await rig.operator()
            await operator.roll_up(need())
            update = await operator.receives_state("m-1", _S.CONFIGURED)
    assert update.provider_id == "bigfleet://kwok/m-1"


async def test_sessions_do_not_wait_for_a_decision(tmp_path: Path) -> None:
    """While a decision takes its time in its thread, roll-ups are acknowledged."""
    thinking, done = threading.Event(), threading.Event()
    async with shard(MemoryProvider(), tmp_path) as rig:
        operator = await rig.operator()
        decide = rig.shard.cycle.decide

        def slow(*given: Any) -> Decision:
            thinking.set()
            done.wait(10)
            return decide(*given)

        rig.shard.cycle.decide = slow
        try:
            await eventually(thinking.is_set)
            assert (await operator.roll_up(need())).rejected == ""
        finally:
            done.set()


async def test_a_paused_shard_decides_and_orders_nothing(tmp_path: Path) -> None:
    """What it would do is counted; what it knows is shown as ever."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path, actuation_paused=True) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        labels = {"type": "Bootstrap"}
        name = "bigfleet_shard_actions_suppressed_total"
        await eventually(lambda: (REGISTRY.get_sample_value(name, labels) or 0) > 1)
        assert rig.shard.cycle.not_ready() == ""
    assert provider.orders == []


async def test_a_lasting_lack_is_told_once_with_its_reason(tmp_path: Path) -> None:
    """A need that is short for more than five cycles has a journal line that says why."""
    async with shard(MemoryProvider([machine("m-1", zone="b")]), tmp_path) as rig:
        operator = await rig.operator()
        await operator.roll_up(need())
        await cycles(rig, 12)
    lines = [json.loads(line) for line in (tmp_path / "journal.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line["event"] == "need-short"]
    assert told["lacks"] == {"cpu": "4"}
    assert told["note"] == "no machine of the fleet could ever serve it"


async def test_a_client_that_sends_no_hello_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears what was waited for; the operators of others notice nothing."""
    async with shard(MemoryProvider([machine("m-1")]), tmp_path) as rig:
        operator = await rig.operator()
        monkeypatch.setattr("bigfleet.services.shard.sessions.servicer.HELLO_TIMEOUT_SECONDS", 0.2)
        status, why = await rig.stranger("west").ends()
        assert status is grpc.StatusCode.DEADLINE_EXCEEDED
        assert "no Hello received within 0 s" in why
        await operator.roll_up(need())


# So little is sent to a client that does not read; by default the window grows with the traffic.
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 65_535)]


async def test_an_operator_that_reads_no_answers_fills_no_memory(tmp_path: Path) -> None:
    """Its flood of roll-ups waits on its own side, once so many answers wait for it."""
    async with (
        shard(MemoryProvider([machine("m-1")]), tmp_path) as rig,
        grpc.aio.insecure_channel(rig.address, options=SMALL_WINDOW) as channel,
    ):
        call = ShardStub(channel).Session(None)
        hello = shard_pb2.Hello(cluster_id="east")
        await call.write(shard_pb2.OperatorMessage(hello=hello))
        empty = shard_pb2.OperatorMessage(rollup=rollup("east"))
        # Long cluster ids make long refusals, which fill the window sooner.
        empty.rollup.cluster_id = "w" * 4000

        async def floods() -> None:
            while True:
                await call.write(empty)

        flood = asyncio.create_task(floods())
        await eventually(lambda: rig.shard.sessions.of("east") is not None)
        session = rig.shard.sessions.of("east")
        assert session is not None
        await eventually(lambda: len(session.outbox) >= MAX_UNKEYED)
        await asyncio.sleep(0.5)
        assert len(session.outbox) <= MAX_UNKEYED + 10
        await (await rig.operator("west")).roll_up(need())
        flood.cancel()
        call.cancel()
