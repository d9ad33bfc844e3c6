"""Turns the actions of a decision into orders."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np

from bigfleet.api.journal import JournalEvent
from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.snapshot import NONE
from bigfleet.model.group import PodGroup, group_text
from bigfleet.model.machine import MachineState
from bigfleet.observe import metrics
from bigfleet.ports.ownership import QuotaKey
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.decide.quotas import Quotas
from bigfleet.services.shard.execute.actuation import Actuation
from bigfleet.services.shard.execute.execution import OrderOutcome
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Order
from bigfleet.services.shard.sessions.registry import Sessions

_USELESS_GRACE_SECONDS = 30
_ACQUIRING = (ActionType.BOOTSTRAP, ActionType.PROVISION)


class OrderIssuer:
    """Issues orders. `slices` are this shard's quotas; while `paused` nothing is ordered."""

    def __init__(
        self,
        inventory: Inventory,
        sessions: Sessions,
        actuation: Actuation,
        journal: Journal,
        slices: Callable[[], Mapping[QuotaKey, int]],
        *,
        paused: bool,
    ) -> None:
        self._inventory, self._sessions, self._actuation = inventory, sessions, actuation
        self._journal, self._slices, self._paused = journal, slices, paused
        self._issued_under: Mapping[QuotaKey, int] = {}

    def orders(self, result: CycleResult, on_trial: Collection[str]) -> Iterator[Order]:
        """Orders for the decision's actions within quota, the most urgent first; clusters
        `on_trial` get one machine at a time.
        """
        withheld = _withheld(result, on_trial)
        self._issued_under = dict(self._slices())
        for action in self.issued(result):
            if action.row not in withheld:
                yield _order(action, result)

    def issued(self, result: CycleResult) -> Iterable[Action]:
        """The decision's actions within the quotas that were in force when orders were last issued:
        they may have become smaller since.
        """
        actions = result.decision.actions
        if not self._issued_under:
            return actions
        names = self._inventory.provider_names
        return Quotas(result.inputs.fleet, names, self._issued_under).within(actions)

    def issue(self, order: Order) -> None:
        """Queue an order if it can be executed now; otherwise the next cycle derives it again."""
        if self._paused:
            metrics.shard_actions_suppressed.labels(order.action_type.value).inc()
        elif not self._inventory.owns(order.machine_id):
            # It passed to another shard during the decision.
            metrics.shard_actions_dropped.inc()
        elif self._inventory.held_reason(order.machine_id):
            metrics.shard_actions_dropped.inc()
        elif order.asks_operator:
            self._ask_operator(order)
        elif self._actuation.enqueue(order):
            self._journal.note_order(JournalEvent.DECIDED, order, order.why)

    def _ask_operator(self, order: Order) -> None:
        session = self._sessions.of(order.cluster)
        if session is None or session.is_silent:
            outcome = OrderOutcome.NO_SESSION if session is None else OrderOutcome.OPERATOR_SILENT
            metrics.shard_action_outcomes.labels(order.action_type.value, outcome.value).inc()
        elif self._actuation.enqueue(order, on_probation=session.is_on_probation):
            self._journal.note_order(JournalEvent.DECIDED, order, order.why)


def _withheld(result: CycleResult, on_trial: Collection[str]) -> set[int]:
    """The machines that clusters `on_trial` are to acquire while another one is on its way to them:
    none of theirs becomes Ready, and all that they need would be bought for nothing.
    """
    if not on_trial:
        return set()
    names, cluster = result.fleet.clusters, result.demand.cluster
    tried = _expecting(result)
    withheld = set()
    acquisitions = (each for each in result.decision.actions if each.type in _ACQUIRING)
    for action in sorted(acquisitions, key=lambda each: each.type is ActionType.PROVISION):
        name = names[int(cluster[action.need])]
        if name in on_trial and name in tried:
            withheld.add(action.row)
        tried.add(name)
    return withheld


def _expecting(result: CycleResult) -> set[str]:
    """The clusters that a machine is on its way to."""
    fleet, claimed_by = result.fleet, result.decision.claimed_by
    coming = np.isin(fleet.state, (MachineState.CREATING, MachineState.CONFIGURING))
    needs = np.unique(claimed_by[coming & (claimed_by != NONE)])
    return {fleet.clusters[number] for number in result.demand.cluster[needs].tolist()}


def _order(action: Action, result: CycleResult) -> Order:
    fleet, demand, is_wanted = result.fleet, result.demand, action.need != NONE
    acquires = action.type in _ACQUIRING
    cluster = int(demand.cluster[action.need] if acquires else fleet.cluster[action.row])
    gang = _gang_that_left(action, result)
    return Order(
        action_type=action.type,
        machine_id=result.machine_id(action.row),
        cluster="" if cluster == NONE else fleet.clusters[cluster],
        need=demand.needs[action.need] if acquires else None,
        grace_seconds=_grace_seconds(action, result),
        decided_seconds=result.inputs.now_seconds,
        need_key=result.keys[action.need] if is_wanted else None,
        preemptor_priority=demand.needs[action.need].priority if is_wanted else 0,
        max_cost=None if gang else _most_cost(action, result),
        gang=gang,
    )


def _gang_that_left(action: Action, result: CycleResult) -> str:
    """The group of the gang that has left the machine by count, whose pods must follow; "" for any
    other action. Whether they ever ran there only the operator knows.
    """
    fleet = result.fleet
    if action.type is not ActionType.RECLAIM or action.need != NONE:
        return ""
    last, cost = int(fleet.last_claimed_by[action.row]), float(fleet.disruption_cost[action.row])
    # What the operator would release, at this cost, goes as any surplus machine.
    if last == NONE or math.isfinite(cost):
        return ""
    need = result.demand.needs[last]
    is_gang = need.profile.same_key is not None and isinstance(need.group, PodGroup)
    return group_text(need.group) if is_gang else ""


def _grace_seconds(action: Action, result: CycleResult) -> int:
    """The action's grace period, shortened for a broken machine: its pods cannot shut down."""
    fleet = result.fleet
    flavour = fleet.flavours[fleet.flavour[action.row]]
    useless = flavour.limited and not any(flavour.allocatable.values())
    return min(action.grace_seconds, _USELESS_GRACE_SECONDS) if useless else action.grace_seconds


def _most_cost(action: Action, result: CycleResult) -> float | None:
    """The highest disruption cost for a reclaim: the reported cost. Without a report there is no
    limit for a surplus machine, and a machine taken for a need must have no cost.
    """
    if action.type is not ActionType.RECLAIM:
        return None
    cost = float(result.fleet.disruption_cost[action.row])
    if math.isfinite(cost):
        return cost
    return None if action.need == NONE else 0.0
