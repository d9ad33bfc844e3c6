"""How large roll-ups are, how large they may be, and what happens beyond that."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.api import need_codec
from bigfleet.api.transport import MAX_MESSAGE_BYTES
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.api.v1alpha1.shard_pb2 import ShardMessage
from bigfleet.controllers.operator.aggregate import RollUpContent
from bigfleet.controllers.operator.request_cache import CapacityRequest, RequestCache
from bigfleet.controllers.operator.rollup import Pace, RollUpSender
from bigfleet.controllers.operator.session import Dialer, Session
from bigfleet.observe import metrics
from bigfleet.services.shard.demand.demand_limit import MAX_DEMAND_BYTES
from bigfleet.services.shard.demand.rollup_rows import MAX_NEED_BYTES
from tests.support.shard_rig import Rig, machine, need, shard
from tests.support.waiting import eventually

MIB = 2**20
REQUESTS, REQUEST_CLASSES = 50_000, 12


def request(number: int) -> CapacityRequest:
    """One of a dozen kinds of pods, as the pod controller writes it."""
    request_class = number % REQUEST_CLASSES
    spec = {
        "resources": {"cpu": f"{250 * (1 + request_class % 4)}m", "memory": "512Mi", "pods": "1"},
        "priority": 1000 * (request_class % 3),
        "requirements": [
            {
                "key": "node.kubernetes.io/instance-type",
                "operator": "In",
                "values": [f"m6i.{1 + request_class}xlarge"],
            }
        ],
    }
    raw = {"metadata": {"name": f"p-{number}", "namespace": "team"}, "spec": spec}
    return msgspec.json.decode(json.dumps(raw), type=CapacityRequest)


def test_fifty_thousand_requests_without_groups_are_some_two_kilobytes() -> None:
    """A roll-up grows with the kinds of pods, not with their number."""
    request_cache = RequestCache()
    request_cache.replace([request(number) for number in range(REQUESTS)])
    rollup, _ = RollUpSender("c", request_cache, Pace(10), lambda *_: None, time.monotonic).build()
    assert len(rollup.needs) == REQUEST_CLASSES
    assert 500 < rollup.ByteSize() < 3000


def large_need(number: int, size: int) -> capacity_pb2.CapacityNeed:
    """One that takes about `size` bytes on the wire."""
    made = need_codec.need_to_wire(need(1, group=f"g{number}"))
    made.requirements[0].values.append("v" * size)
    return made


class SessionHandler:
    """An operator whose demand is whatever `needs` holds, sent whenever `due` is set."""

    def __init__(self) -> None:
        self.needs: list[capacity_pb2.CapacityNeed] = []
        self.sessions = 0
        self.accepted = 0
        aggregate = SimpleNamespace(
            version=0, content=lambda _: RollUpContent(self.needs, frozenset())
        )
        self._changed, listed = asyncio.Event(), asyncio.Event()
        listed.set()
        request_cache: Any = SimpleNamespace(
            aggregate=aggregate, changed=self._changed, listed=listed, observed=0
        )
        pace = Pace(60, least_seconds=0, debounce_seconds=0.01)
        self.rollups = RollUpSender("east", request_cache, pace, self._count, time.monotonic)

    def _count(self, *_: object) -> None:
        self.accepted += 1

    def handle(self, message: ShardMessage, session: Session) -> None:
        """Nothing is asked here."""

    async def send_rollups(self, session: Session) -> None:
        """As the operator does."""
        self.sessions += 1
        await self.rollups.send_over(session)

    def demand(self, *needs: capacity_pb2.CapacityNeed) -> None:
        """Another demand from now on."""
        self.needs = list(needs)
        self._changed.set()


async def operating(rig: Rig, handler: SessionHandler) -> asyncio.Task[None]:
    """The duties' operator, with its first roll-up accepted."""
    task = asyncio.create_task(Dialer([rig.address], "east", handler, lambda: 0.0).run())
    await eventually(lambda: handler.accepted == 1)
    return task


async def test_two_hundred_mebibytes_pass(tmp_path: Path) -> None:
    """As many needs as that takes, each as large as one may be. Most are beyond what a cluster may
    have in force, and are left out.
    """
    async with shard(MemoryProvider(), tmp_path) as rig:
        handler = SessionHandler()
        task = await operating(rig, handler)
        count = 200 * MIB // MAX_NEED_BYTES + 1
        handler.demand(*(large_need(number, MAX_NEED_BYTES - 400) for number in range(count)))
        assert handler.rollups.build()[0].ByteSize() > 199 * MIB
        async with asyncio.timeout(600):
            while handler.accepted < 2:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.1)
        assert len(rig.shard.needs) == MAX_DEMAND_BYTES // MAX_NEED_BYTES
        assert handler.sessions == 1
        task.cancel()
        await asyncio.wait([task])


async def test_what_no_message_can_hold_is_named_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session lives on with the last good needs, and takes the next good roll-up."""
    too_large = metrics.shard_rollups.labels("too-large")
    before = too_large._value.get()
    provider = MemoryProvider([machine("m-1"), machine("m-2")], auto_finish=True)
    caplog.set_level(logging.INFO)
    async with shard(provider, tmp_path) as rig:
        handler = SessionHandler()
        handler.needs = [need_codec.need_to_wire(need(1))]
        task = await operating(rig, handler)
        rejected = metrics.operator_rollups_rejected._value.get()
        handler.demand(large_need(0, MAX_MESSAGE_BYTES))
        await eventually(lambda: too_large._value.get() == before + 1)
        assert metrics.operator_rollups_rejected._value.get() == rejected + 1
        assert len(rig.shard.needs) == 1
        handler.demand(
            need_codec.need_to_wire(need(1)), need_codec.need_to_wire(need(1, priority=5))
        )
        await eventually(lambda: handler.accepted == 2)
        assert len(rig.shard.needs) == 2
        assert handler.sessions == 1
        task.cancel()
        await asyncio.wait([task])
    said = [r.getMessage() + str(getattr(r, "why", "")) for r in caplog.records]
    assert sum("last valid one stays in effect" in line for line in said) == 2
