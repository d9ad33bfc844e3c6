"""Two replicas of a controller: one leads, the other takes over within seconds."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.controllers.operator import role as operator
from bigfleet.controllers.pod_controller import role as pod_controller
from loaddriver.substrates.base import Cluster
from tests.support import shard_rig as shard_rig
from tests.support.clusters import admin, get, namespace, pod, requests_path, role
from tests.support.shard_rig import Rig
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

# An attempt to renew has a sixth of it, also on a busy machine.
LEASE_SECONDS = 8.0


def _operator(cluster: Cluster, rig: Rig, replica: str) -> operator.OperatorConfig:
    return operator.OperatorConfig(
        cluster_id="c",
        shard_addresses=[rig.address],
        kubeconfig=cluster.kubeconfigs["bigfleet-operator"],
        observe_port=0,
        rollup_seconds=1.0,
        lease_seconds=LEASE_SECONDS,
        replica=replica,
    )


async def _has_session(rig: Rig) -> bool:
    return rig.shard.sessions.of("c") is not None


async def test_two_operators_do_not_replace_each_other(cluster: Cluster, tmp_path: Path) -> None:
    """A newer session replaces the older one, so two that both dial would do nothing else."""
    provider = MemoryProvider([shard_rig.machine("m-1")])
    async with shard_rig.shard(provider, tmp_path) as rig:
        first, second = (_operator(cluster, rig, name) for name in ("first", "second"))
        async with role(partial(operator.run, second)):
            async with role(partial(operator.run, first)):
                await eventually(partial(_has_session, rig), "a session")
                sessions = set()
                ends = time.monotonic() + 2 * LEASE_SECONDS
                while time.monotonic() < ends:
                    sessions.add(id(rig.shard.sessions.of("c")))
                    await asyncio.sleep(0.02)
                assert len(sessions) == 1
            await eventually(partial(_has_session, rig), "the other operator's session")


@asynccontextmanager
async def _process(cluster: Cluster, rig: Rig) -> AsyncIterator[asyncio.subprocess.Process]:
    """An operator that can be killed."""
    command = [sys.executable, "-m", "bigfleet", "operator", "--cluster-id", "c", "--insecure"]
    command += ["--kubeconfig", str(cluster.kubeconfigs["bigfleet-operator"])]
    command += ["--shard", rig.address, "--observe", "127.0.0.1:0", "--lease", f"{LEASE_SECONDS}"]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_an_operator_that_was_killed_is_replaced_within_seconds(
    cluster: Cluster, tmp_path: Path
) -> None:
    provider = MemoryProvider([shard_rig.machine("m-1")])
    async with shard_rig.shard(provider, tmp_path) as rig, _process(cluster, rig) as first:
        await eventually(partial(_has_session, rig), "a session")
        old = rig.shard.sessions.of("c")
        async with _process(cluster, rig):
            await asyncio.sleep(LEASE_SECONDS)
            assert rig.shard.sessions.of("c") is old
            first.kill()

            async def replaced() -> bool:
                return rig.shard.sessions.of("c") not in (None, old)

            await eventually(replaced, "the other operator's session", seconds=10 * LEASE_SECONDS)


async def test_the_second_pod_controller_takes_over_when_the_first_ends(cluster: Cluster) -> None:
    def settings(replica: str) -> pod_controller.PodControllerConfig:
        return pod_controller.PodControllerConfig(
            cluster.kubeconfigs["bigfleet-pod-controller"],
            observe_port=0,
            lease_seconds=LEASE_SECONDS,
            replica=replica,
        )

    async with (
        await admin(dict(cluster.kubeconfigs)) as client,
        namespace(client, "two-pod-controllers") as where,
    ):

        async def has(count: int) -> bool:
            return len((await get(client, requests_path(where)))["items"]) == count

        pods = f"/api/v1/namespaces/{where}/pods"
        async with role(partial(pod_controller.run, settings("first"))):
            await client.create(pods, pod("early"))
            await eventually(partial(has, 1), "the request for the first pod")
            standby = role(partial(pod_controller.run, settings("second")))
            await standby.__aenter__()
        try:
            await client.create(pods, pod("late"))
            await eventually(partial(has, 2), "the request for the second pod")
        finally:
            await standby.__aexit__(None, None, None)
