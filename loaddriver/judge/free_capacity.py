"""Free capacity when observation ended: places for pods on ready nodes, by rack.

Nodes and pods are those of the rows and of `node_lifetimes`. Completion of a pod is known from the
watch alone: the log omits writes of pods' status, which would double it, and a watch that lists
again recovers missed changes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loaddriver.judge.facts import ArchetypeFacts, FleetFacts
from loaddriver.record.daemon_pods import daemon_pods_at_end
from loaddriver.record.nodes import NodeLifetime, node_lifetimes
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from loaddriver.sizing.fit import Offering, PodRequirements, daemon_pod_requirements, offering_of

_OVER = ("Succeeded", "Failed")

ClusterArchetype = tuple[str, str]
"""Cluster and archetype."""


@dataclass
class FreeCapacity:
    """Per cluster and archetype: ready nodes, nodes not ready yet, and free places by rack.

    A dedicated machine counts for the archetype with its type. A shared one counts for each
    archetype with waiting pods that may run there; its places are for the most frequent pod size
    among them.
    """

    free: defaultdict[ClusterArchetype, Counter[str]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    ready: Counter[ClusterArchetype] = field(default_factory=Counter)
    not_ready: Counter[ClusterArchetype] = field(default_factory=Counter)

    def node_count(self, archetype: str) -> int:
        """Nodes for the archetype in all clusters, ready or not."""
        counts = self.ready + self.not_ready
        return sum(number for (_, name), number in counts.items() if name == archetype)


def free_capacity_at_end(
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    archetypes: Mapping[str, ArchetypeFacts],
    fleet: FleetFacts | None = None,
) -> FreeCapacity:
    """The free capacity; none for archetypes with unknown machines."""
    if fleet is not None and fleet.shares_machines:
        return _shared_free_capacity(observed, rows, fleet)
    owner = {
        instance_type: name
        for name, facts in archetypes.items()
        for instance_type in facts.instance_types
    }
    free_capacity = FreeCapacity()
    for each in observed:
        taken = _taken(each, rows)
        for node in (lifetimes[-1] for lifetimes in node_lifetimes(each).values()):
            archetype = owner.get(node.instance_type)
            if archetype is None or node.deleted_micros is not None:
                continue
            place = (each.cluster, archetype)
            if not node.ready_at_end:
                free_capacity.not_ready[place] += 1
                continue
            free_capacity.ready[place] += 1
            left = archetypes[archetype].pods_per_machine - taken[node.name]
            free_capacity.free[place][node.rack] += max(0, left)
    return free_capacity


def _shared_free_capacity(
    observed: Sequence[Observations], rows: Sequence[PodRow], fleet: FleetFacts
) -> FreeCapacity:
    free_capacity = FreeCapacity()
    waiting: defaultdict[ClusterArchetype, Counter[PodRequirements]] = defaultdict(Counter)
    for row in rows:
        needs = fleet.needs.get((row.cluster, row.workload))
        if needs is not None and row.bound_micros is None and row.deleted_micros is None:
            waiting[row.cluster, row.archetype][needs] += 1
    usual_needs = {place: asked.most_common(1)[0][0] for place, asked in waiting.items()}
    for each in observed:
        own = {place: needs for place, needs in usual_needs.items() if place[0] == each.cluster}
        free = _free(each, rows, fleet) if own else {}
        for node in (lifetimes[-1] for lifetimes in node_lifetimes(each).values()):
            if node.name in free and node.deleted_micros is None:
                _count(free_capacity, node, free[node.name], own)
    return free_capacity


def _count(
    free_capacity: FreeCapacity,
    node: NodeLifetime,
    free: Offering,
    waiting: Mapping[ClusterArchetype, PodRequirements],
) -> None:
    for place, needs in waiting.items():
        if needs.accepts(free):
            (free_capacity.ready if node.ready_at_end else free_capacity.not_ready)[place] += 1
            if node.ready_at_end:
                free_capacity.free[place][node.rack] += needs.count_fitting(free)


def _free(observed: Observations, rows: Sequence[PodRow], fleet: FleetFacts) -> dict[str, Offering]:
    """The free resources of each of the fleet's nodes."""
    used: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in _running_pods(observed, rows):
        needs = fleet.needs.get((row.cluster, row.workload))
        used[row.node].update(dict(needs.requests) if needs else {})
    daemon_sets = {
        agent.name: dict(daemon_pod_requirements(agent).requests) for agent in fleet.daemon_sets
    }
    for (node, agent), count in daemon_pods_at_end(observed).items():
        for name, amount in daemon_sets.get(agent, {}).items():
            used[node][name] += amount * count
    nodes = node_lifetimes(observed)
    return {
        name: offering_of(machine, ()).minus(used[name])
        for name, machine in fleet.nodes.items()
        if name in nodes
    }


def _taken(observed: Observations, rows: Sequence[PodRow]) -> Counter[str]:
    """The number of running pods by node."""
    return Counter(row.node for row in _running_pods(observed, rows))


def _running_pods(observed: Observations, rows: Sequence[PodRow]) -> Iterator[PodRow]:
    """Bound pods that exist and have not finished."""
    pods = observed.watch.pods
    for row in rows:
        there = row.bound_micros is not None and row.deleted_micros is None
        over = row.uid in pods and pods[row.uid].phase in _OVER
        if row.cluster == observed.cluster and there and not over:
            yield row
