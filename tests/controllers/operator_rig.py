"""The operator on a real API server, and what a shard that is only a session tells it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.api.v1alpha1.provider_pb2 import MachineState, Resources
from bigfleet.api.v1alpha1.shard_pb2 import NodeStateUpdate, ReclaimInstruction, ShardMessage
from bigfleet.controllers.operator import role as operator
from bigfleet.kube.client import KubeClient
from tests.support.clusters import FakeShard, get, pod, role
from tests.support.waiting import eventually


@asynccontextmanager
async def operating(kubeconfig: dict[str, Path], address: str, **more: Any) -> AsyncIterator[None]:
    """The operator runs, by the cluster's kubeconfig, and knows one shard."""
    settings = operator.OperatorConfig(
        cluster_id="c",
        shard_addresses=[address],
        kubeconfig=kubeconfig["bigfleet-operator"],
        observe_port=0,
        **{"rollup_seconds": 1.0, "acknowledge_per_second": 200.0, **more},
    )
    async with role(partial(operator.run, settings)):
        yield


async def rollup_with(shard: FakeShard, cpu: str | None) -> ClusterCapacityNeeds:
    """The next roll-up whose only need sums up to `cpu`, or that has none."""
    async with asyncio.timeout(90):
        while True:
            rollup = await shard.rollups.get()
            if [n.aggregate_resources["cpu"] for n in rollup.needs] == ([cpu] if cpu else []):
                return rollup


def update(machine_id: str, state: MachineState.ValueType, **more: Any) -> ShardMessage:
    """News of a machine whose Node has its name."""
    news = NodeStateUpdate(
        supersedes_key=f"node:{machine_id}",
        machine_id=machine_id,
        cluster_id="c",
        state=state,
        node_name=machine_id,
        resources=Resources(resources={"cpu": "4"}),
        **more,
    )
    return ShardMessage(node_state_update=news)


async def until_phase(client: KubeClient, machine_id: str, phase: str | None) -> None:
    """Wait until its UpcomingNode has that phase, or with None is gone."""

    async def reached() -> bool:
        found = await get(client, f"{GROUP_VERSION}/upcomingnodes/{machine_id}")
        return bool((found and found.get("status", {}).get("phase")) == phase)

    await eventually(reached, f"{machine_id} to be {phase}")


async def add_running_pod(client: KubeClient, pods: str, name: str, node_name: str) -> None:
    """A Pod that counts for budgets, by our own word: when kwok gets to it is not our matter."""
    await client.create(pods, pod(name, node_name))
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "conditions": [ready]}
    await client.patch(f"{pods}/{name}/status", {"status": status})


def reclaim(name: str, grace_seconds: int) -> ShardMessage:
    """An order to drain a Node."""
    return ShardMessage(
        reclaim_instruction=ReclaimInstruction(
            instruction_id="i-1", nodes=[name], grace_period_seconds=grace_seconds
        )
    )


def budget(minimum: int) -> dict[str, Any]:
    """So many of the pods labelled app=x must stay."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": "x"}}},
    }
