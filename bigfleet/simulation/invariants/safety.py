"""What must hold in a simulated world after every cycle, whatever goes wrong in it."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from bigfleet.engine.checks.invariants import violations
from bigfleet.engine.decide import decide
from bigfleet.engine.decision import Decision
from bigfleet.engine.snapshot import NONE, EngineConfig, Ints
from bigfleet.model.machine import BOUND, Machine, MachineState
from bigfleet.model.need import Need
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.invariants.steadiness import Steadiness
from bigfleet.simulation.invariants.victims import Victims
from bigfleet.simulation.runtime.disk import Crash

# A request that arrives after its shard was replaced is refused, and told, as it should be.
_EXPECTED_LOGS = frozenset(
    {
        "incident: an order of a replaced shard",
        # Of full disks.
        "%s; tried again every %g s",
        "an eviction waits to be taken up: %s",
        # Of replicas that have not noticed yet that they lead no more.
        "incident: a coordinator that was deposed gives instructions",
        "incident: a coordinator that was deposed still answers",
    }
)
# What a shard says that was taken out of the fleet.
_REMOVED = "was removed from the fleet"
# What costs a second decision is looked at in so many decisions that order nothing, once.
_SAMPLE_EVERY = 10
_MAY_HAVE_NODE = BOUND | {MachineState.FAILED}


class Safety(logging.Handler):
    """Collects sentences about what was violated; also whatever BigFleet itself logs as an error,
    because a cycle or an order that fails by a bug is caught and logged there.

    Decisions are made under `settings`; `steadiness` makes what looks at those of a shard as well.
    """

    def __init__(self, settings: EngineConfig) -> None:
        super().__init__(logging.ERROR)
        self.steadiness: Callable[[], Steadiness] | None = None
        self._settings = settings
        self.violations: list[str] = []
        self._seen: set[str] = set()
        self._victims: defaultdict[str, Victims] = defaultdict(Victims)
        self._steady: dict[str, Steadiness] = {}
        self._checked = 0

    def emit(self, record: logging.LogRecord) -> None:
        """An error of BigFleet's own is a violation, but for what the world itself provokes."""
        if record.msg in _EXPECTED_LOGS or _REMOVED in record.getMessage():
            return
        cause = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._note(f"{record.getMessage()}{cause}")

    def check_task(self, task: asyncio.Task[None]) -> None:
        """No part of the world may fail, but for what the world itself made crash."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BaseExceptionGroup):
            error = error.split(Crash)[1]
        elif isinstance(error, Crash):
            error = None
        if error is not None:
            self._note("".join(traceback.format_exception(error)))

    def check_decision(self, shard: str, result: CycleResult) -> None:
        """The engine's own invariants, and those that take several decisions to break."""
        self.note(violations(result.fleet, result.demand, result.decision))
        self.note(self._victims[shard].check(result))
        self._checked += 1
        if result.decision.actions or self._checked % _SAMPLE_EVERY == 1:
            self.note(_effects_of_impossible_pods(result, self._settings))
        if self.steadiness is not None:
            steady = self._steady.setdefault(shard, self.steadiness())
            self.note(steady.check(result))

    def check_machines(
        self, truth: Mapping[str, Machine], clusters: Iterable[SimulatedCluster], expected: int
    ) -> None:
        """Machines and Nodes as they really are."""
        if len(truth) != expected:
            self._note(f"{expected} machines became {len(truth)}")
        node_counts = Counter(
            node.name for c in clusters for node in c.nodes.values() if not node.dead
        )
        self.note(f"{n} has Nodes in {k} clusters" for n, k in node_counts.items() if k > 1)
        for cluster in clusters:
            self.note(_unexpected_nodes(cluster, truth))

    def note(self, sentences: Iterable[str]) -> None:
        """Collect what others have found."""
        for sentence in sentences:
            self._note(sentence)

    def _note(self, sentence: str) -> None:
        if sentence not in self._seen:
            self._seen.add(sentence)
            self.violations.append(sentence)


def _effects_of_impossible_pods(result: CycleResult, settings: EngineConfig) -> Iterator[str]:
    """Without the pods that nothing can hold, the same must be decided."""
    impossible = {s.need: s.impossible for s in result.decision.shortfalls if s.impossible}
    if not impossible:
        return
    kept: list[Need] = []
    place = np.full(len(result.demand.needs) + 1, NONE, np.int32)
    for index, need in enumerate(result.demand.needs):
        sizes = tuple(size for size in need.sizes if size not in impossible.get(index, ()))
        if sizes:
            place[index] = len(kept)
            kept.append(replace(need, sizes=sizes))
    clusters = result.demand.cluster[place[:-1] != NONE]
    demand = replace(result.demand, needs=kept, cluster=clusters)
    fleet = replace(result.fleet, last_claimed_by=place[result.fleet.last_claimed_by])
    without = decide(fleet, demand, result.inputs.cycle_memory, settings, result.inputs.now_seconds)
    if _moves(result.decision, place) != _moves(without, np.arange(len(place), dtype=np.int32)):
        yield f"pods that nothing can hold change what is decided: {sorted(impossible)}"


def _moves(decision: Decision, place: Ints) -> list[tuple[str, int, int, int]]:
    return [
        (a.type.value, a.row, NONE if a.need == NONE else int(place[a.need]), a.grace_seconds)
        for a in decision.actions
    ]


def _unexpected_nodes(cluster: SimulatedCluster, truth: Mapping[str, Machine]) -> Iterator[str]:
    for name, node in cluster.nodes.items():
        machine = truth[name]
        if node.dead:
            continue
        if machine.cluster != cluster.name or machine.state not in _MAY_HAVE_NODE:
            where = f"{machine.state.name} in {machine.cluster or 'no cluster'}"
            yield f"cluster {cluster.name} has a Node of {name}, which is {where}"
