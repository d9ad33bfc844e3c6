"""Workers of the load in pods of their own: one that ends while the load plays ends the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from bigfleet.kube.client import NOT_FOUND, ApiError, KubeClient
from loaddriver.errors import ExitCode, LoadProcessError
from loaddriver.run.failures import raise_worker_death
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.pods import pod_health
from loaddriver.substrates.pods import substrate as pods
from loaddriver.substrates.pods.places import Mounts, Places, Prerequisites
from loaddriver.substrates.pods.substrate import PodsSubstrate
from tests.support.waiting import eventually

WORKERS = ("st-load-worker-0", "st-load-worker-1")
FIRST, SECOND = WORKERS
PREVIOUS, NOW = True, False


def ended(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code}}


class Host(KubeClient):
    """The cluster that the pods run in: their containers, and the logs that it still has."""

    def __init__(self) -> None:
        self.statuses: dict[str, dict[str, Any]] = {}
        self.logs: dict[tuple[str, bool], str] = {}
        self.asked = 0
        for worker in WORKERS:
            self.runs(worker, "1")

    def runs(self, worker: str, identity: str, **more: Any) -> None:
        status = {"name": "load-worker", "containerID": identity, "state": {"running": {}}}
        self.statuses[worker] = {**status, **more}

    async def get(self, path: str, query: Mapping[str, str] | None = None, **_: Any) -> bytes:
        self.asked += 1
        if not path.endswith("/log"):
            return self._pods()
        key = path.split("/")[-2], "previous" in (query or {})
        if key not in self.logs:
            raise ApiError(f"GET {path}", NOT_FOUND, "NotFound", "no such log")
        return self.logs[key].encode()

    async def close(self) -> None:
        """Nothing is open."""

    def _pods(self) -> bytes:
        spec = {"containers": [{"name": "load-worker", "args": ["load-worker"]}]}
        items = [
            {"metadata": {"name": name}, "spec": spec, "status": {"containerStatuses": [status]}}
            for name, status in self.statuses.items()
        ]
        return json.dumps({"items": items}).encode()


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host()

    async def host_client(_: Mapping[str, str]) -> KubeClient:
        return made

    monkeypatch.setattr(pods, "host_client", host_client)
    monkeypatch.setattr(pods, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(pod_health, "_POLL_SECONDS", 0.001)
    return made


def made_of(workers: tuple[str, ...], folder: Path) -> PodsSubstrate:
    """The substrate of a release without clusters; what it collects is in `folder`."""
    places = Places("st", "places", (), {}, (), "ca", "token", {}, None, workers)
    return PodsSubstrate(folder, Prerequisites(places, Mounts(folder), {}))


@pytest_asyncio.fixture
async def substrate(host: Host, tmp_path: Path) -> AsyncIterator[PodsSubstrate]:
    """The substrate of a release with both workers."""
    assert host
    made = made_of(WORKERS, tmp_path)
    yield made
    await made.stop()


async def played(substrate: PodsSubstrate, host: Host) -> asyncio.Task[Any]:
    """What waits for the end of a worker, and knows which are there."""
    watching = asyncio.create_task(substrate.first_worker_exit())
    before = host.asked
    await eventually(lambda: host.asked > before + 1)
    return watching


async def test_a_worker_that_is_killed_is_named_with_the_end_of_its_log(
    substrate: PodsSubstrate, host: Host, tmp_path: Path
) -> None:
    """That of the pod as it was started again says nothing, and does not replace it."""
    watching = await played(substrate, host)
    host.logs = {(SECOND, PREVIOUS): "out of memory\n", (SECOND, NOW): "waiting\n"}
    host.runs(SECOND, "2", lastState=ended(137))
    found = await asyncio.wait_for(watching, 60)
    assert (found.name, found.returncode, found.last_lines) == (SECOND, -9, ("out of memory",))
    await substrate.stop()
    assert (tmp_path / f"{SECOND}.log").read_text() == "out of memory\n"


async def test_the_end_of_a_worker_is_a_failure_of_the_infrastructure(
    substrate: PodsSubstrate, host: Host
) -> None:
    host.runs(FIRST, "1", state=ended(1))
    with pytest.raises(LoadProcessError, match=f"worker {FIRST} ended with exit code 1;") as raised:
        await asyncio.wait_for(raise_worker_death(substrate.first_worker_exit), 60)
    assert raised.value.exit_code is ExitCode.INFRASTRUCTURE


async def test_workers_may_end_before_the_load_begins_and_after_it(
    substrate: PodsSubstrate, host: Host
) -> None:
    """They wait some minutes for their master, and end with it."""
    assert await substrate.start_clusters([]) == []
    unexpected = asyncio.create_task(substrate.first_unexpected_exit())
    host.runs(FIRST, "2", lastState=ended(6))
    watching = await played(substrate, host)
    assert not watching.done()
    watching.cancel()
    host.runs(FIRST, "3", lastState=ended(0))
    host.runs(SECOND, "2", lastState=ended(0))
    before = host.asked
    await eventually(lambda: host.asked > before + 1)
    assert not unexpected.done()
    unexpected.cancel()


async def test_the_log_of_a_worker_has_what_it_said_while_it_played(
    substrate: PodsSubstrate, host: Host, tmp_path: Path
) -> None:
    """It was started again since, when its master had ended."""
    await substrate.start_clusters([])
    host.logs = {(FIRST, PREVIOUS): "played\n", (FIRST, NOW): "waiting\n", (SECOND, NOW): "on\n"}
    host.runs(FIRST, "2", lastState=ended(0))
    await substrate.stop()
    logs = [(tmp_path / f"{worker}.log").read_text() for worker in WORKERS]
    assert logs == ["played\nwaiting\n", "on\n"]


async def test_a_worker_that_cannot_start_is_explained(
    substrate: PodsSubstrate, host: Host
) -> None:
    """Before the load waits for it."""
    waiting = {"reason": "ErrImagePull", "message": "not found"}
    host.runs(SECOND, "", state={"waiting": waiting})
    with pytest.raises(SubstrateError, match=f"{SECOND} cannot start: ErrImagePull: not found"):
        await substrate.start_clusters([])


async def test_without_workers_nobody_is_asked_for_them(host: Host, tmp_path: Path) -> None:
    """The load's processes are the runner's own."""
    substrate = made_of((), tmp_path)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(substrate.first_worker_exit(), 0.05)
    assert host.asked == 0
    await substrate.stop()
