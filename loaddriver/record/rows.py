"""One row per created pod, joined from all sources."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from loaddriver.plan.manifests import ARCHETYPE_LABEL, GROUP_LABEL, STEP_LABEL, WORKLOAD_LABEL
from loaddriver.record.audit import Name
from loaddriver.record.hops import plausible, split
from loaddriver.record.journal import Acquisition, Journal
from loaddriver.record.nodes import NodeLifetime, lifetime_at, node_lifetimes
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import PodObservation

BINDERS: Mapping[str, str] = {"system:kube-scheduler": "scheduler"}
_OTHER = "other"

ObjectKey = tuple[str, str]
"""Cluster, and a gang or workload in it."""


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod of the load. Times are microseconds since 1970, None if not observed.

    `bound_by` is scheduler, anchor (by the scheduler, to the node that the harness nominated for
    the first pod of its gang), other, or "" without a log; `source` is audit, watch or mixed (a
    timestamp that the log lacks is from the watch). `node_was_ready`: its node was ready before
    the pod was created; None if unknown or not bound. `due_micros` is when the plan asked for it,
    None if the plan did not (see `due`): then its wait begins with its creation. A pod that was
    never bound waited until it was deleted or observation ended.
    """

    cluster: str
    namespace: str
    name: str
    uid: str
    archetype: str
    workload: str
    group: str
    step: str
    created_micros: int
    seen_micros: int | None
    acknowledged_micros: int | None
    rolled_up_micros: int | None
    decided_micros: int | None
    provisioned_micros: int | None
    node: str
    rack: str
    node_created_micros: int | None
    node_ready_micros: int | None
    bound_micros: int | None
    bound_by: str
    deleted_micros: int | None
    observed_until_micros: int
    source: str
    node_was_ready: bool | None
    due_micros: int | None = None

    @property
    def object_key(self) -> ObjectKey:
        """The key of its gang, else of its workload."""
        return self.cluster, self.group or self.workload

    @property
    def wait_began_micros(self) -> int:
        """Its due time, or its creation if the plan did not ask for it."""
        return self.created_micros if self.due_micros is None else self.due_micros

    @property
    def waited_seconds(self) -> float:
        """Seconds from its due time to binding, or for as long as it was observed to wait."""
        return (self._waited_until_micros - self.wait_began_micros) / 1e6

    @property
    def waited_since_creation_seconds(self) -> float:
        """Seconds from creation to binding, or for as long as it was observed to wait."""
        return (self._waited_until_micros - self.created_micros) / 1e6

    @property
    def _waited_until_micros(self) -> int:
        until = self.bound_micros or self.deleted_micros or self.observed_until_micros
        return max(until, self.created_micros)

    def hops_micros(self) -> dict[str, int]:
        """The hops of its wait, which add up to it exactly; empty for a pod never bound."""
        if self.bound_micros is None:
            return {}
        reached = {
            "arrived": None if self.due_micros is None else self.created_micros,
            "seen": self.seen_micros,
            "rolledUp": self.rolled_up_micros,
            "decided": self.decided_micros,
            "provisioned": self.provisioned_micros,
            "nodeReady": self.node_ready_micros,
        }
        waited = self.node_was_ready is False
        reached_in_time = plausible(reached, self.bound_micros, waited)
        return split(self.wait_began_micros, self._waited_until_micros, reached_in_time)


class _Request(NamedTuple):
    """When a pod's CapacityRequest was created, when its acknowledgement was written, and when the
    operator was told of the acceptance that this reports.
    """

    created_micros: int | None
    acknowledged_micros: int | None
    reported_micros: int | None


@dataclass(frozen=True, slots=True)
class _Bound:
    micros: int
    by: str
    node: str
    logged: bool


def build_rows(observed: Sequence[Observations], journal: Journal | None = None) -> list[PodRow]:
    """All rows of all clusters, in order of creation. Pure."""
    rows = [row for each in observed for row in _RowJoin(each, journal).rows()]
    return sorted(rows, key=lambda row: (row.created_micros, row.cluster, row.uid))


