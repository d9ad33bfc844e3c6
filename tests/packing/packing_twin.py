"""A profile's fleet and load in the simulation, without its control planes."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model.machine import CapacityType, Machine
from bigfleet.model.need import Spread
from bigfleet.services.provider import inventory
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.simulation.cluster import workload as simulated
from bigfleet.simulation.runtime.faults import Delays
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World
from loaddriver.plan.make import make_plan
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY
from loaddriver.plan.records import RAMP, Workload
from loaddriver.plan.records import Plan as LoadPlan
from loaddriver.profile.archetypes import Archetype
from loaddriver.profile.fleet import LatencyDistribution
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.sizing.demand import demand
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory, save_inventory
from tests.packing.packing_bound import PROFILES


class Twin:
    """The world of profile `name` under `seed`, and what happens in it."""

    def __init__(self, name: str, seed: int) -> None:
        self.profile: Profile = load_profile(name, PROFILES, seed=seed)
        self.load: LoadPlan = make_plan(self.profile)
        wanted = demand(self.load, self.profile.catalog)
        self.machines: Sequence[InventoryMachine] = fleet_inventory(self.profile, wanted)
        self._random = random.Random(seed)

    def plan(self) -> WorldSpec:
        """Everything as the profile has it."""
        settings = self.profile.settings
        latency, bigfleet = settings.fleet.latency, settings.bigfleet
        return WorldSpec(
            machines=_machines(self.machines),
            clusters=[_cluster(number) for number in range(settings.clusters)],
            seed=settings.seed,
            engine=EngineConfig(
                reclaim_cap_fraction=bigfleet.reclaim_cap_fraction,
                reclaim_hold_seconds=bigfleet.reclaim_hold_seconds,
                idle_hold_seconds=dict.fromkeys(CapacityType, bigfleet.idle_hold_seconds),
            ),
            cycle_seconds=bigfleet.cycle_seconds,
            latencies=Latencies(
                _latency(latency.create_seconds), _latency(latency.configure_seconds)
            ),
            delays=Delays(boot=(0.5, 1.5)),
        )

    async def play(self, world: World) -> None:
        """Ramp, then soak under churn, as long as the profile says."""
        settings = self.profile.settings
        begin = asyncio.get_running_loop().time()
        workloads = {(each.cluster, each.name): each for each in self.load.workloads}
        for level in self.load.levels:
            if level.origin == RAMP:
                due = begin + (level.step - 1) * settings.ramp.step_seconds + level.offset_seconds
                await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
                self._appear(world, workloads[level.cluster, level.workload])
        await asyncio.sleep(settings.ramp.step_seconds)
        for _ in range(int(settings.soak.seconds)):
            self._churn(world, int(settings.soak.churn_pods_per_second))
            await asyncio.sleep(1.0)

    def _appear(self, world: World, workload: Workload) -> None:
        archetype = self.profile.catalog.archetype(workload.archetype)
        world.clusters[_cluster(workload.cluster)].apply(_pods(workload, archetype))

    def _churn(self, world: World, per_second: int) -> None:
        everywhere = [(c, p) for c in world.clusters.values() for p in c.pods.values() if p.node]
        for cluster, pod in self._random.sample(everywhere, min(per_second, len(everywhere))):
            cluster.evict(pod)


def _cluster(number: int) -> str:
    return f"c{number + 1}"


def _latency(seconds: float | LatencyDistribution) -> Latency:
    if isinstance(seconds, LatencyDistribution):
        return Latency(seconds.median, seconds.p99)
    return Latency(seconds, seconds)


def _machines(seeds: Sequence[InventoryMachine]) -> list[Machine]:
    """As the provider reads them."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "machines.jsonl"
        save_inventory(seeds, path)
        return [*inventory.read(path)]


def _pods(workload: Workload, archetype: Archetype) -> simulated.Workload:
    size = archetype.sizes[workload.size]
    amounts = {
        "cpu": f"{size.cpu_millicores}m",
        "memory": f"{size.memory_mebibytes}Mi",
        **{name: str(amount) for name, amount in size.extended_resources.items()},
    }
    spread = archetype.spread if workload.spread else None
    terms = (
        ()
        if spread is None
        else (Spread(ZONE_KEY, spread.max_skew, spread.when_unsatisfiable == "DoNotSchedule"),)
    )
    return simulated.Workload(
        name=workload.name,
        replicas=workload.replicas,
        requests=amounts,
        selector={INSTANCE_TYPE_KEY: size.instance_types, ZONE_KEY: archetype.zones},
        priority=workload.priority,
        same_key={None: "", "sameRack": RACK_KEY, "sameZone": ZONE_KEY}[workload.topology],
        spread=terms,
        interruption_penalty=f"{archetype.interruption_penalty_dollars:.15g}",
        reclamation_penalty=f"{archetype.reclamation_penalty_dollars:.15g}",
    )
