"""A Locust master and its workers, against small API servers on loopback."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from loaddriver.errors import LoadProcessError
from loaddriver.load.commands import LoadPlace
from loaddriver.load.files import EventResult, StepReleased
from loaddriver.load.process import RELEASE_NOTICE_SECONDS, LoadProcess
from loaddriver.load.progress import LoadProgress
from loaddriver.load.workers import WorkerRecord
from loaddriver.plan.division import divide, object_of
from loaddriver.plan.records import Plan
from loaddriver.substrates.ports import free_port
from tests.loaddriver.load.load_processes import Children, read_releases, read_results, spawner
from tests.loaddriver.load.load_processes import ended_children as ended
from tests.loaddriver.load_rig import planned
from tests.loaddriver.load_server import ApiServer, serving

DEADLINE_SECONDS = 60.0
PROFILE = (
    "clusters=2",
    "podsPerCluster=60",
    "ramp.steps=1",
    "ramp.stepSeconds=1",
    "soak.seconds=1",
    "soak.churnPodsPerSecond=9",
    "demandSteps=[{phase: soak, atSeconds: 0.2, factor: 0.5}]",
)
NAMES = ["worker-1", "worker-2"]


@dataclass(frozen=True)
class Played:
    """A finished run of two workers."""

    plan: Plan
    servers: tuple[ApiServer, ...]
    folder: Path
    progress: LoadProgress
    workers: tuple[WorkerRecord, ...]
    results: list[EventResult]


async def play(load: LoadProcess, plan: Plan) -> None:
    """Play all steps, released ahead of time, one after another."""
    start = time.time() + RELEASE_NOTICE_SECONDS
    for step in plan.steps:
        load.release(StepReleased(step=step.number, at=start + step.number))
    for step in plan.steps:
        await load.wait_for_step(step.number, DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("workers")
    _, plan, _ = planned("smoke", *PROFILE)
    servers = ApiServer("right"), ApiServer("right")

    async def run() -> tuple[LoadProgress, tuple[WorkerRecord, ...]]:
        async with serving(*servers) as endpoints:
            load = LoadProcess(plan, endpoints, folder, LoadPlace(workers=2))
            await load.start(spawner(folder))
            await play(load, plan)
            return await load.finish(), load.workers()

    progress, workers = asyncio.run(run())
    return Played(plan, servers, folder, progress, workers, read_results(folder))


def test_every_event_is_played_exactly_once(played: Played) -> None:
    assert played.progress.sent == len(played.results) == len(played.plan.events)
    assert played.progress.failed == 0
    ids = [result.id for result in played.results]
    assert sorted(ids) == sorted(event.id for event in played.plan.events)


def test_each_worker_plays_the_share_that_the_division_gives_it(played: Played) -> None:
    shares = dict(zip(NAMES, divide(played.plan.events, 2), strict=True))
    for name, share in shares.items():
        own = {result.id for result in played.results if result.worker == name}
        assert own == {event.id for event in share}
        assert own


def test_events_of_an_object_stay_with_one_worker(played: Played) -> None:
    workers = {result.id: result.worker for result in played.results}
    owners: dict[tuple[int, str], set[str]] = {}
    for event in played.plan.events:
        owners.setdefault(object_of(event), set()).add(workers[event.id])
    assert all(len(each) == 1 for each in owners.values())


def test_a_release_reaches_all_workers_alike_and_is_recorded_once(played: Played) -> None:
    """Each result has the due time that follows from the plan and the one release of its step."""
    releases, events = read_releases(played.folder), {e.id: e for e in played.plan.events}
    assert sorted(releases) == [step.number for step in played.plan.steps]
    for result in played.results:
        due_micros = releases[result.step].due_micros(events[result.id].offset_seconds)
        assert due_micros == round(result.due * 1e6)


def test_lateness_and_events_are_known_by_worker_and_add_up(played: Played) -> None:
    assert [worker.name for worker in played.workers] == NAMES
    assert sum(worker.sent for worker in played.workers) == played.progress.sent
    assert all(worker.events == worker.sent for worker in played.workers)
    late = [worker.max_lateness_seconds or 0.0 for worker in played.workers]
    assert max(late) == played.progress.max_lateness_seconds


def test_clocks_of_one_machine_are_found_to_agree(played: Played) -> None:
    for worker in played.workers:
        assert worker.proven_clock_offset_seconds == pytest.approx(0, abs=0.001)
        assert worker.largest_clock_offset_seconds is not None
        assert worker.largest_clock_offset_seconds < 1.0


async def test_a_worker_that_is_killed_ends_the_run_by_name_and_nobody_plays_its_share(
    tmp_path: Path,
) -> None:
    _, plan, _ = planned("smoke", *PROFILE)
    async with serving(ApiServer("right"), ApiServer("right")) as endpoints, ended() as children:
        load = LoadProcess(plan, endpoints, tmp_path, LoadPlace(workers=2))
        await load.start(spawner(tmp_path, children=children))
        children["locust-worker-2"].kill()
        with pytest.raises(LoadProcessError, match="locust-worker-2 ended with exit code -9"):
            await play(load, plan)
        await asyncio.sleep(RELEASE_NOTICE_SECONDS + 1)
    _, lost = divide(plan.events, 2)
    assert not {result.id for result in read_results(tmp_path)} & {event.id for event in lost}


def kubeconfig(server: str) -> str:
    """A kubeconfig of the load driver."""
    return f"""
