"""Components elsewhere are read as the load begins and ends, and those that restart in between."""

from __future__ import annotations

import asyncio

import pytest

from loaddriver.process_counters import ProcessCounters, Readings
from loaddriver.record.cpu import RemoteUse
from loaddriver.run import remote_cpu
from loaddriver.run.remote_cpu import RemoteCpu
from tests.support.waiting import eventually


class Components:
    """An API server, and a shard that another one replaces with the second reading."""

    def __init__(self) -> None:
        self.shard = [(10.0, 1.0), (1.0, 60.0), (3.0, 60.0)]
        self.asked: list[bool] = []

    async def read(self, *, only_replaceable: bool = False) -> Readings:
        self.asked.append(only_replaceable)
        cpu, started = self.shard.pop(0) if len(self.shard) > 1 else self.shard[0]
        found: dict[str, ProcessCounters | None] = {"shard-0": ProcessCounters(cpu, started, 1)}
        if not only_replaceable:
            found["c1/kube-apiserver"] = ProcessCounters(len(self.asked), 1.0, 1)
        return found


async def test_costly_readings_are_two_and_a_restart_in_between_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote_cpu, "WINDOW_SECONDS", 0.05)
    components = Components()
    remote = RemoteCpu(components.read)
    await remote.begin()
    watching = asyncio.create_task(remote.watch())
    await eventually(lambda: len(components.asked) > 2, "two readings beside the load")
    watching.cancel()
    await asyncio.wait([watching])
    assert remote.use == RemoteUse(), "the load has not ended"
    await remote.end()
    assert (components.asked[0], components.asked[-1]) == (False, False)
    assert all(components.asked[1:-1])
    assert remote.use.cpu_seconds["shard-0"] == 3
    assert remote.use.cpu_seconds["c1/kube-apiserver"] == len(components.asked) - 1
    assert remote.use.unknown == ()


async def test_where_all_components_are_processes_of_this_machine_nothing_is_remote() -> None:
    remote = RemoteCpu()
    await remote.end()
    assert remote.use == RemoteUse()
    await remote.begin()
    await remote.end()
    assert remote.use == RemoteUse()
