"""Purchases, and whether they were needed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from bigfleet.engine.checks.need_invariants import capacity
from bigfleet.engine.decision import ActionType
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.machine import Machine, MachineEvent, MachineState
from bigfleet.ports.provider import Fence
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.fleet.assignment import from_metadata
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.runtime.faults import FaultInjector

# After this time a purchase is in every listing and no message about it is in flight.
_KNOWN_SECONDS = 20.0
_ON_ITS_WAY = (MachineState.CREATING, MachineState.IDLE)
# After a wrong roll-up a whole cluster may be released and purchased again.
_ROLLUP_FAULTS = ("rollup_stale", "rollup_empty")


class Purchases:
    """Records the purchases of one world; `bought` counts them."""

    def __init__(self, clusters: Mapping[str, SimulatedCluster], injector: FaultInjector) -> None:
        self.bought = 0
        self._clusters, self._injector = clusters, injector
        self._since: dict[str, float] = {}

    def on_submitted(
        self, _: Fence, machine: Machine, event: MachineEvent, now_seconds: float
    ) -> None:
        """An operation has started; `machine` is its record before."""
        if event is MachineEvent.CREATE:
            self.bought += 1
            self._since[machine.id] = now_seconds

    def duplicate_purchases(
        self, result: CycleResult, truth: Mapping[str, Machine], now_seconds: float
    ) -> Iterator[str]:
        """Needs for which a machine is purchased while an earlier purchase for them is in
        transition and not counted for any need, as sentences.
        """
        decision = result.decision
        buyers = {
            result.keys[action.need]: action
            for action in decision.actions
            if action.type is ActionType.PROVISION
        }
        if not buyers:
            return
        rows = {raw.decode(): row for row, raw in enumerate(result.inputs.machine_ids)}
        for name, since in self._since.items():
            machine = truth[name]
            made = from_metadata(machine.cluster, machine.shard_metadata)
            if machine.state not in _ON_ITS_WAY or made is None or made.need not in buyers:
                continue
            index = buyers[made.need].need
            need = result.demand.needs[index]
            cluster = self._clusters[made.need.cluster]
            changed = max(cluster.grew_seconds, cluster.shrank_seconds) >= since
            if need.profile.same_key or changed or now_seconds - since < _KNOWN_SECONDS:
                continue  # a gang may have moved, and smaller pods may fit elsewhere
            if name in rows and not _holds_all_sizes(result, rows[name], index):
                continue  # it was bought for some of the pods, and others need a larger one
            if name not in rows or not _is_used(result, rows[name]):
                other = result.machine_id(buyers[made.need].row)
                yield f"{other} is bought for a need of {cluster.name} that {name} was bought for"

    def upper_bound(self) -> int:
        """The number of purchases that demand and faults can explain."""
        injected = self._injector.injected
        nodes = max((len(cluster.nodes) for cluster in self._clusters.values()), default=0)
        wrong_rollups = sum(injected[fault] for fault in _ROLLUP_FAULTS) * max(1, nodes)
        wanted = sum(cluster.requests.written for cluster in self._clusters.values())
        lost = sum(cluster.died + cluster.withdrawn for cluster in self._clusters.values())
        return wanted + lost + injected.total() + wrong_rollups


def _holds_all_sizes(result: CycleResult, row: int, index: int) -> bool:
    """Whether the machine in `row` takes a pod of each size of need `index`."""
    flavour, sizes = (
        result.fleet.flavours[result.fleet.flavour[row]],
        result.demand.needs[index].sizes,
    )
    room = capacity(result.demand, flavour, int(result.demand.cluster[index]))
    return all(amount <= room.get(name, 0) for size in sizes for name, amount in size.amounts)


def _is_used(result: CycleResult, row: int) -> bool:
    """Whether a need counts the machine in `row`, or it is headroom or in backoff."""
    fleet = result.fleet
    kept = fleet.backed_off is not None and bool(fleet.backed_off[row])
    for column in (fleet.backed_off_for, fleet.backed_off_for_too):
        kept = kept or (column is not None and bool(column[row] != NONE))
    return kept or row in result.decision.headroom or result.decision.claimed_by[row] != NONE


def _most_spare(cluster: SimulatedCluster, settings: EngineConfig) -> int:
    """How many empty machines a cluster may keep for its margin."""
    of_nodes = math.ceil(settings.reclaim_margin * len(cluster.nodes))
    return min(of_nodes, math.floor(settings.reclaim_margin * len(cluster.pods) + 1e-9))


def unneeded_machines(
    result: CycleResult, clusters: Mapping[str, SimulatedCluster], settings: EngineConfig
) -> Iterator[str]:
    """Billed machines that no need counts and that are not headroom, as sentences; without machines
    that run pods, IDLE ones of a type that is never released, and as many of a cluster as may be
    kept for its margin.
    """
    fleet, decision = result.fleet, result.decision
    spare = {name: _most_spare(home, settings) for name, home in clusters.items()}
    for row in np.flatnonzero(decision.claimed_by == NONE).tolist():
        capacity_type = fleet.flavours[fleet.flavour[row]].capacity_type
        if not capacity_type.elastic or row in decision.headroom:
            continue
        name, state = result.machine_id(row), MachineState(int(fleet.state[row]))
        if state is MachineState.IDLE and capacity_type in settings.idle_hold_seconds:
            yield f"{name} is IDLE"
        elif state is MachineState.CONFIGURED:
            home = clusters[fleet.clusters[int(fleet.cluster[row])]]
            if not home.pods_on(name):
                spare[home.name] -= 1
                if spare[home.name] < 0:
                    yield f"{name} is CONFIGURED in {home.name} without pods"
