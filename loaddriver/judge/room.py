"""Where there was room when observation ended: free places for pods on ready nodes, by rack.

Nodes and pods are those of the rows and of `node_lives`: the API server's log where it is ours.
Only that a pod has finished is the watch's word: writes of pods' status are left out of the log,
as they would double it, and a watch that lists again makes good what it missed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from loaddriver.judge.facts import ArchetypeFacts
from loaddriver.record.nodes import node_lives
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow

_OVER = ("Succeeded", "Failed")

Place = tuple[str, str]
"""Cluster and archetype."""


@dataclass
class Room:
    """Per cluster and archetype: ready nodes, nodes not ready yet, and free places by rack.

    Machines are cut for one archetype, so a node is counted for the one that names its type.
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
) -> Room:
    """The room that was left; none for archetypes whose machines are not known."""
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


def _taken(observed: Observations, rows: Sequence[PodRow]) -> Counter[str]:
    """Pods that hold a place, by node: a finished one has given its place back."""
    pods = observed.watch.pods
    return Counter(
        row.node
        for row in rows
        if row.cluster == observed.cluster
        and row.bound_micros is not None
        and row.deleted_micros is None
        and not (row.uid in pods and pods[row.uid].phase in _OVER)
    )
