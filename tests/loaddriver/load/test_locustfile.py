"""The real Locust process against small API servers on loopback.

One run shows most rules: a healthy cluster that rejects two requests, a cluster whose
answers take two seconds, and one that rejects our token.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from loaddriver.errors import LoadProcessError
from loaddriver.judge.check_limits import LATENESS_MAX, LATENESS_P99
from loaddriver.load.files import ClusterEndpoint, EventResult, StepReleased
from loaddriver.load.process import RELEASE_NOTICE_SECONDS, LoadProcess
from loaddriver.load.progress import LoadProgress
from loaddriver.plan.records import ChurnEvent, CreateEvent, DeleteEvent, Plan, ScaleEvent
from tests.loaddriver.load.load_processes import read_releases, read_results, spawner
from tests.loaddriver.load_rig import planned
from tests.loaddriver.load_server import ApiServer, serving

HEALTHY, SLOW, REJECTING = range(3)
# On time is what comes long before a stalled answer, on a busy machine as well.
STALL_SECONDS = 5.0
ON_TIME_SECONDS = 2.5
DEADLINE_SECONDS = 60.0
PROFILE = (
    "clusters=3",
    "podsPerCluster=60",
    "ramp.steps=1",
    "ramp.stepSeconds=1",
    "soak.seconds=1",
    "soak.churnPodsPerSecond=9",
    "demandSteps=[{phase: soak, atSeconds: 0.2, factor: 0.5}]",
)


@dataclass(frozen=True)
class Played:
    """A finished run."""

    plan: Plan
    servers: tuple[ApiServer, ...]
    progress: LoadProgress
    results: dict[str, EventResult]
    releases: dict[int, StepReleased]
    rejected: str
    lost: str


async def play(plan: Plan, servers: Sequence[ApiServer], folder: Path) -> LoadProgress:
    """Plays the plan with all steps released ahead of time, one after another."""
    async with serving(*servers) as endpoints:
        load = LoadProcess(plan, endpoints, folder)
        await load.start(spawner(folder))
        start = time.time() + RELEASE_NOTICE_SECONDS
        for step in plan.steps:
            load.release(StepReleased(step=step.number, at=start + step.number))
        for step in plan.steps:
            await load.wait_for_step(step.number, DEADLINE_SECONDS)
        return await load.finish()


def creates(plan: Plan, cluster: int) -> list[CreateEvent]:
    return [
        each for each in plan.events if isinstance(each, CreateEvent) and each.cluster == cluster
    ]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("load")
    _, plan, _ = planned("smoke", *PROFILE)
    rejected, lost = (each.name for each in creates(plan, HEALTHY)[-2:])
    servers = (
        ApiServer("right", refusals={rejected: [429], lost: [500]}),
        ApiServer("right", stall_seconds=STALL_SECONDS),
        ApiServer("right", reject=True),
    )
    progress = asyncio.run(play(plan, servers, folder))
    return Played(
        plan,
        servers,
        progress,
        {result.id: result for result in read_results(folder)},
        read_releases(folder),
        rejected,
        lost,
    )


def test_every_event_of_the_plan_is_played_once_and_locust_ends_with_exit_code_0(
    played: Played,
) -> None:
    assert played.progress.sent == len(played.results) == len(played.plan.events)
    assert sorted(played.results) == sorted(event.id for event in played.plan.events)


def test_the_journal_has_the_due_time_of_every_event(played: Played) -> None:
    """Its releases and the plan give the due time that each result has, so that a judge can compute
    it offline, also for events that were never sent.
    """
    assert sorted(played.releases) == [step.number for step in played.plan.steps]
    for event in played.plan.events:
        due_micros = played.releases[event.step].due_micros(event.offset_seconds)
        assert due_micros == round(played.results[event.id].due * 1e6)


def test_each_cluster_gets_its_own_objects(played: Played) -> None:
    for cluster in (HEALTHY, SLOW):
        planned_names = sorted(each.name for each in creates(played.plan, cluster))
        assert sorted(played.servers[cluster].created) == planned_names


def test_requests_are_sent_when_due_however_long_responses_take(played: Played) -> None:
    """Open loop: on the slow cluster every response takes longer than the whole step."""
    latest = played.progress.max_lateness_seconds
    assert latest < ON_TIME_SECONDS
    assert latest == max(r.lateness_seconds for r in played.results.values() if r.step > 0)
    assert played.progress.p99_lateness_seconds is not None
    assert 0 <= played.progress.p99_lateness_seconds <= latest
    slow = [played.results[each.id] for each in creates(played.plan, SLOW) if each.step > 0]
    assert len(slow) > 3
    for result in slow:
        assert result.done - result.sent >= STALL_SECONDS
        assert played.servers[SLOW].created[result.name] - result.due < ON_TIME_SECONDS + 0.2


def test_users_share_connections(played: Played) -> None:
    """A connection per user would cost more CPU time than all its requests."""
    asked = sum(event.cluster == HEALTHY for event in played.plan.events)
    assert len(played.servers[HEALTHY].callers) <= asked / 2


def test_churn_deletes_the_pod_of_the_planned_rank(played: Played) -> None:
    for event in played.plan.events:
        if isinstance(event, ChurnEvent) and event.cluster == HEALTHY:
            rank = event.rank % played.servers[HEALTHY].pods_per_workload
            assert played.results[event.id].name == f"{event.workload}-{rank}"
    deleted = played.servers[HEALTHY].deleted
    assert len(deleted) == 3
    assert all(name.rsplit("-", 1)[1] == uid.removeprefix("uid-") for name, uid in deleted)


def test_demand_steps_scale_and_remove_what_the_plan_names(played: Played) -> None:
    """Through the scale subresource, and with background propagation of deletions."""
    for cluster in (HEALTHY, SLOW):
        own = [event for event in played.plan.events if event.cluster == cluster]
        scaled = {event.path: event.replicas for event in own if isinstance(event, ScaleEvent)}
        removed = sorted(event.path for event in own if isinstance(event, DeleteEvent))
        assert scaled
        assert removed
        assert played.servers[cluster].scaled == scaled
        assert sorted(played.servers[cluster].removed) == [(p, "Background") for p in removed]
    verbs = {result.verb for result in played.results.values()}
    assert verbs == {"create", "scale", "delete", "churn"}


def test_a_busy_server_is_retried_after_its_retry_after(played: Played) -> None:
    result = played.results[f"0-{played.rejected}"]
    assert (result.status, result.attempts, result.ok) == (201, 2, True)
    assert result.done - result.sent >= 1


def test_an_object_whose_response_was_lost_counts_as_created(played: Played) -> None:
    result = played.results[f"0-{played.lost}"]
    assert (result.status, result.attempts, result.ok) == (409, 2, True)


def test_permanent_rejections_are_counted_and_the_first_is_shown(played: Played) -> None:
    rejected = [event for event in played.plan.events if event.cluster == REJECTING]
    assert played.progress.failed == len(rejected)
    assert played.progress.retried == 2
    assert "HTTP 401" in played.progress.first_failure
    assert "Unauthorized" in played.progress.first_failure


async def test_a_release_in_the_past_is_recorded_as_late(tmp_path: Path) -> None:
    """Lateness counts from when a request was due, so a stalled harness cannot hide it."""
    _, plan, _ = planned("smoke", *PROFILE, "clusters=1", "soak.churnPodsPerSecond=3")
    async with serving(ApiServer("right")) as endpoints:
        load = LoadProcess(plan, endpoints, tmp_path)
        await load.start(spawner(tmp_path))
        load.release(StepReleased(step=0, at=time.time()))
        load.release(StepReleased(step=1, at=time.time() - 5))
        await load.wait_for_step(1, DEADLINE_SECONDS)
        progress = await load.finish()
    assert progress.max_lateness_seconds > max(4, LATENESS_MAX.maximum)
    assert progress.p99_lateness_seconds is not None
    assert progress.p99_lateness_seconds > LATENESS_P99.maximum
    assert progress.sent < len(plan.events), "the soak was never released, so never sent"


@dataclass(frozen=True)
class Odd:
    """A finished run against one misbehaving server."""

    plan: Plan
    server: ApiServer
    progress: LoadProgress


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Odd]:
    """Runs against one server each, in parallel."""
    _, plan, _ = planned("smoke", *PROFILE, "clusters=1", "soak.churnPodsPerSecond=3")
    servers = {
        "garbled": ApiServer("right", garbled=True),
        "without pods": ApiServer("right", pods_per_workload=0),
    }

    async def one(server: ApiServer) -> Odd:
        folder = tmp_path_factory.mktemp("odd")
        return Odd(plan, server, await play(plan, [server], folder))

    async def both() -> dict[str, Odd]:
        ended = await asyncio.gather(*map(one, servers.values()))
        return dict(zip(servers, ended, strict=True))

    return asyncio.run(both())


def test_an_unreadable_response_is_recorded_as_a_failed_event(
    odd: dict[str, Odd],
) -> None:
    """Any failure of an event is recorded, and the next one is played."""
    progress = odd["garbled"].progress
    assert (progress.sent, progress.failed) == (len(odd["garbled"].plan.events), 3)
    assert "a bug in the load process: DecodeError" in progress.first_failure


def test_a_churn_that_finds_no_pod_is_counted_and_harmless(odd: dict[str, Odd]) -> None:
    """A ramp with fixed pacing may be ahead of the controllers."""
    progress, server = odd["without pods"].progress, odd["without pods"].server
    assert (progress.failed, progress.without_target, server.deleted) == (0, 3, [])
    assert progress.sent == len(odd["without pods"].plan.events)


async def test_a_load_process_that_exits_at_once_is_an_error_with_its_exit_code(
    tmp_path: Path,
) -> None:
    _, plan, _ = planned("smoke", *PROFILE)
    load = LoadProcess(plan, [ClusterEndpoint(name="a", url="http://a", token="secret")], tmp_path)
    with pytest.raises(LoadProcessError, match="exit code 1 before it was ready to send"):
        await load.start(spawner(tmp_path, "false"))
    assert (tmp_path / "clusters.json").stat().st_mode & 0o777 == 0o600, "it holds tokens"
