"""Announces to each cluster the machines that are being created for it.

The provider's record of such a machine names no cluster yet. Its cluster must know of it
nevertheless: otherwise waiting pods would ask for another machine. It must also be told when such
a machine does not come, even one that an earlier process announced: its pods would wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.engine.snapshot import NONE
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.orders import Orders
from bigfleet.services.shard.sessions.updates import of_asked, of_machine

_UNBOUND = (MachineState.CREATING, MachineState.IDLE)
_BEFORE_CONFIGURED = (*_UNBOUND, MachineState.CONFIGURING)


class IncomingMachines:
    """Incoming machines and the clusters to which they were announced."""

    def __init__(self) -> None:
        self._announced: dict[str, str] = {}
        # Machines to announce again, because their cluster's session has ended.
        self._unannounced: set[str] = set()

    def forget(self, cluster: str) -> None:
        """Send the cluster everything again in its next session."""
        self._unannounced.update(
            name for name, announced in self._announced.items() if announced == cluster
        )

    def answer(
        self, inventory: Inventory, orders: Orders, cluster: str, machine_id: str
    ) -> Sequence[shard_pb2.ShardMessage] | None:
        """The answer to the cluster's inquiry, as `of_asked`. A machine that is bound to no cluster
        may have been announced to this one before the shard was restarted: it is withdrawn unless
        it comes.
        """
        messages = of_asked(inventory, orders, cluster, machine_id)
        view = inventory.view(machine_id)
        if messages is None or view is None or view.cluster or view.state not in _UNBOUND:
            return messages
        if messages and view.state is MachineState.CREATING:  # for another cluster
            return messages
        announced = self._announced.setdefault(machine_id, cluster)
        return messages if announced == cluster else None

    def changes(
        self, result: CycleResult, inventory: Inventory, connected: Collection[str]
    ) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
        """Messages to `connected` clusters about new incoming machines, and about those that no
        longer come. The arrival of one is reported by its transition.
        """
        incoming = self._incoming(result)
        undecided = self._undecided(result)
        for name, cluster in [*self._announced.items()]:
            if name in undecided and name not in incoming:
                continue
            if incoming.get(name) != cluster:
                del self._announced[name]
                self._unannounced.discard(name)
                if cluster in connected:
                    yield from _update(inventory, name, cluster, MachineState.SPECULATIVE)
        for name, cluster in incoming.items():
            changes = name not in self._announced or name in self._unannounced
            if changes and cluster in connected:
                self._announced[name] = cluster
                self._unannounced.discard(name)
                yield from _update(inventory, name, cluster, MachineState.CREATING)

    def _undecided(self, result: CycleResult) -> Collection[str]:
        """Announced machines that are still unbound and whose cluster has not reported since the
        shard started what it needs.
        """
        reported = {result.fleet.clusters[number] for number in result.demand.reported}
        names = [name for name, its in self._announced.items() if its not in reported]
        if not names:
            return ()
        unbound = np.flatnonzero(np.isin(result.fleet.state, _UNBOUND)).tolist()
        return {*names} & {result.machine_id(row) for row in unbound}

    def _incoming(self, result: CycleResult) -> Mapping[str, str]:
        """Machines being created, and announced ones not configured yet, with their clusters."""
        fleet, claimed_by = result.fleet, result.decision.claimed_by
        of_need = np.append(result.demand.cluster, np.int32(NONE))[claimed_by]
        goes_to = np.where(fleet.state == MachineState.CONFIGURING, fleet.cluster, of_need)
        rows = np.flatnonzero(np.isin(fleet.state, _BEFORE_CONFIGURED) & (goes_to != NONE))
        incoming = {}
        for row, cluster in zip(rows.tolist(), goes_to[rows].tolist(), strict=True):
            name = result.machine_id(row)
            if name in self._announced or fleet.state[row] == MachineState.CREATING:
                incoming[name] = fleet.clusters[cluster]
        return incoming


def _update(
    inventory: Inventory, name: str, cluster: str, state: MachineState
) -> Iterator[tuple[str, shard_pb2.ShardMessage]]:
    """Report the machine in `state`, unless its record names this cluster already."""
    view = inventory.view(name)
    if view is not None and view.cluster != cluster:
        provider = inventory.provider_name(view.provider)
        message = of_machine(replace(view, state=state), provider, cluster)
        yield cluster, message
