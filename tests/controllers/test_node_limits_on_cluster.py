"""What an operator reports of Nodes that people cordon, taint or delete, on a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bigfleet.api.install import GROUP_VERSION
from bigfleet.api.v1alpha1.capacity_pb2 import NodeLimit
from bigfleet.api.v1alpha1.provider_pb2 import MachineState
from bigfleet.api.v1alpha1.shard_pb2 import (
    BootstrapRequest,
    ReclaimInstruction,
    ShardMessage,
)
from bigfleet.api.wellknown import MACHINE_LABEL
from bigfleet.kube.client import KubeClient
from tests.controllers.operator_rig import operating, update
from tests.support.clusters import (
    FakeShard,
    add_ready_node,
    admin,
    fake_shard,
    get,
    namespace,
    pod,
    ready_nodes,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster

Limits = dict[str, NodeLimit]


@asynccontextmanager
async def _operator(
    kubeconfig: dict[str, Path], *machines: str, hold: float = 0.5
) -> AsyncIterator[FakeShard]:
    """An operator whose shard has told it that it has these machines."""
    async with fake_shard() as (shard, address), await admin(kubeconfig) as client:
        more = {"rollup_seconds": 0.3, "node_ready_timeout_seconds": hold}
        async with operating(kubeconfig, address, **more):
            await shard.hellos.get()
            for machine in machines:
                await _tell(client, shard, machine)
            yield shard
            for machine in machines:
                shard.order(update(machine, MachineState.SPECULATIVE))
                await eventually(partial(_is_gone, client, machine), f"{machine} to be gone")


async def _tell(client: KubeClient, shard: FakeShard, machine: str) -> None:
    shard.order(update(machine, MachineState.CONFIGURED))

    async def told() -> bool:
        found = await get(client, f"{GROUP_VERSION}/upcomingnodes/{machine}")
        return bool(found and found.get("status", {}).get("phase") == "Ready")

    await eventually(told, f"{machine} to be Ready")


async def _is_gone(client: KubeClient, machine: str) -> bool:
    return await get(client, f"{GROUP_VERSION}/upcomingnodes/{machine}") is None


async def _limits(shard: FakeShard, wanted: Callable[[Limits], bool]) -> Limits:
    """Those of the next roll-up that are as `wanted`."""
    found: Limits = {}
    try:
        async with asyncio.timeout(60):
            while True:
                rollup = await shard.rollups.get()
                found = {limit.machine_id: limit for limit in rollup.node_limits}
                if wanted(found):
                    return found
    except TimeoutError:
        pytest.fail(f"the last roll-up had these limits: {found}")


async def _next_limits(shard: FakeShard, number: int = 3) -> list[Limits]:
    """Those of so many roll-ups that are yet to be made."""
    while not shard.rollups.empty():
        shard.rollups.get_nowait()
    async with asyncio.timeout(60):
        rollups = [await shard.rollups.get() for _ in range(number)]
    return [{limit.machine_id: limit for limit in each.node_limits} for each in rollups]


def _reason(machine: str, reason: str) -> Callable[[Limits], bool]:
    return lambda limits: machine in limits and limits[machine].reason == reason


async def _set(client: KubeClient, machine: str, **spec: Any) -> None:
    await client.patch(f"/api/v1/nodes/{machine}", {"spec": spec})


async def _run(client: KubeClient, where: str, *pods: dict[str, Any]) -> None:
    path = f"/api/v1/namespaces/{where}/pods"
    await asyncio.gather(*(client.create(path, each) for each in pods))


async def _run_daemons(client: KubeClient, where: str, node_name: str) -> None:
    """A DaemonSet with its pod on that Node."""
    template = pod("d", nodeSelector={"kubernetes.io/hostname": node_name})
    labels = {"app": "daemon"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    body = {"metadata": {"name": "d"}, "spec": spec}
    await client.create(f"/apis/apps/v1/namespaces/{where}/daemonsets", body)

    async def runs() -> bool:
        pods = (await get(client, f"/api/v1/namespaces/{where}/pods"))["items"]
        return any("nodeName" in each["spec"] for each in pods)

    await eventually(runs, "the DaemonSet's pod to be bound")


async def _stop_kubelet(client: KubeClient, name: str) -> None:
    """What the node controller writes once a kubelet is silent; kwok stays out of it."""
    marks = {"annotations": {"kwok.x-k8s.io/node": None}}
    await client.patch(f"/api/v1/nodes/{name}", {"metadata": marks})
    await _set_ready(client, name, "Unknown")


async def _set_ready(client: KubeClient, name: str, status: str) -> None:
    conditions = [{"type": "Ready", "status": status, "reason": "ByTest", "message": "by a test"}]
    await client.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": conditions}})


async def test_a_cordoned_node_counts_for_the_pods_that_it_runs(
    kubeconfig: dict[str, Path],
) -> None:
    """Also for those that a second later end, but not for what every Node has nor for what has
    ended; uncordoned, it is fit again.
    """
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-cordoned", "m-other"),
        _operator(kubeconfig, "m-cordoned", "m-other") as shard,
        namespace(client, "cordoned", until_gone=True) as where,
    ):
        await _run_daemons(client, where, "m-cordoned")
        pods = [pod(f"p-{number}", "m-cordoned") for number in range(3)]
        await _run(client, where, *pods, pod("elsewhere", "m-other"))
        assert await _limits(shard, lambda limits: not limits) == {}
        await _set(client, "m-cordoned", unschedulable=True)
        held = {"cpu": "300m", "memory": f"{3 * 64 * 1024}Ki", "pods": "3"}

        def holds_three(limits: Limits) -> bool:
            """Pods are seen by another watch than Nodes."""
            cordoned = _reason("m-cordoned", "Cordoned")(limits)
            return cordoned and dict(limits["m-cordoned"].resources) == held

        found = await _limits(shard, holds_three)
        assert list(found) == ["m-cordoned"]
        assert not found["m-cordoned"].broken
        await client.delete(f"/api/v1/namespaces/{where}/pods/p-0")
        await _limits(shard, lambda limits: limits["m-cordoned"].resources["pods"] == "2")
        await _set(client, "m-cordoned", unschedulable=False)
        await _limits(shard, lambda limits: not limits)


async def test_a_taint_by_hand_is_a_limit_that_names_the_taint(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-tainted"),
        _operator(kubeconfig, "m-tainted") as shard,
    ):
        taint = {"key": "example.com/maintenance", "value": "soon", "effect": "NoSchedule"}
        await _set(client, "m-tainted", taints=[taint])
        found = await _limits(shard, _reason("m-tainted", "Tainted"))
        assert found["m-tainted"].message == "example.com/maintenance=soon:NoSchedule"
        await _set(client, "m-tainted", taints=None)
        await _limits(shard, lambda limits: not limits)


async def test_a_deleted_node_is_missing_at_once_and_one_that_never_came_after_the_hold(
    kubeconfig: dict[str, Path],
) -> None:
    names = "m-deleted", "m-never"
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-deleted"),
        _operator(kubeconfig, *names, hold=8.0) as shard,
    ):
        await _limits(shard, lambda limits: not limits)
        await client.delete("/api/v1/nodes/m-deleted")
        found = await _limits(shard, bool)
        assert list(found) == ["m-deleted"]
        assert (found["m-deleted"].reason, found["m-deleted"].broken) == ("Missing", True)
        found = await _limits(shard, _reason("m-never", "Missing"))
        assert found["m-never"].broken
        await add_ready_node(client, "m-deleted")
        found = await _limits(shard, lambda limits: "m-deleted" not in limits)
        assert list(found) == ["m-never"]


async def test_a_machine_that_is_about_to_join_again_is_not_missing(
    kubeconfig: dict[str, Path],
) -> None:
    """The blob with which it joins begins another life, in which no Node was seen yet."""
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-again"),
        _operator(kubeconfig, "m-again", hold=60.0) as shard,
    ):
        await _limits(shard, lambda limits: not limits)
        await client.delete("/api/v1/nodes/m-again")
        await _limits(shard, _reason("m-again", "Missing"))
        request = BootstrapRequest(request_id="b", cluster_id="c", machine_id="m-again")
        shard.order(ShardMessage(bootstrap_request=request))
        async with asyncio.timeout(60):
            assert not (await shard.blobs.get()).error
        assert await _next_limits(shard) == [{}] * 3


async def test_a_node_that_only_lost_its_label_is_neither_missing_nor_drained(
    kubeconfig: dict[str, Path],
) -> None:
    """Its pods run on; an Event reports it."""
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-unlabelled"),
        _operator(kubeconfig, "m-unlabelled") as shard,
    ):
        await _limits(shard, lambda limits: not limits)
        unlabelled = {"metadata": {"labels": {MACHINE_LABEL: None}}}
        await client.patch("/api/v1/nodes/m-unlabelled", unlabelled)
        await eventually(partial(_has_event, client, "m-unlabelled"), "an Event of the Node")
        assert await _next_limits(shard) == [{}] * 3


async def test_a_node_whose_machine_is_unknown_to_the_shard_gets_an_event(
    kubeconfig: dict[str, Path],
) -> None:
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-unheard-of", "m-known"),
        _operator(kubeconfig, "m-known"),
    ):
        await eventually(partial(_has_event, client, "m-unheard-of"), "an Event of the Node")
        assert not await _has_event(client, "m-known")


async def _has_event(client: KubeClient, name: str) -> bool:
    events = await get(client, "/api/v1/namespaces/default/events")
    return any(
        each["involvedObject"].get("name") == name and each["reason"] == "MachineUnknown"
        for each in events["items"]
    )


async def test_a_broken_node_is_drained_though_its_pods_cannot_terminate(
    kubeconfig: dict[str, Path],
) -> None:
    """The shard takes it to cost nothing; one that works again by then is kept."""
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, "m-silent", *(f"m-fine-{n}" for n in range(3))),
        _operator(kubeconfig, "m-silent") as shard,
        namespace(client, "silent", until_gone=True) as where,
    ):
        await _run(client, where, pod("p", "m-silent"))
        await _stop_kubelet(client, "m-silent")
        found = await _limits(shard, _reason("m-silent", "NotReady"))
        assert (found["m-silent"].broken, dict(found["m-silent"].resources)) == (True, {})
        await _set_ready(client, "m-silent", "True")
        await _limits(shard, lambda limits: not limits)
        assert "no controller" in await _reclaim(shard, "m-silent")
        await _set_ready(client, "m-silent", "Unknown")
        await _limits(shard, _reason("m-silent", "NotReady"))
        assert not await _reclaim(shard, "m-silent")


async def _reclaim(shard: FakeShard, name: str) -> str:
    """Order it back at no cost; why that was refused."""
    instruction = ReclaimInstruction(
        instruction_id="i", nodes=[name], grace_period_seconds=5, max_cost=0.0
    )
    shard.order(ShardMessage(reclaim_instruction=instruction))
    async with asyncio.timeout(60):
        return (await shard.acks.get()).refused


async def test_when_many_nodes_are_unreachable_at_once_none_is_broken(
    kubeconfig: dict[str, Path],
) -> None:
    """What runs on them goes on counting: the cluster is cut off from them."""
    names = [f"m-cut-{number}" for number in range(3)]
    async with (
        await admin(kubeconfig) as client,
        ready_nodes(client, *names),
        _operator(kubeconfig, *names) as shard,
        namespace(client, "cut-off", until_gone=True) as where,
    ):
        await _run(client, where, *(pod(f"p-{name}", name) for name in names))
        await asyncio.gather(*(_stop_kubelet(client, name) for name in names))
        found = await _limits(shard, lambda limits: len(limits) == 3)
        assert {each.reason for each in found.values()} == {"NotReady"}
        assert {each.resources["pods"] for each in found.values()} == {"1"}
        assert not any(limit.broken for limit in found.values())