current-context: x
contexts: [{{name: x, context: {{cluster: x, user: x}}}}]
clusters: [{{name: x, cluster: {{server: "{server}"}}}}]
users: [{{name: x, user: {{token: right}}}}]
"""


async def start_worker(master: str, folder: Path, name: str, children: Children) -> None:
    """Start a worker by its command, with the kubeconfigs in `folder`."""
    command = (sys.executable, "-m", "loaddriver", "load-worker", "--master", master)
    own = ("--kubeconfigs", str(folder), "--name", name)
    await spawner(folder, *command, *own, children=children)(name, (), {})


async def test_workers_of_other_hosts_join_with_kubeconfigs_of_their_own(tmp_path: Path) -> None:
    """One that comes too late is refused with a reason, and changes nothing."""
    _, plan, _ = planned("smoke", *PROFILE)
    listen = f"127.0.0.1:{free_port()}"
    async with serving(ApiServer("right"), ApiServer("right")) as endpoints, ended() as children:
        for endpoint in endpoints:
            (tmp_path / f"{endpoint.name}.kubeconfig").write_text(kubeconfig(endpoint.url))
        load = LoadProcess(plan, endpoints, tmp_path, LoadPlace(workers=2, listen=listen))
        for name in ("a", "b"):
            await start_worker(listen, tmp_path, name, children)
        await load.start(spawner(tmp_path, children=children))
        await start_worker(listen, tmp_path, "late", children)
        assert await asyncio.wait_for(children["late"].wait(), DEADLINE_SECONDS) == 1
        await play(load, plan)
        progress = await load.finish()
        assert [await children[name].wait() for name in ("a", "b")] == [0, 0]
    assert "all 2 shares of the plan are taken" in (tmp_path / "late.log").read_text()
    assert progress.sent == len(plan.events) == len({r.id for r in read_results(tmp_path)})
    assert [worker.name for worker in load.workers()] == ["a", "b"]
    assert all(worker.elsewhere for worker in load.workers())


async def test_a_worker_of_another_cluster_ends_the_run_by_name(tmp_path: Path) -> None:
    _, plan, _ = planned("smoke", *PROFILE, "clusters=1", "soak.churnPodsPerSecond=3")
    listen = f"127.0.0.1:{free_port()}"
    (tmp_path / "cluster-0.kubeconfig").write_text(kubeconfig("http://other"))
    async with serving(ApiServer("right")) as endpoints, ended() as children:
        load = LoadProcess(plan, endpoints, tmp_path, LoadPlace(listen=listen))
        await start_worker(listen, tmp_path, "a", children)
        with pytest.raises(LoadProcessError, match="worker a refused its share: its cluster-0 is"):
            await load.start(spawner(tmp_path, children=children))
        assert await asyncio.wait_for(children["a"].wait(), DEADLINE_SECONDS) == 1
