"""Pending removals of clusters that no longer exist.

They have no operator, so their machines are drained without one. That takes many cycles and
survives restarts: a cluster stays here until no machine is bound to it and, with a coordinator,
until that has received the report of it. Until then an operator with its name is not served,
because its machines are being drained.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import Fleet
from bigfleet.model.errors import BigFleetError
from bigfleet.model.machine import MachineState
from bigfleet.ports.store import RemovalStore
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.orders import Order, Orders
from bigfleet.services.shard.records.wants import Wants

# No operator evicts the pods; a host's kubelet may still shut them down.
GRACE_SECONDS = 10

_LOG = logging.getLogger(__name__)


class PendingRemovals:
    """`is_reported`: a removal ends only after a report to the coordinator."""

    def __init__(self, store: RemovalStore, *, is_reported: bool) -> None:
        """BigFleetError when the stored removals are damaged."""
        self._store, self._is_reported = store, is_reported
        self._left: dict[str, int | None] = dict.fromkeys(store.load())

    def __contains__(self, cluster: object) -> bool:
        return cluster in self._left

    def left(self) -> Mapping[str, int]:
        """Number of machines left by cluster, for removals that have been counted."""
        return {cluster: left for cluster, left in self._left.items() if left is not None}

    def begin(self, cluster: str) -> None:
        """Start a removal. BigFleetError when it cannot be saved."""
        self._store.save({*self._left, cluster})
        self._left.setdefault(cluster, None)

    def end(self, clusters: Collection[str]) -> None:
        """End these removals; a failure to save is retried."""
        ended = [cluster for cluster in clusters if cluster in self._left]
        if not ended:
            return
        try:
            self._store.save(self._left.keys() - set(ended))
        except BigFleetError as error:
            _LOG.error("end of a removal cannot be saved", extra={"why": str(error)})
            return
        for cluster in ended:
            del self._left[cluster]
            _LOG.info("cluster removed", extra={"cluster": cluster})

    def drains(self, inventory: Inventory, orders: Orders, now_seconds: float) -> Iterator[Order]:
        """A drain order for each configured machine of these clusters that has no order."""
        for cluster in self._left:
            for view in inventory.bound_to(cluster):
                if view.state is MachineState.CONFIGURED and orders.of(view.id) is None:
                    yield Order(
                        action_type=ActionType.RECLAIM,
                        machine_id=view.id,
                        cluster=cluster,
                        need=None,
                        grace_seconds=GRACE_SECONDS,
                        decided_seconds=now_seconds,
                        unattended=True,
                    )

    def count(self, fleet: Fleet, wants: Wants) -> None:
        """Count the machines left: bound ones, and those still being created for the cluster. Idle
        ones are available to other clusters already.

        A failed fixed machine stays bound until it is repaired, and does not count.
        """
        if not self._left:
            return
        elastic = np.array([f.capacity_type.elastic for f in fleet.flavours], np.bool_)
        failed = fleet.state == MachineState.FAILED
        for cluster in self._left:
            left = wants.of_cluster(cluster) & (fleet.state == MachineState.CREATING)
            if cluster in fleet.clusters:
                bound = fleet.cluster == fleet.clusters.index(cluster)
                left |= bound & (~failed | elastic[fleet.flavour])
            self._left[cluster] = int(left.sum())
        if not self._is_reported:
            self.end([cluster for cluster, left in self.left().items() if not left])
