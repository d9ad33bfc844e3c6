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

from bigfleet.kube.client import CONNECTION_ERRORS, ApiError, KubeClient, is_transient
from bigfleet.kube.types import ObjectList
from loaddriver.substrates.base import SubstrateError
from loaddriver.substrates.existing import definitions
from loaddriver.substrates.existing.cleaning import delete, labelled, release
from loaddriver.substrates.existing.objects import OWN_NAMESPACE, RUN_ANNOTATION

_NAMESPACES, _NODES, _PODS = "/api/v1/namespaces", "/api/v1/nodes", "/api/v1/pods"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_OTHERS = (
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
)
# The namespace controller of a busy cluster looks at what is left after longer and longer pauses.
_DEADLINE_SECONDS = 300.0
_RETRY_SECONDS = 20.0
_POLL_INTERVAL_SECONDS = 0.5
_AT_ONCE = {"gracePeriodSeconds": 0}


class _Meta(msgspec.Struct):
    name: str
    namespace: str


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = _Spec()

    @property
    def path(self) -> str:
        return f"{_NAMESPACES}/{self.metadata.namespace}/pods/{self.metadata.name}"


async def leftovers(client: KubeClient) -> list[str]:
    """What the cluster has of any run, as `namespaces/NAME`; a run's own namespace says whose."""
    found: list[str] = []
    for collection in (_NAMESPACES, _NODES, *_OTHERS):
        kind = collection.rpartition("/")[2]
        for each in await labelled(client, collection):
            run = each.metadata.annotations.get(RUN_ANNOTATION)
            found.append(f"{kind}/{each.metadata.name}{f' (run {run})' if run else ''}")
    found += (f"customresourcedefinitions/{name}" for name in await definitions.of_runs(client))
    return found


async def run_in(client: KubeClient) -> str:
    """The run that the cluster has, and who started it; "" if no run has its namespace there."""
    for each in await labelled(client, _NAMESPACES):
        if each.metadata.name == OWN_NAMESPACE:
            return each.metadata.annotations.get(RUN_ANNOTATION, "")
    return ""


async def remove_all(client: KubeClient) -> int:
    """Remove every object with the label, and wait until they are gone; return how many there were.

    An autoscaler that the run brought along has ended. Pods on the run's own Nodes have no kubelet
    any more and are deleted at once; others end as their kubelets end them. Raises SubstrateError
    if something remains.
    """
    ends = _Deadline(client.server)
    namespaces = await _remove_namespaces(client, ends)
    nodes = await _remove_nodes(client, ends)
    kinds = await _remove_definitions(client, ends)
    others = [
        f"{collection}/{each.metadata.name}"
        for collection in _OTHERS
        for each in await labelled(client, collection)
    ]
    await delete(client, others)
    return namespaces + nodes + kinds + len(others)


async def remove_from(kubeconfigs: Sequence[Path]) -> None:
    """Remove everything from these clusters; what a server cannot do at the moment is tried again.
    Raises SubstrateError, ApiError or OSError.
    """
    for path in kubeconfigs:
        async with await KubeClient.from_kubeconfig(path) as client:
            await _insist(client)


async def _insist(client: KubeClient) -> None:
    ends = time.monotonic() + _RETRY_SECONDS
    while True:
        try:
            await remove_all(client)
            return
        except ApiError as error:
            if not is_transient(error) or time.monotonic() > ends:
                raise
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)


class _Deadline:
    def __init__(self, server: str) -> None:
        self._server, self._ends = server, time.monotonic() + _DEADLINE_SECONDS

    async def pause(self, kind: str, remaining: Sequence[str]) -> None:
        """Wait a moment. Raises SubstrateError if that was for too long already."""
        if time.monotonic() > self._ends:
            raise SubstrateError(
                f"{self._server}: {kind} {', '.join(remaining)} are still being removed after "
                f"{_DEADLINE_SECONDS:g} s; see their status with kubectl"
            )
        await asyncio.sleep(_POLL_INTERVAL_SECONDS)


async def _remove_namespaces(client: KubeClient, ends: _Deadline) -> int:
    """Remove them with all that is in them; return how many there were."""
    names = [each.metadata.name for each in await labelled(client, _NAMESPACES)]
    await delete(client, [f"{_NAMESPACES}/{name}" for name in names])
    while remaining := [each.metadata.name for each in await labelled(client, _NAMESPACES)]:
        nodes = {each.metadata.name for each in await labelled(client, _NODES)}
        for name in remaining:
            pods = await _pods(client, f"{_NAMESPACES}/{name}/pods")
            ended = [p.path for p in pods if not p.spec.node_name or p.spec.node_name in nodes]
            await delete(client, ended, _AT_ONCE)
        await ends.pause("namespaces", remaining)
    return len(names)


async def _remove_nodes(client: KubeClient, ends: _Deadline) -> int:
    """Remove the run's own Nodes, their leases, and the pods that the cluster's own DaemonSets have
    on them; return how many Nodes there were.
    """
    removed: set[str] = set()
    while nodes := await labelled(client, _NODES):
        names = [each.metadata.name for each in nodes]
        if not removed.isdisjoint(names):
            await ends.pause("nodes", names)
        await release(client, _NODES, nodes)
        await delete(client, [f"{_NODES}/{name}" for name in names])
        removed.update(names)
    if not removed:
        return 0
    await delete(client, [f"{_LEASES}/{name}" for name in removed])
    while left := [p.path for p in await _pods(client, _PODS) if p.spec.node_name in removed]:
        await delete(client, left, _AT_ONCE)
        await ends.pause("pods", left)
    return len(removed)


async def _remove_definitions(client: KubeClient, ends: _Deadline) -> int:
    """Remove what an autoscaler was told and did; return how many kinds of objects that were."""
    found = remaining = await definitions.begin_removal(client)
    while remaining:
        await ends.pause("customresourcedefinitions", remaining)
        remaining = await definitions.begin_removal(client)
    return len(found)


async def _pods(client: KubeClient, collection: str) -> list[_Pod]:
    found: list[_Pod] = msgspec.json.decode(
        await client.get(collection), type=ObjectList[_Pod]
    ).items
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
