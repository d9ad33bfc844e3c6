"""Where there was room when observation ended: free places for pods on ready nodes, by rack.

Nodes and pods are those of the rows and of `node_lives`: the API server's log where it is ours.
Only that a pod has finished is the watch's word: writes of pods' status are left out of the log,
as they would double it, and a watch that lists again makes good what it missed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loaddriver.fit import Offer, PodNeeds, agent_needs, offer_of
from loaddriver.judge.facts import ArchetypeFacts, FleetFacts
from loaddriver.record.agents import agents_at_end
from loaddriver.record.nodes import NodeLife, node_lives
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow

_OVER = ("Succeeded", "Failed")

Place = tuple[str, str]
"""Cluster and archetype."""


@dataclass
class Room:
    """Per cluster and archetype: ready nodes, nodes not ready yet, and free places by rack.

    A machine that is cut for one archetype is counted for the one that names its type. One that all
    share is counted for each archetype with pods that wait and may run there; its places are for
    pods of the size of which most wait.
    """

    free: defaultdict[Place, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    ready: Counter[Place] = field(default_factory=Counter)
    joining: Counter[Place] = field(default_factory=Counter)

    def nodes_of(self, archetype: str) -> int:
        """Nodes for the archetype in all clusters, ready or not."""
        counts = self.ready + self.joining
        return sum(number for (_, name), number in counts.items() if name == archetype)


def room_at_end(
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    archetypes: Mapping[str, ArchetypeFacts],
    fleet: FleetFacts | None = None,
) -> Room:
    """The room that was left; none for archetypes whose machines are not known."""
    if fleet is not None and fleet.shares_machines:
        return _shared_room(observed, rows, fleet)
    owner = {kind: name for name, facts in archetypes.items() for kind in facts.instance_types}
    room = Room()
    for each in observed:
        taken = _taken(each, rows)
        for node in (lives[-1] for lives in node_lives(each).values()):
            archetype = owner.get(node.instance_type)
            if archetype is None or node.deleted_micros is not None:
                continue
            place = (each.cluster, archetype)
            if not node.ready_at_end:
                room.joining[place] += 1
                continue
            room.ready[place] += 1
            left = archetypes[archetype].pods_per_machine - taken[node.name]
            room.free[place][node.rack] += max(0, left)
    return room


def _shared_room(
    observed: Sequence[Observations], rows: Sequence[PodRow], fleet: FleetFacts
) -> Room:
    room = Room()
    waiting: defaultdict[Place, Counter[PodNeeds]] = defaultdict(Counter)
    for row in rows:
        needs = fleet.needs.get((row.cluster, row.workload))
        if needs is not None and row.bound_micros is None and row.deleted_micros is None:
            waiting[row.cluster, row.archetype][needs] += 1
    mostly = {place: asked.most_common(1)[0][0] for place, asked in waiting.items()}
    for each in observed:
        own = {place: needs for place, needs in mostly.items() if place[0] == each.cluster}
        free = _free(each, rows, fleet) if own else {}
        for node in (lives[-1] for lives in node_lives(each).values()):
            if node.name in free and node.deleted_micros is None:
                _count(room, node, free[node.name], own)
    return room


def _count(room: Room, node: NodeLife, free: Offer, waiting: Mapping[Place, PodNeeds]) -> None:
    for place, needs in waiting.items():
        if needs.accepts(free):
            (room.ready if node.ready_at_end else room.joining)[place] += 1
            if node.ready_at_end:
                room.free[place][node.rack] += needs.places(free)


def _free(observed: Observations, rows: Sequence[PodRow], fleet: FleetFacts) -> dict[str, Offer]:
    """What pods and agents leave of each of the fleet's nodes."""
    used: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in _holders(observed, rows):
        needs = fleet.needs.get((row.cluster, row.workload))
        used[row.node].update(dict(needs.requests) if needs else {})
    agents = {agent.name: dict(agent_needs(agent).requests) for agent in fleet.agents}
    for (node, agent), count in agents_at_end(observed).items():
        for name, amount in agents.get(agent, {}).items():
            used[node][name] += amount * count
    nodes = node_lives(observed)
    return {
        name: offer_of(machine, ()).less(used[name])
        for name, machine in fleet.machines.items()
        if name in nodes
    }


def _taken(observed: Observations, rows: Sequence[PodRow]) -> Counter[str]:
    """Pods that hold a place, by node."""
    return Counter(row.node for row in _holders(observed, rows))


def _holders(observed: Observations, rows: Sequence[PodRow]) -> Iterator[PodRow]:
    """Bound pods that are there: a finished one has given its place back."""
    pods = observed.watch.pods
    for row in rows:
        there = row.bound_micros is not None and row.deleted_micros is None
        over = row.uid in pods and pods[row.uid].phase in _OVER
        if row.cluster == observed.cluster and there and not over:
            yield row
