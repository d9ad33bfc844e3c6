"""Times what a roll-up costs: its operator, and the shard that applies it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import process_time

import numpy as np

from bigfleet.api.need_codec import need_to_wire
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.bench.changes import move_demand
from bigfleet.bench.measured import Clock, Samples
from bigfleet.bench.worlds import RACK, World, WorldSpec, make_world
from bigfleet.controllers.operator.aggregate import Aggregate
from bigfleet.controllers.operator.request_demand import CoLocation, RequestSpec, demand_of
from bigfleet.kube.pod_types import LabelSelector
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.records.interning import Numbers

_CHANGED = 0.01
_PODS_OF_A_GANG = 5


@dataclass(frozen=True)
class RollUpsApplied:
    """A shard applies roll-ups of one cluster, each a little different from the one before."""

    name: str
    needs: int
    target_seconds: float | None = None

    def scaled(self, factor: float) -> RollUpsApplied:
        """See `Row`."""
        return replace(self, needs=max(2, int(self.needs * factor)))

    def measure(self, times: int, clock: Clock = process_time) -> Samples:
        """Apply so many roll-ups to a table that has the first one."""
        random = np.random.default_rng(1)
        share = max(_CHANGED, 1 / self.needs)
        world = make_world(WorldSpec(self.needs * 10, self.needs, clusters=1))
        table: NeedsTable = NeedsTable(Numbers())
        table.replace(_rollup(world), 0.0)
        seconds = []
        for number in range(times):
            world = move_demand(world, share, random)
            rollup = _rollup(world)
            began = clock()
            table.replace(rollup, float(number))
            seconds.append(clock() - began)
        return Samples(tuple(seconds), needs=len(world.demand.needs))


def _rollup(world: World) -> ClusterCapacityNeeds:
    needs = [need_to_wire(need) for need in world.demand.needs]
    rollup = ClusterCapacityNeeds(cluster_id="bench", needs=needs)
    return ClusterCapacityNeeds.FromString(rollup.SerializeToString())


@dataclass(frozen=True)
class RollUpsBuilt:
    """An operator builds roll-ups of pods in gangs, of which one has lost a pod since."""

    name: str
    requests: int
    target_seconds: float | None = None

    def scaled(self, factor: float) -> RollUpsBuilt:
        """See `Row`."""
        return replace(self, requests=max(_PODS_OF_A_GANG, int(self.requests * factor)))

    def measure(self, times: int, clock: Clock = process_time) -> Samples:
        """Build so many, each after one request has gone and another one come."""
        gangs = max(1, self.requests // _PODS_OF_A_GANG)
        demands = [demand_of("bench", _member(f"gang-{number}")) for number in range(gangs)]
        aggregate: Aggregate[int] = Aggregate()
        for number in range(self.requests):
            aggregate.put(number, demands[number % gangs])
        aggregate.mark_all_complete()
        built = aggregate.content(0.0)
        seconds = []
        for number in range(times):
            aggregate.remove(number)
            aggregate.put(self.requests + number, demands[(number + 1) % gangs])
            began = clock()
            built = aggregate.content(0.0)
            seconds.append(clock() - began)
        return Samples(tuple(seconds), needs=len(built.needs))


def _member(gang: str) -> RequestSpec:
    together = CoLocation(RACK, LabelSelector(match_labels={"job": gang}))
    return RequestSpec({"cpu": "4", "memory": "8Gi"}, 0, co_location=together)
