"""How late a watch is, is measured with writes of our own, as an upper bound."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bigfleet.kube.client import ApiError
from bigfleet.kube.watch import Changed, Listed
from loaddriver.record.stamp_probe import StampProbe
from loaddriver.record.watched import Meta, Pod


class _Server:
    """Answers writes, or fails as told; delivers each to the probe `late` seconds afterwards."""

    def __init__(self, late_seconds: float = 0.0, status: int = 0) -> None:
        self._late_micros, self._status = round(late_seconds * 1e6), status
        self.probe = StampProbe(self, "own")  # type: ignore[arg-type]
        self.written = asyncio.Event()

    async def create(self, path: str, body: Any) -> None:
        assert path == "/api/v1/namespaces/own/pods"
        assert body["spec"]["schedulerName"] not in ("", "default-scheduler")

    async def patch(self, _path: str, body: Any) -> None:
        self.written.set()
        if self._status:
            raise ApiError("PATCH", self._status, "Busy", "try later")
        meta = Meta("stamp-probe", "uid", "own", annotations=body["metadata"]["annotations"])
        now = time.time_ns() // 1000 + self._late_micros
        self.probe.take_pods(Changed(Pod(meta), False), now)
        self.probe.take_pods(Changed(Pod(meta), False), now + 10**9)  # again, of another change


async def written_once(server: _Server) -> StampProbe:
    task = asyncio.create_task(server.probe.run())
    async with asyncio.timeout(60):
        await server.written.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return server.probe


async def test_the_error_is_the_time_from_a_write_to_its_event() -> None:
    """Each write counts once, however often its pod changes afterwards."""
    [error] = (await written_once(_Server(late_seconds=7.0))).errors_seconds
    assert 7.0 <= error < 8.0


async def test_a_write_that_a_busy_server_refuses_gives_no_value_and_ends_nothing() -> None:
    probe = await written_once(_Server(status=503))
    assert probe.errors_seconds == []


def test_lists_and_pods_of_others_are_no_receipts() -> None:
    probe = StampProbe(None, "own")  # type: ignore[arg-type]
    other = Pod(Meta("web", "uid", "tenant"))
    probe.take_pods(Listed([other]), 1)
    probe.take_pods(Changed(other, False), 1)
    assert probe.errors_seconds == []
