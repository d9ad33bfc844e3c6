"""A lane sees what an autoscaler must not do, and that a scenario left nothing behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import msgspec
import psutil
import pytest

from bigfleet.kube.client import KubeClient
from bigfleet.kube.watch import Listed, Watch
from controlplane.request import Binaries
from loaddriver.substrates.components import FAKE_NODE_ANNOTATION
from loaddriver.substrates.runscope import RunScope
from tests.scenarios import lane
from tests.scenarios.files import Case, load
from tests.scenarios.lane import Lane, LaneContext, Outcome
from tests.scenarios.systems.static_nodes import StaticNodes
from tests.scenarios.systems.system import WHOLE, SystemContext
from tests.support.loop_thread import LoopThread

pytestmark = pytest.mark.cluster

SCENARIO = """\
rule: Two pods run, and nothing happens to them.
steps:
  - apply:
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web}
        spec:
          replicas: 2
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec:
              terminationGracePeriodSeconds: 0
              containers: [{name: web, image: example.com/web}]
  - expect:
      bound: [{pods: app=web, count: 2}]
      evicted: [{atMost: 0}]
      quiet: 5
"""
PODS = "/api/v1/namespaces/scenario/pods"
RESET_TIMEOUT_SECONDS = 3.0


class Careless(StaticNodes):
    """Held to everything; a test does its deeds for it, and says which machines it still holds."""

    judged = WHOLE

    def __init__(self) -> None:
        self.holds: list[str] = []

    async def start(self, context: SystemContext) -> None:
        """As the others; the place is kept for the test."""
        await super().start(context)
        self.context = context

    async def held(self) -> list[str]:
        """What the test says."""
        return self.holds


class Stage:
    """One lane with its careless system, in a loop of its own."""

    def __init__(self, loop: LoopThread, lane: Lane, system: Careless, case: Case) -> None:
        self._loop, self._lane, self.system, self._case = loop, lane, system, case

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """In the lane's loop."""
        return self._loop.run(work)

    def play(self, deed: Callable[[KubeClient], Awaitable[None]] | None = None) -> Outcome:
        """Play the scenario; do the deed once all holds."""
        return self._loop.run(self._play(deed))

    @property
    def usable(self) -> bool:
        """Whether the lane would be used again."""
        return self._lane.usable

    def _quiet(self) -> bool:
        """Pods run, and from now on nothing must happen."""
        steps = self._lane.seen.steps if hasattr(self._lane, "seen") else []
        return bool(steps) and steps[-1][1].startswith("all hold")

    async def _play(self, deed: Callable[[KubeClient], Awaitable[None]] | None) -> Outcome:
        playing = asyncio.create_task(self._lane.play(self._case))
        client = self.system.context.client
        while deed and not self._quiet() and not playing.done():  # noqa: ASYNC110  seen by looking
            await asyncio.sleep(0.1)
        if deed:
            await deed(client)
        return await playing


async def no_pods(client: KubeClient) -> None:
    """Return once none is there."""
    while msgspec.json.decode(await client.get(PODS))["items"]:  # noqa: ASYNC110  another's work
        await asyncio.sleep(0.2)


async def names_of_running(client: KubeClient) -> list[str]:
    """The pods that run."""
    items = msgspec.json.decode(await client.get(PODS))["items"]
    return [p["metadata"]["name"] for p in items if p["status"]["phase"] == "Running"]


@pytest.fixture(scope="module")
def stage(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Started once for all tests here."""
    folder = tmp_path_factory.mktemp("lane")
    path = folder / "group" / "case.yaml"
    path.parent.mkdir()
    path.write_text(SCENARIO)
    scope = RunScope.open(f"lane-{os.getpid()}", "tests", folder, folder / "lock")
    system, loop = Careless(), LoopThread()
    environment = dict(os.environ)
    context = LaneContext(
        scope.run_id, scope.data_directory, folder, binaries, environment, lambda: system
    )

    async def lane() -> Lane:
        made = Lane(context, "lane")
        await made.start()
        return made

    started = loop.run(lane())
    try:
        yield Stage(loop, started, system, load(path))
    finally:
        loop.run(started.stop())
        loop.close()
        asyncio.run(scope.close())


@pytest.fixture
def short_reset(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is left stays left: nobody needs to wait for it for long. Pods may take longer on a
    busy machine, and the next test begins without any.
    """
    monkeypatch.setattr(lane, "RESET_TIMEOUT_SECONDS", RESET_TIMEOUT_SECONDS)
    yield
    stage.run(no_pods(stage.system.context.client))


def test_a_scenario_that_holds_has_no_story_and_leaves_the_lane_usable(stage: Stage) -> None:
    """Twice in a row, so the first left nothing that would disturb the second."""
    assert stage.play().story == ""
    assert stage.play().story == ""
    assert stage.usable


DAEMON_SETS = "/apis/apps/v1/namespaces/scenario/daemonsets"


def test_a_node_is_ready_only_once_the_pods_of_its_agents_are_bound_to_it(stage: Stage) -> None:
    """So kube-scheduler cannot fill it before."""
    containers = [{"name": "agent", "image": "example.com/agent"}]
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"tolerations": [{"operator": "Exists"}], "containers": containers},
    }
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    metadata = {"name": "late", "labels": {"a": "b"}, "annotations": dict([FAKE_NODE_ANNOTATION])}
    conditions = [{"type": "Ready", "status": "False"}]
    status = {"allocatable": {"pods": "10"}, "conditions": conditions}

    async def places_of_pods_once_ready(client: KubeClient) -> list[str]:
        await client.create(DAEMON_SETS, {"metadata": {"name": "agent"}, "spec": spec})
        await client.create("/api/v1/nodes", {"metadata": metadata, "status": status})
        async for change in Watch(client, "/api/v1/nodes", dict).follow():
            if not isinstance(change, Listed) and is_ready(change.item, "late"):
                break
        pods = msgspec.json.decode(await client.get(PODS))["items"]
        return [pod["spec"].get("nodeName", "") for pod in pods]

    async def restore(client: KubeClient) -> None:
        await client.delete(f"{DAEMON_SETS}/agent", {"propagationPolicy": "Background"})
        await no_pods(client)
        await client.delete("/api/v1/nodes/late")

    client = stage.system.context.client
    places = stage.run(places_of_pods_once_ready(client))
    stage.run(restore(client))
    assert "late" in places


