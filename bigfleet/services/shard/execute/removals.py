"""Clusters that are being taken out of the fleet, because they are gone for good.

Nobody is there to empty their Nodes, so their machines are drained without asking. That takes many
cycles and outlives a restart: a cluster stays here until no machine is bound to it any more and,
where there is a coordinator, until that has heard of it. Until then no operator of its name is
served: it would be given machines that are on their way out.
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

# Nobody ends the pods in an orderly way; a host may still have its kubelet do so.
GRACE_SECONDS = 10

_log = logging.getLogger(__name__)


class PendingRemovals:
    """`is_reported`: a coordinator hears of each before it ends."""

    def __init__(self, store: RemovalStore, *, is_reported: bool) -> None:
        """BigFleetError when what was kept is damaged."""
        self._store, self._is_reported = store, is_reported
        self._left: dict[str, int | None] = dict.fromkeys(store.load())

    def __contains__(self, cluster: object) -> bool:
        return cluster in self._left

    def left(self) -> Mapping[str, int]:
        """By cluster how many machines are still to go, of those where that has been counted."""
        return {cluster: left for cluster, left in self._left.items() if left is not None}

    def begin(self, cluster: str) -> None:
        """From now on it is carried through. BigFleetError when it cannot be written down."""
        self._store.save({*self._left, cluster})
        self._left.setdefault(cluster, None)

    def end(self, clusters: Collection[str]) -> None:
        """Nothing is left of them. What cannot be written down is tried again."""
        ended = [cluster for cluster in clusters if cluster in self._left]
        if not ended:
            return
        try:
            self._store.save(self._left.keys() - set(ended))
        except BigFleetError as error:
            _log.error("the end of a removal is not kept", extra={"why": str(error)})
            return
        for cluster in ended:
            del self._left[cluster]
            _log.info("cluster removed", extra={"cluster": cluster})

    def drains(self, inventory: Inventory, orders: Orders, now_seconds: float) -> Iterator[Order]:
        """The order for each machine that is at work in such a cluster and has none."""
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
        """See what is left: machines that are bound, and those still being created. What is idle is
        free for others already, since nobody asks for it.

        A fixed machine that has failed stays bound until it is repaired. It is not waited for.
        """
        if not self._left:
            return
        elastic = np.array([f.capacity_type.elastic for f in fleet.flavours], np.bool_)
        failed = fleet.state == MachineState.FAILED
        for cluster in self._left:
            keys = [n for n, key in enumerate(wants.keys) if key.cluster == cluster]
            left = np.isin(wants.numbers, keys) & (fleet.state == MachineState.CREATING)
            if cluster in fleet.clusters:
                bound = fleet.cluster == fleet.clusters.index(cluster)
                left |= bound & (~failed | elastic[fleet.flavour])
            self._left[cluster] = int(left.sum())
        if not self._is_reported:
            self.end([cluster for cluster, left in self.left().items() if not left])
