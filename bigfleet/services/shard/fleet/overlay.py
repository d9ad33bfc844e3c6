"""Where decisions see a machine in another state than the provider's: ordered, or protected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from bigfleet.engine.snapshot import NONE, Flags, Fleet, Floats, Ints
from bigfleet.model.machine import MachineState
from bigfleet.model.need import NeedKey
from bigfleet.services.shard.fleet.assignment import penalties_of
from bigfleet.services.shard.fleet.claims import Rows
from bigfleet.services.shard.fleet.machine_ids import MachineIds
from bigfleet.services.shard.records.orders import Order

_IN_TRANSIT = (int(MachineState.CREATING), int(MachineState.DRAINING))


def under_way(ids: MachineIds, rows: Rows, orders: Iterable[Order]) -> Iterator[tuple[int, Order]]:
    """Each order with the position of its machine among `rows`, if it is there."""
    orders = list(orders)
    found = places(ids, rows, [order.machine_id for order in orders])
    for place, order in zip(found.tolist(), orders, strict=True):
        if place != NONE:
            yield place, order


def places(ids: MachineIds, rows: Rows, machine_ids: Sequence[str]) -> Ints:
    """The position of each machine among `rows`, NONE for one that is not there."""
    found = ids.rows(machine_ids)
    if isinstance(rows, slice) or not len(rows):
        return found if isinstance(rows, slice) else np.full_like(found, NONE)
    at = np.minimum(np.searchsorted(rows, found), len(rows) - 1).astype(np.int32)
    return np.where(rows[at] == found, at, np.int32(NONE))


def costs(ids: MachineIds, rows: Rows, known: Mapping[str, float]) -> Floats:
    """The disruption cost of releasing each of `rows`, NaN where it is not `known`."""
    of_all = np.full(len(ids), np.nan)
    found = ids.rows(list(known))
    of_all[found[found != NONE]] = np.array([*known.values()])[found != NONE]
    return of_all[rows]


def note_destinations(
    fleet: Fleet, wanted: Ints, needs: Sequence[NeedKey], number_of: Callable[[str], int]
) -> None:
    """Write the destination of machines in transit: the cluster of the need that `wanted` (which
    indexes `needs`) has for them, even if that need is gone. `number_of` numbers the clusters.
    """
    in_transit = np.isin(fleet.state, _IN_TRANSIT) & (wanted != NONE)
    numbers, place = np.unique(wanted[in_transit], return_inverse=True)
    clusters = [number_of(needs[number].cluster) for number in numbers.tolist()]
    fleet.destination[in_transit] = np.array(clusters, np.int32)[place]


def protect(fleet: Fleet, out_of_domain_machines: Flags) -> None:
    """Protect counted `out_of_domain_machines` from preemption: once drained they would belong to
    another shard. Shown as CONFIGURING, they count as supply and cannot be victims. Those that no
    need counts stay unprotected, to be released.
    """
    counted = (fleet.state == MachineState.CONFIGURED) & np.isnan(fleet.unused_since_seconds)
    fleet.state[out_of_domain_machines & counted] = MachineState.CONFIGURING


def show(fleet: Fleet, row: int, order: Order, cluster: int) -> None:
    """Show the machine in `row` of `fleet` in the state that `order` leads to; `cluster` is the
    number of the order's cluster.
    """
    fleet.state[row] = order.leads_to
    if order.need is not None and order.leads_to is MachineState.CONFIGURING:
        fleet.cluster[row] = cluster
        priority, interruption_bucket, reclamation_bucket = penalties_of(order.need)
        fleet.priority[row] = priority
        fleet.interruption_bucket[row] = interruption_bucket
        fleet.reclamation_bucket[row] = reclamation_bucket
