"""An order under way, as decisions see its machine: in the state that the order leads to."""

from __future__ import annotations

from bigfleet.engine.snapshot import Fleet
from bigfleet.model.machine import MachineState
from bigfleet.services.shard.assignment import worth
from bigfleet.services.shard.orders import Order


def show(fleet: Fleet, row: int, order: Order, cluster: int) -> None:
    """Change the machine in `row` of `fleet`; `cluster` is the number of the order's cluster."""
    fleet.state[row] = order.leads_to
    if order.need is not None and order.leads_to is MachineState.CONFIGURING:
        fleet.cluster[row] = cluster
        priority, interruption_bucket, reclamation_bucket = worth(order.need)
        fleet.priority[row] = priority
        fleet.interruption_bucket[row] = interruption_bucket
        fleet.reclamation_bucket[row] = reclamation_bucket
