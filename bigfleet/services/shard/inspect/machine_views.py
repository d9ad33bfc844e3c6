"""View of one machine: state, need, order under way, and recent events."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from bigfleet.api.journal import JournalLine
from bigfleet.api.limit_codec import limits_to_wire
from bigfleet.api.v1alpha1 import provider_pb2
from bigfleet.api.v1alpha1 import shardread_pb2 as wire
from bigfleet.engine.snapshot import NONE
from bigfleet.model import resources
from bigfleet.model.errors import UnknownObject
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.ports.clock import to_nanos
from bigfleet.services.shard.decide.compute import CycleResult
from bigfleet.services.shard.demand.node_limits import NodeLimits
from bigfleet.services.shard.execute.evictions import Evictions
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.journal import Journal
from bigfleet.services.shard.records.orders import Orders
from bigfleet.services.shard.records.views import MachineView


@dataclass(frozen=True)
class MachineInspection:
    """Builds the view of a machine from all parts that have information about it."""

    inventory: Inventory
    orders: Orders
    evictions: Evictions
    journal: Journal
    limits: NodeLimits

    def view(self, machine_id: str, result: CycleResult | None) -> wire.MachineView:
        """The machine's present state, and its role in `result`, the last decision.

        UnknownObject for a machine that is not in this shard's inventory.
        """
        known = self.inventory.view(machine_id)
        if known is None:
            raise UnknownObject(f"machine {machine_id!r} is unknown to this shard")
        order, eviction = self.orders.of(machine_id), self.evictions.of(machine_id)
        evicted_for = eviction.need if eviction else None
        view = wire.MachineView(
            machine=_machine(known, self.inventory.provider_name(known.provider)),
            meant_for=known.need and _reference(known.need, result),
            order=order.action_type.value if order else "",
            evicting=eviction is not None,
            evicted_for=evicted_for and _reference(evicted_for, result),
            story=[_line(event) for event in self.journal.story(machine_id)],
            not_owned_reason=self._not_owned_reason(known),
            held_reason=self.inventory.holds.reason(known),
        )
        limit = self.limits.of(machine_id, known.cluster)
        if limit is not None and known.state is MachineState.CONFIGURED:
            view.limit.MergeFrom(next(limits_to_wire([limit])))
        if result is not None:
            _add_decision(view, machine_id, result)
        return view

    def _not_owned_reason(self, known: MachineView) -> str:
        if self.inventory.owns(known.id):
            return ""
        if known.cluster:
            return f"it is bound to cluster {known.cluster}, which another shard serves"
        return f"its domain is {self.inventory.domain(known.id)}, which this shard does not own"


def _add_decision(view: wire.MachineView, machine_id: str, result: CycleResult) -> None:
    rows = np.flatnonzero(np.asarray(result.inputs.machine_ids) == machine_id.encode())
    for row in rows.tolist():  # none for a machine newer than the decision
        claim = int(result.decision.claimed_by[row])
        if claim != NONE:
            view.counted_by.MergeFrom(_reference(result.keys[claim], result))
        view.headroom = row in result.decision.headroom
        pods = result.decision.placements
        for need in np.unique(pods.need[pods.row == row]).tolist():
            view.shared_by.append(_reference(result.keys[need], result))
        cost = float(result.fleet.disruption_cost[row])
        if not np.isnan(cost):
            view.disruption_cost = cost
        unused_seconds = float(result.fleet.unused_since_seconds[row])
        if not np.isnan(unused_seconds):
            view.unused_since_unix_nanos = to_nanos(unused_seconds)


def _reference(key: NeedKey, result: CycleResult | None) -> wire.NeedReference:
    reference = wire.NeedReference(
        cluster_id=key.cluster, profile_fingerprint=key.fingerprint, group=key.group
    )
    if result is not None and key in result.keys:
        need = result.demand.needs[result.keys.index(key)]
        reference.priority = need.priority
    return reference


def _machine(known: MachineView, provider_name: str) -> provider_pb2.Machine:
    machine_class = known.machine_class
    return provider_pb2.Machine(
        id=known.id,
        state=provider_pb2.MachineState.ValueType(known.state),
        host=provider_pb2.HostRef(provider=provider_name),
        capacity_type=provider_pb2.CapacityType.ValueType(machine_class.capacity_type),
        price_per_hour=machine_class.price_per_hour,
        interruption_probability=machine_class.interruption_probability,
        labels=machine_class.labels_of(known.id),
        last_error=known.last_error,
        allocatable=provider_pb2.Resources(
            resources=resources.texts(dict(machine_class.allocatable))
        ),
        cluster=known.cluster,
    )


def _line(line: JournalLine) -> wire.StoryLine:
    present = msgspec.to_builtins(line)
    fields = {name: str(value) for name, value in present.items() if name not in ("at", "event")}
    return wire.StoryLine(at_unix_nanos=to_nanos(line.at), event=str(line.event), fields=fields)
