"""Plays the network agents of a cluster: a Node has its network once its agents' pods are there.

Real Nodes are Ready only then, because a network agent is itself a DaemonSet's pod. It tolerates
the taint of a Node that is not Ready; pods of DaemonSets that do not are made only when the Node is
Ready, and then other pods may be bound to it first, which no autoscaler can help.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from bigfleet.kube.client import CONNECTION_ERRORS, NOT_FOUND, STRATEGIC_PATCH, ApiError, KubeClient
from bigfleet.kube.watch import Listed, Watch
from loaddriver.substrates.components import NO_NETWORK
from tests.scenarios.timing import NETWORK_TIMEOUT_SECONDS, POLL_INTERVAL_SECONDS
from tests.scenarios.watching import NODES, PODS

Object = Mapping[str, Any]
_DAEMON_SETS = "/apis/apps/v1/daemonsets"
_CONDITION = {
    "type": NO_NETWORK,
    "status": "False",
    "reason": "AgentIsUp",
    "message": "the pods of its DaemonSets exist",
}
# Every Node has it until it is Ready.
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
# What the DaemonSets' controller adds, as far as it can matter on a Node that is new.
_OF_EVERY_DAEMON_SET = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("unschedulable", "NoSchedule"),
    )
)


class NetworkAgents:
    """`run` it for as long as the cluster is there."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, dict[str, Object]] = {
            path: {} for path in (NODES, _DAEMON_SETS, PODS)
        }
        self._waiting_since: dict[str, float] = {}

    async def run(self) -> None:
        """Give every Node its network when it is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for path in self._known:
                tasks.create_task(self._follow(path))
            tasks.create_task(self._give())

    async def _follow(self, path: str) -> None:
        known = self._known[path]
        async for change in Watch(self._client, path, dict).follow():
            if isinstance(change, Listed):
                known.clear()
                known.update((each["metadata"]["uid"], each) for each in change.items)
            elif change.deleted:
                known.pop(change.item["metadata"]["uid"], None)
            else:
                known[change.item["metadata"]["uid"]] = change.item

    async def _give(self) -> None:
        while True:
            nodes, daemon_sets, pods = (each.values() for each in self._known.values())
            waiting = [node for node in nodes if not has_network(node)]
            names = [node["metadata"]["name"] for node in waiting]
            now = time.monotonic()
            self._waiting_since = {name: self._waiting_since.get(name, now) for name in names}
            for name, node in zip(names, waiting, strict=True):
                late = now - self._waiting_since[name] > NETWORK_TIMEOUT_SECONDS
                if late or is_due(node, daemon_sets, pods):
                    await self._give_to(name)
            await asyncio.sleep(POLL_INTERVAL_SECONDS)

    async def _give_to(self, name: str) -> None:
        patch = {"status": {"conditions": [_CONDITION]}}
        try:
            await self._client.patch(f"{NODES}/{name}/status", patch, STRATEGIC_PATCH)
        except CONNECTION_ERRORS:
            pass  # the next look is soon
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise


def has_network(node: Object) -> bool:
    """Whether its network agent has reported the network."""
    conditions = node.get("status", {}).get("conditions") or ()
    return any(each["type"] == NO_NETWORK and each["status"] == "False" for each in conditions)


def is_due(node: Object, daemon_sets: Iterable[Object], pods: Iterable[Object]) -> bool:
    """Whether all DaemonSets whose pods come before the Node is Ready have a pod bound to it."""
    wanted = {each["metadata"]["uid"] for each in daemon_sets if _belongs(each, node)}
    name = node["metadata"]["name"]
    there = {owner for pod in pods if pod["spec"].get("nodeName") == name for owner in _owners(pod)}
    return wanted <= there


def _belongs(daemon_set: Object, node: Object) -> bool:
    spec = daemon_set["spec"]["template"]["spec"]
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    taints = [*(node["spec"].get("taints") or ()), _NOT_READY]
    tolerations = [*(spec.get("tolerations") or ()), *_OF_EVERY_DAEMON_SET]
    return all(any(_tolerates(each, taint) for each in tolerations) for taint in taints)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    exists = toleration.get("operator") == "Exists"
    if toleration.get("key", "" if exists else taint["key"]) not in ("", taint["key"]):
        return False
    return exists or bool(toleration.get("value", "") == taint.get("value", ""))


def _owners(pod: Object) -> list[str]:
    return [owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()]
