"""What must hold in a simulated world after every cycle, whatever goes wrong in it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from bigfleet.engine.invariants import violations
from bigfleet.model.machine import BOUND, Machine, MachineState
from bigfleet.services.shard.thinking import Thought
from bigfleet.simulation.cluster import Cluster
from bigfleet.simulation.victims import Victims

# A request that arrives after its shard was replaced is refused, and told, as it should be.
_PROVOKED = frozenset({"incident: an order of a replaced shard"})
_MAY_HAVE_NODE = BOUND | {MachineState.FAILED}


class Safety(logging.Handler):
    """Collects sentences about what was violated; also whatever BigFleet itself logs as an error,
    because a cycle or an order that fails by a bug is caught and logged there.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.violations: list[str] = []
        self._seen: set[str] = set()
        self._victims = Victims()

    def emit(self, record: logging.LogRecord) -> None:
        """An error of BigFleet's own is a violation, but for what the world itself provokes."""
        if record.msg in _PROVOKED:
            return
        cause = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._note(f"{record.getMessage()}{cause}")

    def look_at_decision(self, thought: Thought) -> None:
        """The engine's own invariants, and those that take several decisions to break."""
        self._note_all(violations(thought.fleet, thought.demand, thought.decision))
        self._note_all(self._victims.look_at(thought))

    def look_at_machines(
        self, truth: Mapping[str, Machine], clusters: Iterable[Cluster], expected: int
    ) -> None:
        """Machines and Nodes as they really are."""
        if len(truth) != expected:
            self._note(f"{expected} machines became {len(truth)}")
        homes = Counter(node.name for c in clusters for node in c.nodes.values() if not node.dead)
        self._note_all(f"{n} has Nodes in {k} clusters" for n, k in homes.items() if k > 1)
        for cluster in clusters:
            self._note_all(_strangers(cluster, truth))

    def _note_all(self, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            self._note(sentence)

    def _note(self, sentence: str) -> None:
        if sentence not in self._seen:
            self._seen.add(sentence)
            self.violations.append(sentence)


def _strangers(cluster: Cluster, truth: Mapping[str, Machine]) -> Iterator[str]:
    for name, node in cluster.nodes.items():
        machine = truth[name]
        if node.dead:
            continue
        if machine.cluster != cluster.name or machine.state not in _MAY_HAVE_NODE:
            where = f"{machine.state.name} in {machine.cluster or 'no cluster'}"
            yield f"cluster {cluster.name} has a Node of {name}, which is {where}"
