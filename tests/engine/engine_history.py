"""Random histories over several cycles: operations finish or fail, pods come and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.engine.decision import ActionType, Decision
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import NONE, Demand, Fleet, Floats
from bigfleet.engine.state.last_decision import key_of
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.group import ADDITIONAL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, NeedKey, Size
from tests.engine.engine_random import CLUSTERS, Case, pick, random_need, unfolded_case
from tests.engine.engine_rig import NOW, remembering

S = MachineState
_ORDERED = {
    ActionType.BOOTSTRAP: S.CONFIGURING,
    ActionType.PROVISION: S.CREATING,
    ActionType.PREEMPT: S.DRAINING,
    ActionType.RECLAIM: S.DRAINING,
    ActionType.DELETE: S.DELETING,
}
_ARRIVED = {S.CREATING: S.IDLE, S.CONFIGURING: S.CONFIGURED, S.DRAINING: S.IDLE,
            S.DELETING: S.SPECULATIVE}  # fmt: skip


class RandomHistory:
    """A random fleet over several cycles. `case` and `now` are the inputs of the next decision.

    `changes` is the fraction of cycles in which the demand changes in one of the `ways`; the first
    cycle has the demand as drawn.
    """

    def __init__(
        self,
        seed: int,
        machines: int = 24,
        needs: int = 6,
        changes: float = 0.4,
        ways: Sequence[str] = ("comes", "goes", "grows", "shrinks", "shrinks"),
    ) -> None:
        self._draw = np.random.default_rng(seed + 2**33)
        self._changes, self._ways, self._next_group = changes, ways, needs
        fleet, self._asked = unfolded_case(seed, machines, needs)
        fleet = remembering(fleet)
        self._numbers: dict[NeedKey, int] = {}
        self._asked = self._numbered(fleet, self._asked)
        self.case, self.now = Case(fleet, fold(fleet, self._asked).demand, CycleMemory()), NOW

    def after(self, decision: Decision, seconds: float = 10.0) -> None:
        """Carry out the decision, and advance the clock."""
        fleet, demand, _ = self.case
        promised = self._promises(decision)
        fleet = self._ordered(fleet, demand, decision)
        self.now += seconds
        fleet = self._arrived(fleet)
        if self._draw.random() < self._changes:
            self._asked = self._numbered(fleet, self._changed())
        folded = fold(fleet, self._asked).demand
        at = {key_of(fleet, folded, index): index for index in range(len(folded.needs))}
        last_claimed_by = np.array(
            [at.get(key, NONE) if key else NONE for key in promised], np.int32
        )
        fleet = replace(fleet, last_claimed_by=last_claimed_by)
        self.case = Case(fleet, folded, decision.cycle_memory)

    def forget_falls(self) -> None:
        """As if the demand had never fallen."""
        self._asked = replace(self._asked, fell_seconds={})
        self.case = self.case._replace(demand=replace(self.case.demand, fell_seconds={}))

    def _promises(self, decision: Decision) -> list[NeedKey | None]:
        """By row, the need that claims the machine, or that it is bound for."""
        fleet, demand, _ = self.case
        bound = (S.CREATING, S.CONFIGURING, S.CONFIGURED)
        promises: list[NeedKey | None] = []
        for row, index in enumerate(decision.claimed_by.tolist()):
            if index == NONE and fleet.state[row] in bound and not self._has_served(row):
                index = int(fleet.last_claimed_by[row])
            promises.append(None if index == NONE else key_of(fleet, demand, index))
        return promises

    def _has_served(self, row: int) -> bool:
        """Whether an additional need leaves the machine in service, which it counts no more."""
        fleet, demand, _ = self.case
        before, cluster = int(fleet.last_claimed_by[row]), int(fleet.cluster[row])
        if before == NONE or fleet.state[row] != S.CONFIGURED or cluster not in demand.reported:
            return False
        return demand.needs[before].group is ADDITIONAL

    def _ordered(self, fleet: Fleet, demand: Demand, decision: Decision) -> Fleet:
        """Start the operations of all actions; some actions are lost."""
        state, cluster = fleet.state.copy(), fleet.cluster.copy()
        destination, priority = fleet.destination.copy(), fleet.priority.copy()
        reclamation = fleet.reclamation_bucket.copy()
        for action in decision.actions:
            if self._draw.random() < 0.9:
                row = action.row
                state[row] = _ORDERED[action.type]
                destination[row] = demand.cluster[action.need] if action.need != NONE else NONE
                if action.type is ActionType.BOOTSTRAP:
                    cluster[row], destination[row] = demand.cluster[action.need], NONE
        for row, index in enumerate(decision.claimed_by.tolist()):
            if index != NONE and state[row] == S.CONFIGURED:
                priority[row] = demand.needs[index].priority
                reclamation[row] = demand.needs[index].profile.reclamation_bucket
        headroom = np.isin(np.arange(len(fleet)), [*decision.headroom])
        unused = _unused_since(fleet, decision, self.now)
        return replace(
            fleet, state=state, cluster=cluster, destination=destination, priority=priority,
            reclamation_bucket=reclamation, headroom=headroom, unused_since_seconds=unused,
        )  # fmt: skip

    def _arrived(self, fleet: Fleet) -> Fleet:
        """Finish half of the operations in progress; now and then a machine fails."""
        state, cluster = fleet.state.copy(), fleet.cluster.copy()
        destination, since = fleet.destination.copy(), fleet.unused_since_seconds.copy()
        cost = np.where(state == S.CONFIGURED, fleet.disruption_cost, np.nan)
        for row, before in enumerate(state.tolist()):
            if S(before) in _ARRIVED and self._draw.random() < 0.5:
                state[row] = _ARRIVED[S(before)]
                since[row] = self.now if state[row] == S.IDLE else np.nan
            elif before in (S.CREATING, S.CONFIGURED) and self._draw.random() < 0.01:
                state[row] = S.FAILED
            if state[row] not in (S.CONFIGURING, S.CONFIGURED, S.DRAINING):
                cluster[row] = NONE
            if state[row] not in (S.CREATING, S.DRAINING):
                destination[row] = NONE
            if state[row] == S.CONFIGURED and self._draw.random() < 0.3:
                cost[row] = pick(self._draw, (np.nan, np.inf, 0.0, 0.0, 2.0))
        cost[state != S.CONFIGURED] = np.nan
        free = np.isin(state, (int(S.IDLE), int(S.SPECULATIVE)))
        backed_off = free & (self._draw.random(len(state)) < 0.1)
        return replace(
            fleet, state=state, cluster=cluster, destination=destination,
            unused_since_seconds=since, disruption_cost=cost, backed_off=backed_off,
        )  # fmt: skip

    def _numbered(self, fleet: Fleet, demand: Demand) -> Demand:
        """Each need with the number of its key."""
        keys = [key_of(fleet, demand, index) for index in range(len(demand.needs))]
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in keys]
        return replace(demand, number=np.array(numbers, np.int32))

    def _changed(self) -> Demand:
        """Remove, add, grow or shrink a need."""
        demand = self._asked
        way = pick(self._draw, self._ways)
        asked = list(zip(demand.cluster.tolist(), demand.needs, strict=True))
        rose: dict[int, float] = {}
        fell: dict[int, float] = {}
        if way == "comes" or not asked:
            self._next_group += 1
            need = random_need(self._draw, self._next_group)
            cluster = int(self._draw.integers(len(CLUSTERS)))
            ceiling = demand.ceilings.get(cluster, Ceiling())
            need = replace(need, priority_ceiling=ceiling.priority)
            asked = [(c, n) for c, n in asked if (c, n.key) != (cluster, need.key)]
            asked.append((cluster, need))
            rose[asked[-1][0]] = self.now
        elif way == "goes":
            fell[asked.pop(int(self._draw.integers(len(asked))))[0]] = self.now
        else:
            at = int(self._draw.integers(len(asked)))
            cluster, need = asked[at]
            asked[at] = cluster, _resized(need, 2.0 if way == "grows" else 0.5)
            (rose if way == "grows" else fell)[cluster] = self.now
        asked.sort(key=lambda pair: -pair[1].priority)
        return replace(
            demand,
            needs=[need for _, need in asked],
            cluster=np.array([cluster for cluster, _ in asked], np.int32),
            rose_seconds={**demand.rose_seconds, **rose},
            fell_seconds={**demand.fell_seconds, **fell},
        )


def _resized(need: Need, factor: float) -> Need:
    sizes = (Size(size.amounts, max(1, int(size.pods * factor))) for size in need.sizes)
    return replace(need, sizes=tuple(sizes))


def _unused_since(fleet: Fleet, decision: Decision, now: float) -> Floats:
    since = fleet.unused_since_seconds.copy()
    counted = np.isin(np.arange(len(fleet)), decision.placements.row)
    works = fleet.state == S.CONFIGURED
    since[works & counted] = np.nan
    since[works & ~counted & np.isnan(since)] = now
    return since
