"""Tells each cluster of the machines that are being made for it.

The provider's record of such a machine names no cluster yet. Who waits in a cluster for a machine
must know all the same that it comes: else pods would ask for another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.inventory import Inventory
from bigfleet.services.shard.thinking import CycleResult
from bigfleet.services.shard.updates import of_machine

_BEFORE_CONFIGURED = (MachineState.CREATING, MachineState.IDLE, MachineState.CONFIGURING)


class Arrivals:
    """Which cluster was told of which machine that is on its way to it."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        # Whose sessions have ended since.
        self._untold: set[str] = set()

    def forget(self, cluster: str) -> None:
        """The cluster's next session is told everything again."""
        self._untold.update(name for name, told in self._told.items() if told == cluster)

    def news(
        self, thought: CycleResult, inventory: Inventory, listening: Collection[str]
    ) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
        """What the `listening` clusters do not know yet: of machines that are being made for them,
        and of those that do not come after all. Of one that has come they are told otherwise.
        """
        coming = self._coming(thought)
        for name, cluster in [*self._told.items()]:
            if coming.get(name) != cluster:
                del self._told[name]
                self._untold.discard(name)
                if cluster in listening:
                    yield from _told_of(inventory, name, cluster, MachineState.SPECULATIVE)
        for name, cluster in coming.items():
            news = name not in self._told or name in self._untold
            if news and cluster in listening:
                self._told[name] = cluster
                self._untold.discard(name)
                yield from _told_of(inventory, name, cluster, MachineState.CREATING)

    def _coming(self, thought: CycleResult) -> Mapping[str, str]:
        """The machines that are being made, and those of which a cluster was told when they were,
        each with the cluster that gets it.
        """
        fleet, claimed_by = thought.fleet, thought.decision.claimed_by
        of_need = np.append(thought.demand.cluster, np.int32(NONE))[claimed_by]
        goes_to = np.where(fleet.state == MachineState.CONFIGURING, fleet.cluster, of_need)
        rows = np.flatnonzero(np.isin(fleet.state, _BEFORE_CONFIGURED) & (goes_to != NONE))
        coming = {}
        for row, cluster in zip(rows.tolist(), goes_to[rows].tolist(), strict=True):
            name = thought.machine_id(row)
            if name in self._told or fleet.state[row] == MachineState.CREATING:
                coming[name] = fleet.clusters[cluster]
        return coming


def _told_of(
    inventory: Inventory, name: str, cluster: str, state: MachineState
) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
    """That the machine is in that state, unless its record says more of this cluster by now."""
    view = inventory.view(name)
    if view is not None and view.cluster != cluster:
        message = of_machine(replace(view, state=state), inventory.provider_name, cluster)
        yield cluster, message
