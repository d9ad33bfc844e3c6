"""Each role exports the CPU and memory of its process and of those that it started."""

from __future__ import annotations

import os

import aiohttp
import pytest
from prometheus_client import generate_latest

from bigfleet.observe import child_processes, health
from bigfleet.observe.metrics import REGISTRY
from loaddriver.process_counters import NAMES, ProcessCounters, counters_of
from tests.run.burner import Burner, burn
from tests.support.ports import free_port


def counters() -> ProcessCounters:
    """What this process says of itself now."""
    return counters_of(generate_latest(REGISTRY.restricted_registry(NAMES)))


def test_the_cpu_of_a_role_grows_as_it_computes() -> None:
    before = counters()
    burn(0.2)
    now = counters()
    assert 0.15 <= now.cpu_seconds - before.cpu_seconds <= 2
    assert now.started_seconds == before.started_seconds
    assert now.memory_bytes > 2**20


def test_the_cpu_of_processes_that_it_started_is_added_also_when_they_have_ended() -> None:
    """A coordinator runs its etcd."""
    before = counters()
    child = Burner()
    child.burn(0.3)
    during = counters()
    assert during.cpu_seconds - before.cpu_seconds >= 0.28
    assert during.memory_bytes > before.memory_bytes + 2**20
    child.end()
    after = counters()
    assert after.cpu_seconds >= during.cpu_seconds
    assert after.memory_bytes < during.memory_bytes


@pytest.mark.parametrize("ended", [0, 1, 7, 40490])
def test_a_counter_does_not_fall_by_the_rounding_of_a_sum_when_a_child_ends(
    ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read as a process that has restarted."""

    def counted(ended_ticks: int, *running_ticks: int) -> float:
        ended_seconds = ended_ticks / os.sysconf("SC_CLK_TCK")
        times = os.times_result((0.0, 0.0, ended_seconds, 0.0, 0.0))
        stats = [[b"0"] * 11 + [b"%d" % ticks] + [b"0"] * 11 for ticks in running_ticks]
        monkeypatch.setattr(os, "times", lambda: times)
        monkeypatch.setattr(child_processes, "_has_children", lambda: True)
        monkeypatch.setattr(child_processes, "_descendants", lambda: stats)
        return next(child_processes.ChildProcesses().collect()).samples[0].value

    for ticks in range(1, 300):
        assert counted(ended + ticks) >= counted(ended, ticks)


@pytest.mark.parametrize("query", ["", "?" + "&".join(f"name[]={name}" for name in NAMES)])
async def test_a_scrape_has_them_also_if_it_asks_for_them_alone(query: str) -> None:
    port = free_port()
    runner = await health.serve("127.0.0.1", port, lambda: "")
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/metrics{query}") as response,
        ):
            text = await response.read()
    finally:
        await runner.cleanup()
    assert counters_of(text).cpu_seconds > 0
    assert (b"bigfleet_internal_errors" in text) == (not query)
