"""Where decisions see a machine otherwise than its provider says: on its way, or protected."""

from __future__ import annotations

import numpy as np

from bigfleet.engine.snapshot import Flags, Fleet
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.assignment import worth
from bigfleet.services.shard.orders import Order


def protect(fleet: Fleet, guests: Flags) -> None:
    """Let nobody take `guests` from the needs that count them: drained, they would be another
    shard's. Shown as still joining, they are supply where they are, and no victims. Those that
    nobody counts are left as they are, to be given back.
    """
    counted = (fleet.state == MachineState.CONFIGURED) & np.isnan(fleet.unused_since_seconds)
    fleet.state[guests & counted] = MachineState.CONFIGURING


def show(fleet: Fleet, row: int, order: Order, cluster: int) -> None:
    """Show the machine in `row` of `fleet` in the state that `order` leads to; `cluster` is the
    number of the order's cluster.
    """
    fleet.state[row] = order.leads_to
    if order.need is not None and order.leads_to is MachineState.CONFIGURING:
        fleet.cluster[row] = cluster
        priority, interruption_bucket, reclamation_bucket = worth(order.need)
        fleet.priority[row] = priority
        fleet.interruption_bucket[row] = interruption_bucket
        fleet.reclamation_bucket[row] = reclamation_bucket
