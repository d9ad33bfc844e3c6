"""From what a decision wants to orders that are under way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from bigfleet.engine.decision import Action, ActionType
from bigfleet.engine.snapshot import NONE
from bigfleet.observe import metrics
from bigfleet.ports.ownership import QuotaKey
from bigfleet.services.shard.actuation import Actuation
from bigfleet.services.shard.execution import Outcome
from bigfleet.services.shard.inventory import Inventory
from bigfleet.services.shard.journal import Journal
from bigfleet.services.shard.orders import Order
from bigfleet.services.shard.quotas import Quotas
from bigfleet.services.shard.sessions import Sessions
from bigfleet.services.shard.thinking import CycleResult

_USELESS_GRACE_SECONDS = 30
_ACQUIRING = (ActionType.BOOTSTRAP, ActionType.PROVISION)


class Ordering:
    """Gives orders for what may be ordered now. `slices` say how much may be bought where; while
    `paused` nothing is ordered.
    """

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

    def orders(self, thought: CycleResult) -> Iterator[Order]:
        """What the decision wants, as far as it can be paid for, the most urgent first."""
        for action in self._affordable(thought):
            yield _order(action, thought)

    def _affordable(self, thought: CycleResult) -> Iterable[Action]:
        slices, actions = self._slices(), thought.decision.actions
        if not slices:
            return actions
        provider = self._inventory.provider_name
        return Quotas(thought.view.fleet, provider, slices).within(actions)

    def give(self, order: Order) -> None:
        """Put an order under way, unless it would be in vain: the next cycle derives it again."""
        if self._paused:
            metrics.shard_actions_suppressed.labels(order.kind.value).inc()
        elif not self._inventory.is_mine(order.machine_id):
            # It went to another shard while the decision was under way.
            metrics.shard_actions_dropped.inc()
        elif order.asks_operator:
            self._ask_operator(order)
        elif self._actuation.offer(order):
            self._journal.note_order("decided", order)

    def _ask_operator(self, order: Order) -> None:
        session = self._sessions.of(order.cluster)
        if session is None or session.is_silent:
            outcome = Outcome.NO_SESSION if session is None else Outcome.OPERATOR_SILENT
            metrics.shard_action_outcomes.labels(order.kind.value, outcome.value).inc()
        elif self._actuation.offer(order, on_probation=session.is_on_probation):
            self._journal.note_order("decided", order)


def _order(action: Action, thought: CycleResult) -> Order:
    fleet, demand, is_wanted = thought.fleet, thought.demand, action.need != NONE
    acquires = action.type in _ACQUIRING
    cluster = int(demand.cluster[action.need] if acquires else fleet.cluster[action.row])
    return Order(
        kind=action.type,
        machine_id=thought.machine_id(action.row),
        cluster="" if cluster == NONE else fleet.clusters[cluster],
        need=demand.needs[action.need] if acquires else None,
        grace_seconds=_grace_seconds(action, thought),
        decided_seconds=thought.view.now_seconds,
        need_key=thought.keys[action.need] if is_wanted else None,
        preemptor_priority=demand.needs[action.need].priority if is_wanted else 0,
        max_cost=_most_cost(action, thought),
    )


def _grace_seconds(action: Action, thought: CycleResult) -> int:
    """Where nothing can run any more, pods that are left cannot end in an orderly way either."""
    fleet = thought.fleet
    flavour = fleet.flavours[fleet.flavour[action.row]]
    useless = flavour.limited and not any(flavour.allocatable.values())
    return min(action.grace_seconds, _USELESS_GRACE_SECONDS) if useless else action.grace_seconds


def _most_cost(action: Action, thought: CycleResult) -> float | None:
    """A machine on which nothing is counted goes only if that disturbs no more than was said, and
    for somebody who waits for it nothing at all where nothing was said.
    """
    if action.type is not ActionType.RECLAIM:
        return None
    cost = float(thought.fleet.disruption_cost[action.row])
    if math.isfinite(cost):
        return cost
    return None if action.need == NONE else 0.0
