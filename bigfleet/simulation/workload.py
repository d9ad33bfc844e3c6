"""What tenants ask for: workloads of equal pods, in the words of a CapacityRequest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from bigfleet.controllers.operator.demand import Demand, RequestSpec, demand_of
from bigfleet.model.need import Spread

NAMESPACE = "default"


@dataclass(frozen=True)
class Workload:
    """`replicas` equal pods. `selector` holds the label values that a machine must have, key to
    alternatives; `same_key` keeps all pods of the workload in one domain. `managed` workloads have
    a controller that recreates what is evicted. `max_unavailable` is a disruption budget: so many
    pods may be unbound at a time for an eviction's sake. `gang_members` is how many pods there will
    be, as far as its requests say; 0 where they do not.
    """

    name: str
    replicas: int
    requests: Mapping[str, str]
    selector: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    priority: int = 0
    same_key: str = ""
    spread: tuple[Spread, ...] = ()
    interruption_penalty: str = "0"
    reclamation_penalty: str = "0"
    managed: bool = True
    max_unavailable: int | None = None
    gang_members: int = 0

    def of(self, replicas: int) -> Workload:
        """The same with another number of pods."""
        return replace(self, replicas=replicas)

    @cached_property
    def request(self) -> bytes:
        """The spec of each pod's CapacityRequest, as the API server would hand it out."""
        spec: dict[str, Any] = {
            "resources": {**self.requests, "pods": "1"},
            "priority": self.priority,
            "requirements": [
                {"key": key, "operator": "In", "values": list(values)}
                for key, values in sorted(self.selector.items())
            ],
            "interruptionPenalty": self.interruption_penalty,
            "reclamationPenalty": self.reclamation_penalty,
            "topologySpread": [_spread_term(term) for term in self.spread],
        }
        if self.same_key:
            labels = {"matchLabels": {"app": self.name}}
            spec["coLocation"] = {"topologyKey": self.same_key, "labelSelector": labels}
        return msgspec.json.encode(spec)

    @cached_property
    def demand(self) -> Demand:
        """What one pod adds to its cluster's demand."""
        return demand_of(NAMESPACE, msgspec.json.decode(self.request, type=RequestSpec))


def _spread_term(term: Spread) -> dict[str, Any]:
    return {
        "topologyKey": term.topology_key,
        "maxSkew": term.max_skew,
        "whenUnsatisfiable": "DoNotSchedule" if term.hard else "ScheduleAnyway",
    }
