"""Workloads of equal pods; a pod's request and demand are derived by production code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from bigfleet.api.install import GANG_MEMBERS
from bigfleet.controllers.disruption_cost import RECLAMATION_PENALTY
from bigfleet.controllers.operator.daemonsets import DaemonSet, overhead
from bigfleet.controllers.operator.request_demand import RequestDemand, RequestSpec, demand_of
from bigfleet.controllers.pod_controller.existing_requests import InternedSpec, digest_of
from bigfleet.controllers.pod_controller.pods import INTERRUPTION_PENALTY, Pod
from bigfleet.controllers.pod_controller.requests import request_for
from bigfleet.model.need import NodeOverhead, Spread

NAMESPACE = "default"
_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"

# Label keys with the accepted values of each.
Labels = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Workload:
    """`replicas` equal pods.

    `selector` holds the accepted values of a machine's labels, and `terms` are further selectors of
    which one must match. `tolerated` are the keys of tolerated taints. `same_key` keeps all pods of
    the `app` in one domain, `anti_affinity` allows at most one of them per domain of each key; the
    app defaults to the workload's name.

    `kind` is that of the controller: pods of a "Job" complete, a "DaemonSet" has one on every Node
    that it selects. Without one (`managed` False) evicted pods are not recreated. `max_unavailable`
    is a disruption budget: an eviction may leave at most so many pods unbound. `gang_members` is
    the size of the app's gang according to its requests, 0 if unspecified.
    """

    name: str
    replicas: int
    requests: Mapping[str, str]
    selector: Labels = field(default_factory=dict)
    terms: tuple[Labels, ...] = ()
    tolerated: tuple[str, ...] = ()
    priority: int = 0
    never_preempts: bool = False
    app: str = ""
    same_key: str = ""
    anti_affinity: tuple[str, ...] = ()
    spread: tuple[Spread, ...] = ()
    interruption_penalty: str = "0"
    reclamation_penalty: str = "0"
    kind: str = "ReplicaSet"
    managed: bool = True
    max_unavailable: int | None = None
    gang_members: int = 0

    def of(self, replicas: int) -> Workload:
        """The same workload with another number of pods."""
        return replace(self, replicas=replicas)

    @property
    def app_name(self) -> str:
        """The app that inter-pod terms select."""
        return self.app or self.name

    @cached_property
    def topology_keys(self) -> frozenset[str]:
        """The topology keys whose domains matter to the pods."""
        spread = (term.topology_key for term in self.spread)
        return frozenset({self.same_key, *spread, *self.demand.profile.anti_affinity} - {""})

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The labels of each pod."""
        return {"app": self.app_name, "workload": self.name}

    @cached_property
    def pod(self) -> Pod:
        """Each pod as the API server returns it, except for its name."""
        metadata = {
            "name": self.name,
            "namespace": NAMESPACE,
            "uid": self.name,
            "labels": self.labels,
            "annotations": {
                INTERRUPTION_PENALTY: self.interruption_penalty,
                RECLAMATION_PENALTY: self.reclamation_penalty,
                **({GANG_MEMBERS: str(self.gang_members)} if self.gang_members else {}),
            },
            "ownerReferences": [{"kind": self.kind, "name": self.name, "controller": True}]
            if self.managed
            else [],
        }
        return msgspec.convert({"metadata": metadata, "spec": self._spec()}, Pod)

    @cached_property
    def request(self) -> InternedSpec:
        """The spec of each pod's CapacityRequest."""
        body = request_for(self.pod)
        return InternedSpec(body, digest_of(body))

    @cached_property
    def wire_request(self) -> msgspec.Raw:
        """`request` as the API server returns it."""
        return msgspec.Raw(msgspec.json.encode(self.request.body))

    @cached_property
    def demand(self) -> RequestDemand:
        """The demand of one pod."""
        return demand_of(NAMESPACE, msgspec.json.decode(self.wire_request, type=RequestSpec))

    @cached_property
    def overhead(self) -> NodeOverhead | None:
        """The overhead of a DaemonSet on each machine."""
        metadata = {"name": self.name, "namespace": NAMESPACE}
        template = {"metadata": metadata, "spec": {"template": {"spec": self._spec()}}}
        return overhead(msgspec.convert(template, DaemonSet))

    def _spec(self) -> dict[str, Any]:
        return {
            "containers": [{"name": "main", "resources": {"requests": dict(self.requests)}}],
            "priority": self.priority,
            "preemptionPolicy": "Never" if self.never_preempts else "",
            "affinity": {name: {_AFFINITY: terms} for name, terms in self._affinity()},
            "tolerations": [{"key": key, "operator": "Exists"} for key in self.tolerated],
            "topologySpreadConstraints": [self._constraint(term) for term in self.spread],
        }

    def _affinity(self) -> Iterator[tuple[str, Any]]:
        if self.selector or self.terms:
            terms = [{**self.selector, **term} for term in self.terms] or [dict(self.selector)]
            found = [
                {"matchExpressions": [_in(*each) for each in sorted(t.items())]} for t in terms
            ]
            yield "nodeAffinity", {"nodeSelectorTerms": found}
        if self.same_key:
            yield "podAffinity", [self._affinity_term(self.same_key)]
        if self.anti_affinity:
            yield "podAntiAffinity", [self._affinity_term(key) for key in self.anti_affinity]

    def _affinity_term(self, key: str) -> dict[str, Any]:
        return {"topologyKey": key, "labelSelector": self._selector}

    @property
    def _selector(self) -> dict[str, Any]:
        return {"matchLabels": {"app": self.app_name}}

    def _constraint(self, term: Spread) -> dict[str, Any]:
        return {
            "topologyKey": term.topology_key,
            "maxSkew": term.max_skew,
            "whenUnsatisfiable": "DoNotSchedule" if term.hard else "ScheduleAnyway",
            "labelSelector": self._selector,
            "minDomains": term.min_domains if term.hard else None,
            "nodeAffinityPolicy": "Ignore" if term.ignores_node_affinity else "",
            "nodeTaintsPolicy": "Honor" if term.honors_node_taints else "",
        }


def _in(key: str, values: tuple[str, ...]) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}
