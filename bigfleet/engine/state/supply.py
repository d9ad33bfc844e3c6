"""Which cluster and priorities each machine serves, and in which order machines are kept."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.columns import FlavourColumns
from bigfleet.engine.kernels.sorting import order_of
from bigfleet.engine.snapshot import IN_SERVICE, NONE, Demand, Fleet, Ints, Longs, Rows, in_states
from bigfleet.engine.state.packing_columns import ALWAYS
from bigfleet.model.machine import MachineState

#: states of machines that may be on their way to a cluster
INCOMING = (MachineState.CREATING, MachineState.DRAINING)

# A machine's place in keep order as one number: cluster, whether its operator has answered, whether
# no need claimed it, its state, price and penalty.
_ARRIVAL_BITS, _PRICE_BITS, _PENALTY_BITS = 2, 21, 8
_MOST_PENALTY = (1 << _PENALTY_BITS) - 1
_RELEASABLE = 1 << (_ARRIVAL_BITS + 1 + _PRICE_BITS + _PENALTY_BITS)
_CLUSTER_SHIFT = _RELEASABLE.bit_length()
# By state; machines in service first.
_ARRIVAL = np.full(max(MachineState) + 1, 3, np.int64)
_ARRIVAL[[MachineState.CONFIGURED, MachineState.CONFIGURING, MachineState.CREATING]] = 0, 1, 2


def supply_clusters_of(fleet: Fleet, demand: Demand) -> Ints:
    """[n] int32, the cluster that each machine is supply for, or NONE: the one it serves, or the
    one of the need that it is on its way to.
    """
    in_service = in_states(fleet.state, IN_SERVICE)
    supply_clusters: Ints = np.where(in_service, fleet.cluster, np.int32(NONE))
    rows = np.flatnonzero(in_states(fleet.state, INCOMING))
    of_need = np.append(demand.cluster, np.int32(NONE))[fleet.last_claimed_by[rows]]
    supply_clusters[rows] = np.where(of_need != NONE, of_need, fleet.destination[rows])
    return supply_clusters


def in_keep_order(fleet: Fleet, columns: FlavourColumns, supply_clusters: Ints) -> Rows:
    """The machines that are supply for some cluster, by cluster, in each those to be reclaimed
    last first: disruption cost unknown or infinite, then by disruption cost, claimed in the last
    decision, in service before on its way, the cheaper, the higher reclamation penalty.
    """
    rows = fleet.by_tie_break(np.flatnonzero(supply_clusters != NONE))
    # One number per machine is sorted several times as fast as seven columns.
    key = _ARRIVAL[fleet.state[rows]]
    key |= (fleet.last_claimed_by[rows] == NONE).astype(np.int64) << _ARRIVAL_BITS
    key <<= _PRICE_BITS + _PENALTY_BITS
    key |= columns.price_rank[fleet.flavour[rows]] << _PENALTY_BITS
    key |= _MOST_PENALTY - fleet.reclamation_bucket[rows].astype(np.int64)
    releasable = np.flatnonzero(np.isfinite(fleet.disruption_cost[rows]))
    if len(releasable):
        cost = fleet.disruption_cost[rows[releasable]]
        releasable = releasable[np.lexsort((key[releasable], -cost))]
        key[releasable] = _RELEASABLE | np.arange(len(releasable))
    key |= supply_clusters[rows].astype(np.int64) << _CLUSTER_SHIFT
    return rows[order_of(key)]


def highest_priorities(fleet: Fleet, reserved_for: Ints, priorities: Longs, rows: Rows) -> Longs:
    """The highest priority that each of `rows` serves; `reserved_for` [n] is the need that a
    machine drains for, or NONE, and `priorities` [N] are those of the needs.
    """
    # A machine that drains for a need is not supply for higher priorities: they may demand a
    # shorter grace period.
    reserving_need = reserved_for[rows]
    drains = (fleet.state[rows] == MachineState.DRAINING) & (reserving_need != NONE)
    return np.where(drains, np.append(priorities, ALWAYS)[reserving_need], ALWAYS)
