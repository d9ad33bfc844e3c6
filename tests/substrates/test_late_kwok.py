"""On a busy machine kwok plays what it saw seconds ago on Pods that have their names by now."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import psutil
import pytest

from bigfleet.kube.client import KubeClient
from controlplane.request import Binaries
from loaddriver.substrates.local import LocalSubstrate
from loaddriver.substrates.runscope import RunScope
from tests.support.clusters import add_ready_node, pod
from tests.support.substrates import FEW_OBJECTS, PATIENCE_SECONDS
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

PODS = "/api/v1/namespaces/default/pods"
# More than kwok plays at a time, so that most of what is stale waits in its queue.
NAMES = [f"db-{number}" for number in range(150)]


@asynccontextmanager
async def cluster_with_a_node(binaries: Binaries, scope: RunScope) -> AsyncIterator[KubeClient]:
    logs = scope.data_directory / "logs"
    substrate = LocalSubstrate(scope.run_id, scope.data_directory, logs, binaries, {}, FEW_OBJECTS)
    try:
        [cluster] = await substrate.start_clusters(["late"])
        async with await KubeClient.from_kubeconfig(cluster.kubeconfigs["admin"]) as client:
            await add_ready_node(client, "n")
            yield client
    finally:
        await substrate.stop()


@contextmanager
def kwok_paused(scope: RunScope) -> Iterator[None]:
    """It sees everything afterwards, in order, and begins to play before it has seen all."""
    children = [child for child in psutil.Process().children() if child.name() == "kwok"]
    [kwok] = [child for child in children if scope.run_id in " ".join(child.cmdline())]
    kwok.suspend()
    try:
        yield
    finally:
        kwok.resume()


async def pods(client: KubeClient) -> dict[str, tuple[str, str]]:
    """UID and phase by name."""
    items = json.loads(await client.get(PODS))["items"]
    return {i["metadata"]["name"]: (i["metadata"]["uid"], i["status"]["phase"]) for i in items}


async def create_all(client: KubeClient) -> None:
    await asyncio.gather(*[client.create(PODS, pod(name, "n")) for name in NAMES])


async def delete_all(client: KubeClient, **options: int) -> None:
    await asyncio.gather(*[client.delete(f"{PODS}/{name}", options or None) for name in NAMES])


async def all_run(client: KubeClient) -> bool:
    found = await pods(client)
    return len(found) == len(NAMES) and {phase for _, phase in found.values()} == {"Running"}


async def test_a_pod_is_not_removed_in_place_of_an_earlier_one_of_its_name(
    binaries: Binaries, scope: RunScope
) -> None:
    """StatefulSets use their names again. A removal by name would make room for another, without
    end.
    """
    async with cluster_with_a_node(binaries, scope) as client:
        await create_all(client)
        await eventually(lambda: all_run(client), seconds=PATIENCE_SECONDS)
        with kwok_paused(scope):
            await delete_all(client)
            await delete_all(client, gracePeriodSeconds=0)
            await create_all(client)
            successors = {name: uid for name, (uid, _) in (await pods(client)).items()}

        async def played() -> bool:
            """Either they run, or somebody removed one: nobody else does."""
            return await all_run(client) or len(await pods(client)) < len(NAMES)

        await eventually(played, seconds=PATIENCE_SECONDS)
        assert {name: uid for name, (uid, _) in (await pods(client)).items()} == successors


async def metric_of_pods(client: KubeClient, name: str) -> float:
    """The value of an API server's metric that has resources as its labels."""
    line = f'{name}{{group="",resource="pods"}} '
    text = (await client.get("/metrics")).decode()
    return sum(float(found.removeprefix(line)) for found in text.splitlines() if line in found)


async def test_a_watch_that_the_server_ended_goes_on_where_it_was(
    binaries: Binaries, scope: RunScope
) -> None:
    """A busy server ends watches. One that began anew would be sent all Pods of the cluster, and be
    behind from its start.
    """
    async with cluster_with_a_node(binaries, scope) as client:
        await create_all(client)
        await eventually(lambda: all_run(client), seconds=PATIENCE_SECONDS)
        ended = await metric_of_pods(client, "apiserver_terminated_watchers_total")
        # What kwok has not been sent by then is sent as it goes on, so few changes, each of which
        # is large: what a connection takes in advance is counted in bytes.
        with kwok_paused(scope):
            for number in range(len(NAMES)):
                note = {"metadata": {"annotations": {"note": str(number) + "x" * 250_000}}}
                await client.patch(f"{PODS}/{NAMES[0]}", note, "application/merge-patch+json")
                if await metric_of_pods(client, "apiserver_terminated_watchers_total") > ended:
                    break
            else:
                pytest.fail("the server did not end the watch of a kwok that reads nothing")
            started = await metric_of_pods(client, "apiserver_init_events_total")
        await client.create(PODS, pod("last", "n"))

        async def last_runs() -> bool:
            return (await pods(client))["last"][1] == "Running"

        await eventually(last_runs, seconds=PATIENCE_SECONDS)
        assert await metric_of_pods(client, "apiserver_init_events_total") - started < len(NAMES)
