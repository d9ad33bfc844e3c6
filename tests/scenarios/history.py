"""What has happened to a cluster's pods and Nodes since a scenario began. Pure but for its clock.

It knows what every user of Kubernetes can see: objects, their conditions and Events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.scenarios import objects

Object = dict[str, Any]

# Whoever evicts, preempts or loses a pod says so in this condition before the pod goes.
_DISRUPTED = "DisruptionTarget"
_ENDED = ("Succeeded", "Failed")
_SHOWN = 4


@dataclass(eq=False)
class ObservedPod:
    """One pod, from its creation on. Moments are seconds since the scenario began.

    `disrupted` is why it has to go, "" while it need not; `by_hand` where a step did that.
    """

    latest: Object
    seen_at: float
    bound_at: float | None = None
    disrupted: str = ""
    disrupted_at: float = 0.0
    gone_at: float | None = None
    by_hand: bool = False

    @property
    def uid(self) -> str:
        return str(self.latest["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.latest["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.latest["metadata"]["namespace"])

    @property
    def labels(self) -> dict[str, str]:
        return self.latest["metadata"].get("labels") or {}

    @property
    def node(self) -> str:
        return str(self.latest["spec"].get("nodeName") or "")

    @property
    def phase(self) -> str:
        return str(self.latest.get("status", {}).get("phase", ""))

    @property
    def live(self) -> bool:
        """It neither has ended nor is on its way out."""
        leaving = self.latest["metadata"].get("deletionTimestamp")
        return self.gone_at is None and not leaving and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """It will never run again."""
        return self.phase in _ENDED

    @property
    def of_a_daemon_set(self) -> bool:
        """It belongs to its Node, so that no drain minds it."""
        owners = self.latest["metadata"].get("ownerReferences") or ()
        return any(owner["kind"] == "DaemonSet" for owner in owners)

    @property
    def waits_for(self) -> str:
        """What kube-scheduler says of it while it waits."""
        for condition in self.latest.get("status", {}).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition["status"] != "True":
                return str(condition.get("message") or condition.get("reason") or "")
        return "kube-scheduler has not tried it yet"


@dataclass(eq=False)
class ObservedNode:
    """One Node, from its registration on; `cordons` are the moments at which it was cordoned."""

    latest: Object
    joined_at: float
    cordons: list[float] = field(default_factory=list)
    gone_at: float | None = None

    @property
    def name(self) -> str:
        return str(self.latest["metadata"]["name"])

    @property
    def labels(self) -> dict[str, str]:
        return self.latest["metadata"].get("labels") or {}

    @property
    def cordoned(self) -> bool:
        return bool(self.latest["spec"].get("unschedulable"))

    @property
    def has_repelling_taint(self) -> bool:
        """A taint of its own, not of Kubernetes', keeps pods away."""
        taints = self.latest["spec"].get("taints") or ()
        own = [taint for taint in taints if not taint["key"].startswith("node.kubernetes.io/")]
        return any(taint["effect"] != "PreferNoSchedule" for taint in own)

    def there_at(self, moment: float) -> bool:
        """Whether it existed at that moment."""
        return self.joined_at <= moment and (self.gone_at is None or self.gone_at > moment)


