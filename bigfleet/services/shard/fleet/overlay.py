"""Where decisions see a machine otherwise than its provider says: on its way, or protected."""

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

_ON_ITS_WAY = (int(MachineState.CREATING), int(MachineState.DRAINING))


def under_way(ids: MachineIds, rows: Rows, orders: Iterable[Order]) -> Iterator[tuple[int, Order]]:
    """Each order with the place of its machine among `rows`, if it is there."""
    orders = list(orders)
    found = places(ids, rows, [order.machine_id for order in orders])
    for place, order in zip(found.tolist(), orders, strict=True):
        if place != NONE:
            yield place, order


def places(ids: MachineIds, rows: Rows, machine_ids: Sequence[str]) -> Ints:
    """The place of each machine among `rows`, NONE for one that is not there."""
    found = ids.rows(machine_ids)
    if isinstance(rows, slice) or not len(rows):
        return found if isinstance(rows, slice) else np.full_like(found, NONE)
    at = np.minimum(np.searchsorted(rows, found), len(rows) - 1).astype(np.int32)
    return np.where(rows[at] == found, at, np.int32(NONE))


def costs(ids: MachineIds, rows: Rows, known: Mapping[str, float]) -> Floats:
    """What giving each of `rows` back would cost, NaN where that is not `known`."""
    of_all = np.full(len(ids), np.nan)
    found = ids.rows(list(known))
    of_all[found[found != NONE]] = np.array([*known.values()])[found != NONE]
    return of_all[rows]


def note_destinations(
    fleet: Fleet, wanted: Ints, needs: Sequence[NeedKey], number_of: Callable[[str], int]
) -> None:
    """A machine on its way is for the cluster of the need that it is `wanted` for (it indexes
    `needs`), also when that need is gone. `number_of` numbers the clusters.
    """
    on_its_way = np.isin(fleet.state, _ON_ITS_WAY) & (wanted != NONE)
    for number in np.unique(wanted[on_its_way]).tolist():
        fleet.destination[on_its_way & (wanted == number)] = number_of(needs[number].cluster)


def protect(fleet: Fleet, out_of_domain_machines: Flags) -> None:
    """Let nobody take `out_of_domain_machines` from the needs that count them: drained, they would
    be another shard's. Shown as still joining, they are supply where they are, and no victims.
    Those that nobody counts are left as they are, to be given back.
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
