"""Evictions: Nodes that operators are draining, durable across lost answers and restarts.

Between the instruction to drain a Node and the provider's DRAINING, only this record shows that the
machine is no longer supply. So an eviction is saved before its operator is instructed, and then
carried through: the machine counts as draining, and the order is repeated until the provider no
longer reports the machine as configured for that cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator

from bigfleet.engine.decision import ActionType
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.ports.store import Eviction, EvictionStore
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.orders import Order, Orders
from bigfleet.services.shard.records.views import MachineView
from bigfleet.services.shard.sessions.session import Session

_LOG = logging.getLogger(__name__)
_NOT_GONE = (MachineState.CONFIGURED, MachineState.DRAINING)


class Evictions:
    """At most one per machine."""

    def __init__(self, store: EvictionStore) -> None:
        self._store = store
        self._under_way = {eviction.machine_id: eviction for eviction in store.load()}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(self, order: Order, incarnation: int) -> None:
        """Record the eviction that `order` starts, for this incarnation of its machine.

        BigFleetError when it cannot be saved.
        """
        eviction = Eviction(
            order.machine_id,
            order.cluster,
            order.grace_seconds,
            order.need_key,
            order.preemptor_priority,
            incarnation,
            order.max_cost,
            order.gang,
        )
        self._store.record_started(eviction)
        self._under_way[eviction.machine_id] = eviction

    def cancel(self, machine_id: str) -> None:
        """Drop an eviction that the operator has refused."""
        if self._under_way.pop(machine_id, None) is not None:
            self._store.record_ended(machine_id)

    def drop(self, clusters: Container[str]) -> None:
        """Drop the evictions in these clusters."""
        for eviction in list(self._under_way.values()):
            if eviction.cluster in clusters:
                self.cancel(eviction.machine_id)

    def of(self, machine_id: str) -> Eviction | None:
        """The eviction under way for a machine."""
        return self._under_way.get(machine_id)

    def need_of(self, machine_id: str) -> NeedKey | None:
        """The need for which a machine is drained, or None."""
        eviction = self._under_way.get(machine_id)
        return None if eviction is None else eviction.need

    def settle(self, inventory: Inventory) -> None:
        """Drop evictions whose machine is neither configured for the cluster nor draining, or has
        been configured for it again.
        """
        for eviction in list(self._under_way.values()):
            view = inventory.view(eviction.machine_id)
            if not (view is not None and view.state in _NOT_GONE and _is_same(view, eviction)):
                del self._under_way[eviction.machine_id]
                self._store.record_ended(eviction.machine_id)

    def resume(self, sessions: Iterable[Session], inventory: Inventory) -> None:
        """Adopt evictions that operators carry out and that have no record here: they were started
        by a shard whose disk is lost. One that cannot be saved is retried.
        """
        for session in sessions:
            for machine_id, seconds_left in list(session.drains.items()):
                view = inventory.view(machine_id)
                if view is None:
                    continue  # not listed yet
                if self._is_new(view, session.cluster) and inventory.owns(machine_id):
                    eviction = Eviction(
                        machine_id,
                        session.cluster,
                        seconds_left,
                        incarnation=view.incarnation,
                    )
                    try:
                        self._store.record_started(eviction)
                    except BigFleetError as error:
                        _LOG.error("eviction reported by the operator cannot be saved: %s", error)
                        continue
                    self._under_way[machine_id] = eviction
                    fields = {"machine": machine_id, "cluster": session.cluster}
                    _LOG.warning("resuming an eviction reported by the operator", extra=fields)
                del session.drains[machine_id]

    def _is_new(self, view: MachineView, cluster: str) -> bool:
        at_work = view.state is MachineState.CONFIGURED and view.cluster == cluster
        return at_work and view.id not in self._under_way

    def unattended(
        self, inventory: Inventory, orders: Orders, now_seconds: float
    ) -> Iterator[Order]:
        """An order for each machine that is still configured and has none under way."""
        for eviction in self._under_way.values():
            working = inventory.state(eviction.machine_id) is MachineState.CONFIGURED
            if working and orders.of(eviction.machine_id) is None:
                yield Order(
                    action_type=ActionType.RECLAIM,
                    machine_id=eviction.machine_id,
                    cluster=eviction.cluster,
                    need=None,
                    grace_seconds=eviction.grace_seconds,
                    decided_seconds=now_seconds,
                    need_key=eviction.need,
                    preemptor_priority=eviction.preemptor_priority,
                    max_cost=eviction.max_cost,
                    gang=eviction.gang,
                )


def _is_same(view: MachineView, eviction: Eviction) -> bool:
    return (view.cluster, view.incarnation) == (eviction.cluster, eviction.incarnation)
