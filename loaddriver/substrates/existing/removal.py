"""Removes what runs left in existing clusters, found by its label.

`python -m loaddriver.substrates.existing.removal KUBECONFIG...` is called by the reaper if the
runner did not do it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from bigfleet.kube.client import CONNECTION_ERRORS, NOT_FOUND, ApiError, KubeClient
from bigfleet.kube.types import ObjectList
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.existing.objects import MANAGED, OWN_NAMESPACE, RUN_ANNOTATION

_NAMESPACES, _NODES, _PODS = "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_OTHERS = (
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
)
_SELECTOR = {"labelSelector": "=".join(MANAGED)}
_DEADLINE_SECONDS = 150.0
_POLL_INTERVAL_SECONDS = 0.5
_AT_ONCE = 32


class _Meta(msgspec.Struct):
    name: str
    namespace: str = ""
    annotations: dict[str, str] = {}


class _Object(msgspec.Struct):
    metadata: _Meta


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = _Spec()


async def leftovers(client: KubeClient) -> list[str]:
    """What the cluster has of any run, as `namespaces/NAME`; a run's own namespace says whose."""
    found: list[str] = []
    for collection in (_NAMESPACES, _NODES, *_OTHERS):
        kind = collection.rpartition("/")[2]
        for each in await _labelled(client, collection):
            run = each.metadata.annotations.get(RUN_ANNOTATION)
            found.append(f"{kind}/{each.metadata.name}{f' (run {run})' if run else ''}")
    return found


async def run_in(client: KubeClient) -> str:
    """The run that the cluster has, and who started it; "" if no run has its namespace there."""
    for each in await _labelled(client, _NAMESPACES):
        if each.metadata.name == OWN_NAMESPACE:
            return each.metadata.annotations.get(RUN_ANNOTATION, "")
    return ""


async def remove_all(client: KubeClient) -> int:
    """Remove every object with the label, and wait until the namespaces are gone; return how many
    there were.

    Pods on the harness's own Nodes have no kubelet any more and are deleted at once, also those of
    DaemonSets of the cluster; others end as their kubelets end them. Raises SubstrateError if a
    namespace remains.
    """
    nodes = [each.metadata.name for each in await _labelled(client, _NODES)]
    namespaces = [each.metadata.name for each in await _labelled(client, _NAMESPACES)]
    await _delete(client, [f"{_NAMESPACES}/{name}" for name in namespaces])
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while remaining := [each.metadata.name for each in await _labelled(client, _NAMESPACES)]:
        if time.monotonic() > deadline:
            raise SubstrateError(
                f"{client.server}: namespaces {', '.join(remaining)} are still being removed after "
                f"{_DEADLINE_SECONDS:g} s; see their status with kubectl"
            )
        for name in remaining:
            await _end_pods(client, name, frozenset(nodes))
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)
    await _delete(client, [f"{_NODES}/{name}" for name in nodes])
    await _end_pods_of(client, nodes)
    await _delete(client, [f"{_LEASES}/{name}" for name in nodes])
    others = [
        f"{collection}/{each.metadata.name}"
        for collection in _OTHERS
        for each in await _labelled(client, collection)
    ]
    await _delete(client, others)
    return len(nodes) + len(namespaces) + len(others)


async def remove_from(kubeconfigs: Sequence[Path]) -> None:
    """Remove everything from these clusters. Raises SubstrateError, ApiError or OSError."""
    for path in kubeconfigs:
        async with await KubeClient.from_kubeconfig(path) as client:
            await remove_all(client)


async def _end_pods(client: KubeClient, namespace: str, nodes: frozenset[str]) -> None:
    pods = f"{_NAMESPACES}/{namespace}/pods"
    found = msgspec.json.decode(await client.get(pods), type=ObjectList[_Pod]).items
    ours = [pod for pod in found if not pod.spec.node_name or pod.spec.node_name in nodes]
    paths = [f"{pods}/{pod.metadata.name}" for pod in ours]
    await _delete(client, paths, {"gracePeriodSeconds": 0})


async def _end_pods_of(client: KubeClient, nodes: Sequence[str]) -> None:
    """End what DaemonSets of the cluster had there; it would be collected a minute later."""
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def pods_of(node: str) -> list[_Pod]:
        async with at_once:
            content = await client.get(_PODS, {"fieldSelector": f"spec.nodeName={node}"})
        found: list[_Pod] = msgspec.json.decode(content, type=ObjectList[_Pod]).items
        return found

    for found in await asyncio.gather(*map(pods_of, nodes)):
        metas = [pod.metadata for pod in found]
        paths = [f"{_NAMESPACES}/{each.namespace}/pods/{each.name}" for each in metas]
        await _delete(client, paths, {"gracePeriodSeconds": 0})


async def _delete(
    client: KubeClient, paths: Sequence[str], options: dict[str, int] | None = None
) -> None:
    at_once = asyncio.Semaphore(_AT_ONCE)

    async def delete(path: str) -> None:
        async with at_once:
            try:
                await client.delete(path, options)
            except ApiError as error:
                if error.status != NOT_FOUND:
                    raise

    await asyncio.gather(*(delete(path) for path in paths))


async def _labelled(client: KubeClient, collection: str) -> list[_Object]:
    content = await client.get(collection, _SELECTOR)
    found: list[_Object] = msgspec.json.decode(content, type=ObjectList[_Object]).items
    return found


def main(arguments: Sequence[str]) -> int:
    """Remove; return 0 if nothing is left."""
    try:
        asyncio.run(remove_from([Path(each) for each in arguments]))
    except (SubstrateError, ApiError, *CONNECTION_ERRORS) as error:
        print(f"an existing cluster could not be cleaned: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