@dataclass
class History:
    """Everything seen; `now` is in seconds since the scenario began.

    `stepped_at` is when the last step was done that was no expectation, `counted` how many Nodes
    there were at the end of the last expectation, and `named` what steps call Nodes.
    """

    now: Callable[[], float]
    pods: dict[str, ObservedPod] = field(default_factory=dict)
    nodes: dict[str, ObservedNode] = field(default_factory=dict)
    events: dict[str, tuple[float, Object]] = field(default_factory=dict)
    steps: list[tuple[float, str]] = field(default_factory=list)
    named: dict[str, ObservedNode] = field(default_factory=dict)
    stepped_at: float = 0.0
    counted: int = 0

    def note(self, text: str) -> None:
        """Write down that something is done or expected now."""
        self.steps.append((self.now(), text))

    def matching(self, selector: str | None) -> list[ObservedPod]:
        """All pods with these labels that ever were, by name."""
        found = (
            p for p in self.pods.values() if not selector or objects.matches(selector, p.labels)
        )
        return sorted(found, key=lambda pod: (pod.namespace, pod.name))

    def live(self, selector: str) -> list[ObservedPod]:
        """Those of them that are there, and neither ended nor on their way out."""
        return [pod for pod in self.matching(selector) if pod.live]

    def bound(self, selector: str) -> list[ObservedPod]:
        """Those of them that are bound to a Node which is there."""
        there = {node.name for node in self.present()}
        return [pod for pod in self.live(selector) if pod.node in there]

    def present(self, where: str | None = None) -> list[ObservedNode]:
        """The Nodes that are there, by name; with `where` only those with these labels."""
        found = (
            node
            for node in self.nodes.values()
            if node.gone_at is None and (not where or objects.matches(where, node.labels))
        )
        return sorted(found, key=lambda node: node.name)

    def node_of(self, pod: ObservedPod) -> ObservedNode | None:
        """The Node that the pod runs on, if it is there."""
        return next((node for node in self.present() if node.name == pod.node), None)

    def most_nodes(self, since: float, where: str | None = None) -> int:
        """The most Nodes at a time since then."""
        chosen = [n for n in self.nodes.values() if not where or objects.matches(where, n.labels)]
        moments = [since, *(n.joined_at for n in chosen if n.joined_at > since)]
        return max(sum(n.there_at(moment) for n in chosen) for moment in moments)

    def evicted(self, since: float = 0.0, selector: str | None = None) -> list[ObservedPod]:
        """Pods that ran and had to go, but for what steps did by hand."""
        return [
            pod
            for pod in self.matching(selector)
            if pod.disrupted and not pod.by_hand and pod.disrupted_at >= since
        ]

    def events_about(self, uid: str) -> Iterator[Object]:
        """The Events about the object with this UID."""
        for _, event in self.events.values():
            if event["involvedObject"].get("uid") == uid:
                yield event

    def mark_by_hand(self, node: ObservedNode) -> None:
        """What happens to the pods of this Node is done by hand from now on."""
        for pod in self.pods.values():
            if pod.live and pod.node == node.name:
                pod.by_hand = True

    def see_pod(self, body: Object, deleted: bool = False) -> None:
        """A pod is as `body` says, or was when it was deleted."""
        now, uid = self.now(), body["metadata"]["uid"]
        pod = self.pods.setdefault(uid, ObservedPod(body, now))
        pod.latest = body
        if pod.node and pod.bound_at is None:
            pod.bound_at = now
        if not pod.disrupted and pod.bound_at is not None and (why := _disruption(body)):
            pod.disrupted, pod.disrupted_at = why, now
        if deleted:
            pod.gone_at = now

    def see_node(self, body: Object, deleted: bool = False) -> None:
        """A Node is as `body` says, or was when it was deleted."""
        now, uid = self.now(), body["metadata"]["uid"]
        node = self.nodes.setdefault(uid, ObservedNode(body, now))
        if body["spec"].get("unschedulable") and (not node.cordons or not node.cordoned):
            node.cordons.append(now)
        node.latest = body
        if deleted:
            node.gone_at = now

    def see_event(self, body: Object, deleted: bool = False) -> None:
        """An Event was written, or counted once more."""
        if not deleted:
            self.events[body["metadata"]["uid"]] = (self.now(), body)

    def see_deletion(self, namespace: str, name: str, by: str) -> None:
        """Somebody who is neither Kubernetes nor we deleted a pod without evicting it."""
        for pod in self.pods.values():
            if (pod.namespace, pod.name) == (namespace, name) and pod.bound_at is not None:
                pod.disrupted = pod.disrupted or f"deleted by {by}"
                pod.disrupted_at = pod.disrupted_at or self.now()

    def relisted(
        self, observed: Mapping[str, ObservedPod | ObservedNode], bodies: Iterable[Object]
    ) -> None:
        """Mark objects that are not in `bodies` as deleted."""
        there = {body["metadata"]["uid"] for body in bodies}
        for uid, each in observed.items():
            if uid not in there and each.gone_at is None:
                each.gone_at = self.now()


def named(pods: Sequence[ObservedPod]) -> str:
    """The first few by name, for people."""
    names = [pod.name for pod in pods[:_SHOWN]]
    return ", ".join(names) + (", ..." if len(pods) > _SHOWN else "")


def _disruption(body: Object) -> str:
    for condition in body.get("status", {}).get("conditions") or ():
        if condition["type"] == _DISRUPTED and condition["status"] == "True":
            return str(condition.get("reason", "")) or _DISRUPTED
    return ""
