"""What a shard knows of very many clusters, without their sessions: to look at decisions alone."""

from __future__ import annotations

from bigfleet.api import machine_codec
from bigfleet.api.v1alpha1 import capacity_pb2
from bigfleet.engine.cycle_memory import CycleMemory
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.interning import Numbers
from loaddriver.wire.operators import Tally
from tests.load.operators import bound_machines, operators_of
from tests.support.many_machines import machines

NOW_SECONDS = 10_000.0


class ManyClusters:
    """A needs table and an inventory of `clusters`, each with 30 to 300 needs; with `served`, the
    machine that just serves each need is at work for it already.
    """

    def __init__(self, clusters: int, *, served: bool) -> None:
        numbers = Numbers()
        self.inventory, self.needs = Inventory(numbers), NeedsTable(numbers)
        operators = operators_of(clusters, 10.0, Tally())
        for number, operator in enumerate(operators):
            cluster = f"cluster-{number:04d}"
            needs = capacity_pb2.ClusterCapacityNeeds(cluster_id=cluster, needs=operator.needs)
            self.needs.replace(needs, NOW_SECONDS)
        bound = bound_machines(operators)
        listed = machines(max(bound) + 1, clusters, bound if served else {})
        known = [machine_codec.machine_from_wire(machine) for machine in listed]
        self.inventory.apply(known, NOW_SECONDS)

    def inputs(self) -> CycleInputs:
        """What the next decision is made from."""
        fleet, wants = self.inventory.snapshot([])
        asked = self.needs.demand()
        return CycleInputs(fleet, self.inventory.ids, wants, asked, NOW_SECONDS, CycleMemory())
