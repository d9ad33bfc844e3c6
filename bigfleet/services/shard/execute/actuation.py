"""Executes orders concurrently, at most one per machine."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeAlias

from bigfleet.api.journal import JournalEvent
from bigfleet.engine.decision import ActionType
from bigfleet.model.errors import BigFleetError, Fenced
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.execute.execution import Execution, OrderOutcome, outcome_of
from bigfleet.services.shard.fleet.backoff import FailureBackOff
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Order, Orders

# Other failures occur in normal operation: they are counted and journaled, but not logged.
_UNEXPECTED = (OrderOutcome.ILLEGAL, OrderOutcome.UNKNOWN_MACHINE, OrderOutcome.INVALID)

# It is unknown whether the provider has received the order.
_UNANSWERED = (OrderOutcome.UNAVAILABLE, OrderOutcome.TIMED_OUT)
_LOG = logging.getLogger(__name__)
_Lane: TypeAlias = tuple[str, str]
# Clusters share this many times the concurrency of one. At the first fill of a thousand clusters
# each with as many orders as it may have alone, all orders would time out together.
_SHARED = 4


class Actuation:
    """For each provider at most `concurrency` orders per cluster that involve its operator, fewer
    if many clusters have some, and twice as many that involve only the provider: so an
    unresponsive operator delays no other cluster, and a provider no machines of others.

    `on_done` is called after each order that succeeded, `on_unknown_machine` after one whose
    machine the provider does not know. After a Fenced order no more are executed: `fenced` has the
    reason.
    """

    def __init__(
        self,
        execution: Execution,
        orders: Orders,
        journal: Journal,
        clock: Clock,
        concurrency: int,
        failures: FailureBackOff,
        on_done: Callable[[], None],
        on_unknown_machine: Callable[[], None],
    ) -> None:
        self.fenced = ""
        self._execution = execution
        self._orders = orders
        self._journal = journal
        self._clock = clock
        self._concurrency = concurrency
        self._failures = failures
        self._on_done = on_done
        self._on_unknown_machine = on_unknown_machine
        self._under_way: Counter[_Lane] = Counter()
        self._orders_under_way = 0
        self._queue: asyncio.Queue[tuple[Order, _Lane]] = asyncio.Queue()
        for action_type in ActionType:  # so that unused types read 0 instead of being absent
            metrics.shard_actions.labels(action_type.value)

    def enqueue(self, order: Order, *, on_probation: bool = False) -> bool:
        """Queue `order`; False when its limit is reached, its machine has an order, or when fenced.

        A cluster `on_probation` gets one order at a time. The next cycle derives a dropped order
        again.
        """
        lane = self._lane(order)
        full = self._under_way.get(lane, 0) >= (1 if on_probation else self._most(order))
        if self.fenced or full or self._orders.of(order.machine_id) is not None:
            metrics.shard_actions_dropped.inc()
            return False
        self._orders.add(order)
        self._under_way[lane] += 1
        self._queue.put_nowait((order, lane))
        metrics.shard_actions.labels(order.action_type.value).inc()
        self._count(1)
        return True

    def _most(self, order: Order) -> int:
        if not order.asks_operator:
            return 2 * self._concurrency
        share = _SHARED * self._concurrency // max(1, len(self._under_way))
        return max(1, min(self._concurrency, share))

    async def run(self) -> None:
        """Execute until cancelled. The next start's listing shows the outcome of sent orders."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._work(*await self._queue.get()))

    async def _work(self, order: Order, lane: _Lane) -> None:
        lost_seconds = None
        try:
            outcome = await self._carry_out(order)
            if outcome in _UNANSWERED:
                lost_seconds = self._clock.monotonic_seconds()
        finally:
            self._orders.close(order, lost_seconds)
            self._under_way[lane] -= 1
            if not self._under_way[lane]:
                del self._under_way[lane]
            self._count(-1)
        action_type = order.action_type.value
        metrics.shard_action_outcomes.labels(action_type, outcome.value).inc()
        if outcome is OrderOutcome.DONE:
            elapsed_seconds = self._clock.monotonic_seconds() - order.decided_seconds
            metrics.shard_action_seconds.labels(action_type).observe(max(0.0, elapsed_seconds))
            self._on_done()

    def _count(self, more: int) -> None:
        self._orders_under_way += more
        metrics.shard_queue_depth.set(self._orders_under_way)

    async def _carry_out(self, order: Order) -> OrderOutcome:
        if self.fenced:
            return OrderOutcome.FENCED
        try:
            outcome = await self._execution.carry_out(order)
            why = ""
        except (BigFleetError, TimeoutError) as error:
            outcome, why = outcome_of(error), str(error)
            if isinstance(error, Fenced):
                metrics.shard_incidents.labels("fenced-by-provider").inc()
                self.stop_ordering(
                    f"fenced: another process of this shard has a newer epoch ({why})"
                )
        except Exception as error:  # noqa: BLE001  a defect in one order must not affect others
            _LOG.exception("order failed", extra={"machine": order.machine_id})
            outcome, why = OrderOutcome.FAILED, str(error)
        if outcome is not OrderOutcome.DONE:
            self._report(order, outcome, why)
        return outcome

    def _report(self, order: Order, outcome: OrderOutcome, why: str) -> None:
        if outcome is OrderOutcome.UNKNOWN_MACHINE:
            self._on_unknown_machine()
        if (
            outcome is OrderOutcome.REFUSED_BY_OPERATOR
            and order.action_type is ActionType.BOOTSTRAP
        ):
            self._failures.refused(order.cluster, why, self._clock.monotonic_seconds())
        if outcome in _UNEXPECTED:
            fields = {"machine": order.machine_id, "action": order.action_type.value, "why": why}
            _LOG.warning("order failed", extra=fields)
        note = f"{outcome.value}: {why}" if why else outcome.value
        self._journal.note_order(JournalEvent.ORDER_FAILED, order, note=note)

    def stop_ordering(self, why: str, *, incident: bool = True) -> None:
        """Stop executing orders for the rest of this process; the first reason is kept, and logged
        as an incident or not.
        """
        if not self.fenced:
            self.fenced = f"{why}; this process issues no more orders and should be stopped"
            if incident:
                _LOG.critical("incident: %s", self.fenced)
            else:
                _LOG.warning("ordering stopped", extra={"why": self.fenced})

    def _lane(self, order: Order) -> _Lane:
        """Each lane has its own limit: for each provider one per cluster, and "" for orders without
        operator.
        """
        cluster = order.cluster if order.asks_operator else ""
        return self._execution.inventory.provider_of(order.machine_id) or "", cluster
