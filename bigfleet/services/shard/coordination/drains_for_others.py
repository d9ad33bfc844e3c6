"""Drains machines of this shard's clusters for pods of a higher priority in another shard's.

The coordinator names the machines, as the shard in need sees them. Only this shard knows which pods
run there now. So it refuses the whole instruction unless all of them serve lower priorities, and
otherwise begins one eviction for each, with the grace period of local preemption, before it
releases their domain. Evictions once begun are carried through by `evictions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from bigfleet.engine.decision import ActionType
from bigfleet.engine.phases.victims import grace_periods
from bigfleet.engine.snapshot import NONE
from bigfleet.model import penalty
from bigfleet.model.domain import Domain
from bigfleet.model.machine import MachineState
from bigfleet.ports.ownership import DrainTask
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.cycle import Cycle
from bigfleet.services.shard.fleet.ownership import Ownership
from bigfleet.services.shard.records.orders import Order


class Victim(NamedTuple):
    """A machine as the last decision knows it."""

    cluster: str
    #: the highest of the pods that run there
    priority: int
    #: its cluster's operator can evict them now
    is_reachable: bool
    #: its cluster has been without an operator for so long that nothing is expected of it
    is_suspended: bool


def victim(result: CycleResult, machine_id: str) -> Victim | str:
    """What a machine serves, or why its pods may not be evicted for another shard."""
    fleet, decision = result.fleet, result.decision
    rows = np.flatnonzero(np.asarray(result.inputs.machine_ids) == machine_id.encode())
    cluster = int(fleet.cluster[rows[0]]) if len(rows) else NONE
    if cluster == NONE:
        return f"{machine_id} serves no cluster of this shard"
    row, name = int(rows[0]), fleet.clusters[cluster]
    if np.isposinf(fleet.disruption_cost[row]):
        return f"{name} reports that {machine_id} must stay"
    placed = decision.placements
    needs = {*placed.need[placed.row == row].tolist(), int(decision.claimed_by[row])} - {NONE}
    served = [result.demand.needs[need] for need in needs]
    if any(need.profile.interruption_bucket == penalty.PINNED for need in served):
        return f"pods on {machine_id} must not be interrupted"
    priorities = [need.priority for need in served]
    return Victim(
        name,
        max(priorities, default=int(fleet.priority[row])),
        cluster in result.demand.reachable,
        cluster in result.demand.suspended,
    )


class DrainsForOthers:
    """What `ownership` says is to be drained, with the state of a shard's `cycle`."""

    def __init__(self, ownership: Ownership, cycle: Cycle) -> None:
        self._ownership, self._cycle = ownership, cycle

    def objection(self, task: DrainTask) -> str:
        """Why these machines may not be drained; "" if all of them may."""
        for machine_id in task.machine_ids:
            found = self._victim(machine_id, task.priority)
            if isinstance(found, str):
                return found
            if not found.is_reachable:
                return f"the operator of {found.cluster} is not connected"
        return ""

    def are_left(self, domain: Domain) -> bool:
        """Whether evictions in a domain that is being released have yet to begin."""
        record = self._ownership.record
        return any(
            domain == record.leaving.get(number) and any(self._left(task))
            for number, task in record.drains.items()
        )

    def orders(self, now_seconds: float) -> list[Order]:
        """An order for each machine whose eviction has yet to begin and that has none."""
        return [
            _order(found, machine_id, task, now_seconds)
            for task in self._ownership.record.drains.values()
            for machine_id, found in self._left(task)
            if found.is_reachable and self._cycle.orders.of(machine_id) is None
        ]

    def _left(self, task: DrainTask) -> Iterator[tuple[str, Victim]]:
        """What is to be drained, also once its operator is back; no machine that has got pods of a
        higher priority since.
        """
        for machine_id in task.machine_ids:
            if self._cycle.evictions.of(machine_id) is None:
                found = self._victim(machine_id, task.priority)
                if isinstance(found, Victim) and not found.is_suspended:
                    yield machine_id, found

    def _victim(self, machine_id: str, priority: int) -> Victim | str:
        result, view = self._cycle.latest, self._cycle.inventory.view(machine_id)
        if result is None:
            return "this shard has not decided anything yet"
        if view is None or view.state is not MachineState.CONFIGURED:
            return f"{machine_id} is not in use any more"
        found = victim(result, machine_id)
        if isinstance(found, str):
            return found
        if found.cluster != view.cluster or found.cluster not in self._ownership.clusters:
            return f"{machine_id} serves another cluster by now"
        if found.priority >= priority:
            return f"{machine_id} has pods of priority {found.priority}, not below {priority}"
        return found


def _order(found: Victim, machine_id: str, task: DrainTask, now_seconds: float) -> Order:
    (grace_seconds,) = grace_periods(np.array([task.priority - found.priority])).tolist()
    return Order(
        action_type=ActionType.PREEMPT,
        machine_id=machine_id,
        cluster=found.cluster,
        need=None,
        grace_seconds=grace_seconds,
        decided_seconds=now_seconds,
        preemptor_priority=task.priority,
        why=task.reason,
    )