class _RowJoin:
    """The lookup tables to join one cluster's sources."""

    def __init__(self, observed: Observations, journal: Journal | None) -> None:
        self._observed, self._journal = observed, journal
        self._lives = node_lifetimes(observed)
        self._requests = observed.watch.requests_by_name()
        self._pods = _load_pods(observed)
        self._by_name: defaultdict[Name, list[tuple[int, str]]] = defaultdict(list)
        for uid, pod in self._pods.items():
            self._by_name[pod.namespace, pod.name].append((pod.created_micros, uid))
        for pods_of_name in self._by_name.values():
            pods_of_name.sort()
        self._bound = self._bindings()
        self._removed = self._removals()
        requested = observed.audit.requested if observed.audit else {}
        self._numbers = journal.request_numbers(observed.cluster, requested) if journal else {}

    def rows(self) -> list[PodRow]:
        return [self._row(uid, pod) for uid, pod in self._pods.items()]

    def _row(self, uid: str, pod: _Pod) -> PodRow:
        observation = self._observed.watch.pods.get(uid)
        bound = self._bound.get(uid)
        node = bound.node if bound else ""
        lifetime = lifetime_at(self._lives.get(node, ()), bound.micros) if bound else None
        acquired = self._acquisition(lifetime)
        requested = pod.namespace, f"{pod.name}-{uid[:8]}"
        request = self._request(requested)
        return PodRow(
            cluster=self._observed.cluster,
            namespace=pod.namespace,
            name=pod.name,
            uid=uid,
            archetype=pod.labels.get(ARCHETYPE_LABEL, ""),
            workload=pod.labels[WORKLOAD_LABEL],
            group=pod.labels.get(GROUP_LABEL, ""),
            step=pod.labels.get(STEP_LABEL, ""),
            created_micros=pod.created_micros,
            seen_micros=request.created_micros,
            acknowledged_micros=request.acknowledged_micros,
            rolled_up_micros=self._rolled_up(request, self._numbers.get(requested)),
            decided_micros=acquired.decided_micros,
            provisioned_micros=acquired.provisioned_micros,
            node=node,
            rack=lifetime.rack if lifetime else "",
            node_created_micros=lifetime.created_micros if lifetime else None,
            node_ready_micros=lifetime.ready_micros if lifetime else None,
            bound_micros=bound.micros if bound else None,
            bound_by=bound.by if bound else "",
            deleted_micros=self._removed.get(
                uid, observation.deleted_micros if observation else None
            ),
            observed_until_micros=self._observed.ended_micros,
            source=_source(pod, bound),
            node_was_ready=_node_was_ready(pod.created_micros, lifetime),
        )

    def _acquisition(self, lifetime: NodeLifetime | None) -> Acquisition:
        if self._journal is None or lifetime is None:
            return Acquisition(None, None)
        return self._journal.acquisition(
            lifetime.name, self._observed.cluster, lifetime.previous_micros, lifetime.created_micros
        )

    def _request(self, name: Name) -> _Request:
        audit = self._observed.audit
        if audit is not None:
            return _Request(
                audit.requested.get(name), audit.acknowledged.get(name), audit.accepted.get(name)
            )
        seen = self._requests.get(name)
        if seen is None:
            return _Request(None, None, None)
        return _Request(seen.created_micros, seen.acknowledged_micros, seen.accepted_micros)

    def _rolled_up(self, request: _Request, number: int | None) -> int | None:
        """When a shard had accepted the request, by the shard's journal; without one, when the
        operator was told so.
        """
        if self._journal is None:
            return request.reported_micros
        found = self._journal.roll_up_with(
            self._observed.cluster, request.created_micros, request.reported_micros, number
        )
        return None if found is None else found.accepted_micros

    def _bindings(self) -> dict[str, _Bound]:
        """The log's bindings, and those that only the watch has."""
        bound: dict[str, _Bound] = {}
        watched = self._observed.watch.pods
        for binding in self._observed.audit.bindings if self._observed.audit else ():
            uid = binding.uid or self._uid_at(binding.name, binding.at_micros)
            node = binding.node or (watched[uid].node if uid in watched else "")
            by = BINDERS.get(binding.writer, _OTHER)
            bound.setdefault(uid, _Bound(binding.at_micros, by, node, True))
        for uid, observation in watched.items():
            if observation.bound_micros is not None:
                bound.setdefault(uid, _Bound(observation.bound_micros, "", observation.node, False))
        return bound

    def _removals(self) -> dict[str, int]:
        removed: dict[str, int] = {}
        for removal in self._observed.audit.removals if self._observed.audit else ():
            uid = self._uid_at(removal.name, removal.at_micros)
            removed[uid] = min(removed.get(uid, removal.at_micros), removal.at_micros)
        return removed

    def _uid_at(self, name: Name, at_micros: int) -> str:
        """The UID of the pod of that name at that time: StatefulSets reuse names."""
        pods_of_name = self._by_name.get(name, [])
        position = bisect_right(pods_of_name, at_micros, key=lambda pod: pod[0])
        return pods_of_name[position - 1][1] if position else ""


@dataclass(frozen=True, slots=True)
class _Pod:
    namespace: str
    name: str
    labels: Mapping[str, str]
    created_micros: int
    logged: bool | None


def _load_pods(observed: Observations) -> dict[str, _Pod]:
    """The load's pods by UID; `logged` is None without a log."""
    pods: dict[str, _Pod] = {}
    for uid, created in observed.audit.pods.items() if observed.audit else ():
        meta = created.pod
        pods[uid] = _Pod(meta.namespace, meta.name, meta.labels, created.at_micros, True)
    for uid, observation in observed.watch.pods.items():
        pods.setdefault(uid, _from_observation(observation, observed))
    return {uid: pod for uid, pod in pods.items() if WORKLOAD_LABEL in pod.labels}


def _from_observation(observation: PodObservation, observed: Observations) -> _Pod:
    logged = None if observed.audit is None else False
    return _Pod(
        observation.namespace,
        observation.name,
        observation.labels,
        observation.created_micros,
        logged,
    )


def _source(pod: _Pod, bound: _Bound | None) -> str:
    timestamps = {bool(pod.logged)} | ({bound.logged} if bound else set())
    if len(timestamps) == 2:
        return "mixed"
    return "audit" if timestamps.pop() else "watch"


def _node_was_ready(created_micros: int, lifetime: NodeLifetime | None) -> bool | None:
    """Whether the node was ready before the pod; None if that was not observed."""
    if lifetime is None:
        return None
    if lifetime.created_micros > created_micros:
        return False
    return None if lifetime.ready_micros is None else lifetime.ready_micros <= created_micros
