"""Node limits: machines whose Nodes take no new pods, as operators report them.

A decision sees such a machine with only the capacity that its pods use: they stay served, and
nothing else is counted there. A broken one has no capacity, and reclaiming it has no disruption
cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from bigfleet.api.limit_codec import LimitReason, NodeLimit
from bigfleet.engine.columns import LastColumns
from bigfleet.engine.snapshot import NONE, Flavour, Fleet
from bigfleet.model.machine import MachineState
from bigfleet.observe import metrics
from bigfleet.services.shard.fleet.inventory import Inventory

_SHOWN_AT_WORK = (MachineState.CONFIGURED, MachineState.CONFIGURING)


class NodeLimits:
    """The latest limits of each cluster; they apply to its own configured machines."""

    def __init__(self) -> None:
        self._of: dict[str, Mapping[str, NodeLimit]] = {}
        #: when a machine of each cluster last came to serve less, in seconds of `replace`
        self.fell_seconds: dict[str, float] = {}
        self._last_columns = LastColumns()

    def replace(self, cluster: str, limits: Mapping[str, NodeLimit], now_seconds: float) -> bool:
        """Replace all limits of the cluster; True if they changed."""
        before = self._of.get(cluster, {})
        if before == limits:
            return False
        self._of[cluster] = limits
        if any(_serves_less(limit, before.get(name)) for name, limit in limits.items()):
            self.fell_seconds[cluster] = now_seconds
        return True

    def forget(self, cluster: str) -> None:
        """Drop a removed cluster."""
        self._of.pop(cluster, None)
        self.fell_seconds.pop(cluster, None)

    def exist_in(self, cluster: str) -> bool:
        """Whether `cluster` reported any."""
        return bool(self._of.get(cluster))

    def of(self, machine_id: str, cluster: str) -> NodeLimit | None:
        """The limit that `cluster` reported for a machine, or None."""
        return self._of.get(cluster, {}).get(machine_id)

    def apply_to(self, fleet: Fleet, inventory: Inventory) -> Fleet:
        """Write the limits into `fleet`, the inventory's latest snapshot. Only machines configured
        for the reporting cluster are limited.
        """
        flavours = list(fleet.flavours)
        numbers = {name: number for number, name in enumerate(fleet.clusters)}
        derived: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        counts: Counter[LimitReason] = Counter()
        for cluster, limits in self._of.items():
            rows = inventory.places(list(limits)).tolist()
            for row, limit in zip(rows, limits.values(), strict=True):
                if not _is_at_work(fleet, row, numbers.get(cluster, NONE), limit, inventory):
                    continue
                counts[limit.reason] += 1
                key = int(fleet.flavour[row]), () if limit.broken else limit.amounts
                if key not in derived:
                    derived[key] = len(flavours)
                    flavours.append(_limited(flavours[key[0]], dict(key[1])))
                fleet.flavour[row] = derived[key]
                fleet.headroom[row] = False
                if limit.broken:
                    fleet.disruption_cost[row] = 0.0
        for reason in LimitReason:
            metrics.shard_limited_machines.labels(reason.value).set(counts[reason])
        return replace(fleet, flavours=self._last_columns.of(flavours)) if derived else fleet


def _serves_less(limit: NodeLimit, before: NodeLimit | None) -> bool:
    if before is None or (limit.broken and not before.broken):
        return True
    amounts = dict(limit.amounts)
    return any(amount > amounts.get(name, 0) for name, amount in before.amounts)


def _is_at_work(
    fleet: Fleet, row: int, cluster: int, limit: NodeLimit, inventory: Inventory
) -> bool:
    """Whether it is configured for the cluster; protected machines appear as CONFIGURING."""
    if row == NONE or fleet.cluster[row] != cluster:
        return False
    shown = fleet.state[row] in _SHOWN_AT_WORK
    return shown and inventory.state(limit.machine_id) is MachineState.CONFIGURED


def _limited(flavour: Flavour, amounts: Mapping[str, int]) -> Flavour:
    left = {name: min(most, amounts.get(name, 0)) for name, most in flavour.allocatable.items()}
    return replace(flavour, allocatable=left, limited=True)
