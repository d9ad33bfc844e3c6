"""The disruption of reclaiming Nodes of a simulated cluster, by production's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.controllers.operator.disruption_reviews import FIT_UNKNOWN
from bigfleet.controllers.operator.disruptions import (
    SPARE_CANDIDATES,
    rejection_reason,
    select_machines,
)
from bigfleet.controllers.pod_controller.disruption import NodeDisruption
from bigfleet.model.group import group_text
from bigfleet.simulation.cluster.cluster import SimulatedCluster


class Disruption:
    """Assesses the Nodes of one cluster."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def runs(self, gang: str, names: Sequence[str]) -> bool:
        """Whether any of these Nodes runs a pod of the gang whose group has this text."""
        pods = (pod for name in names for pod in self._cluster.pods_on(name))
        return any(group_text(pod.workload.demand.group) == gang for pod in pods)

    def rejection_reason(self, names: Sequence[str], max_cost: float) -> str:
        """Why these Nodes must not be drained at that cost, "" if they may; cordons them if so."""
        ours = [name for name in names if not self._cluster.nodes[name].cordoned]
        for name in ours:
            self._cluster.cordon(name)
        reviewed = self._cluster.controller.review(len(names), names) if names else ()
        known = {verdict.node: verdict for verdict in reviewed}
        unknown = (NodeDisruption(name, 0, 0.0, fits=False, why=FIT_UNKNOWN) for name in names)
        why = rejection_reason(
            [self._with_budgets(known.get(v.node, v)) for v in unknown], max_cost
        )
        for name in ours if why else ():
            self._cluster.cordon(name, cordoned=False)
        return why

    def report(self, inquiry: shard_pb2.DisruptionInquiry) -> shard_pb2.DisruptionReport:
        """The response to an inquiry."""
        asked = list(dict.fromkeys(inquiry.machine_ids))
        verdicts = self._cluster.controller.review(
            inquiry.max_machines + SPARE_CANDIDATES, preferred=asked
        )
        found = [self._with_budgets(verdict) for verdict in verdicts]
        machines = select_machines(found, set(asked), inquiry.max_machines)
        return shard_pb2.DisruptionReport(inquiry_id=inquiry.inquiry_id, machines=machines)

    def _with_budgets(self, verdict: NodeDisruption) -> shard_pb2.MachineDisruption:
        """The pod controller's assessment of a Node, with disruption budgets."""
        pods = self._cluster.pods_on(verdict.node)
        counts = Counter(pod.workload.name for pod in pods)
        forbidden = (
            f"the budget of {name} allows {allowed}"
            for name, count in counts.items()
            for workload in [next(p.workload for p in pods if p.workload.name == name)]
            if (allowed := self._cluster.disruptions_allowed(workload)) is not None
            and allowed < count
        )
        return shard_pb2.MachineDisruption(
            machine_id=verdict.node,
            pods=len(pods),
            batch_pods=sum(pod.workload.kind == "Job" for pod in pods),
            cost=verdict.cost,
            blocked=verdict.why or next(forbidden, ""),
        )
