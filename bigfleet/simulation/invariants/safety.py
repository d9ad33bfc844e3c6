"""Invariants that hold after every cycle, whatever the faults."""

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

# Logged as intended when a request of a replaced shard arrives late.
_EXPECTED_LOGS = frozenset(
    {
        "incident: order from a replaced shard",
        # Full disks.
        "%s; retrying every %g s",
        "eviction reported by the operator cannot be saved: %s",
        # Replicas that do not know yet that they no longer lead.
        "incident: stale instruction from a deposed coordinator",
        "incident: answer from a deposed coordinator",
    }
)
# Logged by a shard that was removed from the fleet.
_REMOVED = "was removed from the fleet"
# Checks that need a second decision run once in so many decisions without actions.
_SAMPLE_EVERY = 10
_MAY_HAVE_NODE = BOUND | {MachineState.FAILED}


class Safety(logging.Handler):
    """Collects violations as sentences, including errors that BigFleet logs, because internal
    errors of a cycle or an operation are caught and logged.

    Decisions are made under `settings`; `steadiness` creates another check of a shard's decisions.
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
        """Logged errors are violations, except those that injected faults cause."""
        if record.msg in _EXPECTED_LOGS or _REMOVED in record.getMessage():
            return
        cause = f": {record.exc_info[1]!r}" if record.exc_info else ""
        self._note(f"{record.getMessage()}{cause}")

    def check_task(self, task: asyncio.Task[None]) -> None:
        """No task may fail, except by an injected crash."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BaseExceptionGroup):
            error = error.split(Crash)[1]
        elif isinstance(error, Crash):
            error = None
        if error is not None:
            self._note("".join(traceback.format_exception(error)))

    def check_decision(self, shard: str, result: CycleResult) -> None:
        """Check the engine's invariants and those over several decisions."""
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
        """Check the provider's machines and the clusters' Nodes."""
        if len(truth) != expected:
            self._note(f"{expected} machines became {len(truth)}")
        node_counts = Counter(
            node.name for c in clusters for node in c.nodes.values() if not node.dead
        )
        self.note(f"{n} has Nodes in {k} clusters" for n, k in node_counts.items() if k > 1)
        for cluster in clusters:
            self.note(_unexpected_nodes(cluster, truth))

    def note(self, sentences: Iterable[str]) -> None:
        """Collect violations found by other checks."""
        for sentence in sentences:
            self._note(sentence)

    def _note(self, sentence: str) -> None:
        if sentence not in self._seen:
            self._seen.add(sentence)
            self.violations.append(sentence)


def _effects_of_impossible_pods(result: CycleResult, settings: EngineConfig) -> Iterator[str]:
    """Without the pods that no machine can hold, the decision must be the same."""
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
    demand = replace(result.demand, needs=kept, cluster=clusters, number=None)
    fleet = replace(result.fleet, last_claimed_by=place[result.fleet.last_claimed_by])
    without = decide(fleet, demand, result.inputs.cycle_memory, settings, result.inputs.now_seconds)
    if _moves(result.decision, place) != _moves(without, np.arange(len(place), dtype=np.int32)):
        yield f"pods that no machine can hold change the decision: {sorted(impossible)}"


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