def is_ready(node: dict[str, Any], name: str) -> bool:
    """As kube-scheduler needs it."""
    conditions = node["status"].get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return ready and node["metadata"]["name"] == name


async def evict(client: KubeClient) -> None:
    """As an autoscaler does that makes room."""
    name = (await names_of_running(client))[0]
    metadata = {"name": name, "namespace": "scenario"}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    await client.create(f"{PODS}/{name}/eviction", body)


async def cordon(client: KubeClient) -> None:
    """As the beginning of a reclaim."""
    await client.patch("/api/v1/nodes/m-8-zone-a-1-0", {"spec": {"unschedulable": True}})


@pytest.mark.parametrize(("deed", "said"), [(evict, "was evicted"), (cordon, "was cordoned")])
def test_what_an_autoscaler_does_to_running_pods_fails_the_scenario(
    stage: Stage, deed: Callable[[KubeClient], Awaitable[None]], said: str
) -> None:
    """The story says what, when, and what there was."""
    outcome = stage.play(deed)
    assert said in outcome.story
    assert "steps:" in outcome.story
    assert stage.usable


def test_a_pod_that_is_deleted_without_eviction_is_blamed_on_who_did_it(stage: Stage) -> None:
    """The audit log knows, and nothing else does."""

    async def delete(client: KubeClient) -> None:
        name = (await names_of_running(client))[0]
        kubeconfig = stage.system.context.cluster.kubeconfigs["load-driver"]
        async with await KubeClient.from_kubeconfig(kubeconfig) as another:
            await another.delete(f"{PODS}/{name}")

    assert "deleted by load-driver" in stage.play(delete).story


@pytest.mark.usefixtures("short_reset")
def test_an_object_that_is_left_fails_the_scenario_and_the_lane(stage: Stage) -> None:
    """Nobody plays the next scenario in what this one left."""
    path = "/api/v1/namespaces/scenario/configmaps"

    async def leave(client: KubeClient) -> None:
        await client.create(path, {"metadata": {"name": "note"}})

    outcome = stage.play(leave)
    assert "ConfigMap/scenario/note is left" in outcome.story
    assert not stage.usable
    stage.run(stage.system.context.client.delete(f"{path}/note"))


@pytest.mark.usefixtures("short_reset")
def test_a_machine_that_is_held_without_pods_fails_the_scenario(stage: Stage) -> None:
    """It would be paid for."""
    stage.system.holds = ["m-1 CONFIGURED"]
    outcome = stage.play()
    stage.system.holds = []
    assert "machine m-1 CONFIGURED is held" in outcome.story
    assert not stage.usable


@pytest.mark.usefixtures("short_reset")
def test_a_node_that_comes_although_nothing_is_lacking_fails_the_scenario(stage: Stage) -> None:
    """And it is found to be left afterwards."""

    async def join(client: KubeClient) -> None:
        await client.create("/api/v1/nodes", {"metadata": {"name": "extra"}})

    outcome = stage.play(join)
    assert "Node extra came" in outcome.story
    assert "Node//extra is left" in outcome.story
    stage.run(stage.system.context.client.delete("/api/v1/nodes/extra"))


def test_a_component_that_dies_ends_the_scenario_and_the_lane(stage: Stage) -> None:
    """The story says which one, and where its log is."""

    async def kill(client: KubeClient) -> None:
        del client
        ours = psutil.Process().children(recursive=True)
        (scheduler,) = (p for p in ours if p.name() == "kube-scheduler" and is_of_the_lane(p))
        scheduler.kill()

    outcome = stage.play(kill)
    assert "c/kube-scheduler was killed by SIGKILL" in outcome.story
    assert not stage.usable


def is_of_the_lane(process: psutil.Process) -> bool:
    """Other tests of this session have clusters, too."""
    return any(f"lane-{os.getpid()}/lane/" in word for word in process.cmdline())
