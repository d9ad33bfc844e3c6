"""Plays a profile's first cluster on the virtual clock, and reports its machines.

    python -m tests.packing.packing_world PROFILE [KEY=VALUE ...] [--seed N] [--rest SECONDS]

Production's shard, provider, pod controller and disruption reports, and a scheduler that places
pods as kube-scheduler does; seconds pass as fast as they can be worked out. The ramp does not wait
for pods to bind, so more of them wait at a time than in a run. KEY=VALUE overrides the profile.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model import resources
from bigfleet.model.machine import CapacityType, Machine, MachineState
from bigfleet.model.need import Taint
from bigfleet.services.provider.config import Latencies, Latency
from bigfleet.simulation.cluster.cluster import SimulatedCluster
from bigfleet.simulation.cluster.workload import Workload
from bigfleet.simulation.runtime.faults import Delays
from bigfleet.simulation.runtime.loop import run
from bigfleet.simulation.spec import WorldSpec
from bigfleet.simulation.world import World, running_world
from loaddriver.plan.make import make_plan
from loaddriver.plan.manifests import INSTANCE_TYPE_KEY, RACK_KEY, ZONE_KEY, workload_body
from loaddriver.plan.records import ChurnEvent
from loaddriver.plan.records import Workload as Planned
from loaddriver.plan.setup_manifests import daemon_set_body
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.sizing.fit import group_offerings, pod_requirements
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory
from loaddriver.sizing.lower_bound import least_dollars_per_hour

PROFILES = Path(__file__).parents[2] / "profiles"
TOLD_EVERY_SECONDS = 15.0
# From the last pod of the ramp to the soak, in which its pods find their places.
SETTLING_SECONDS = 60.0


@dataclass(frozen=True, eq=False)
class Played(Workload):
    """A workload of a plan, with pods of its `template`."""

    template: Mapping[str, Any] | None = None

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Those of each pod."""
        assert self.template is not None
        labels: Mapping[str, str] = self.template["metadata"]["labels"]
        return labels

    def _spec(self) -> dict[str, Any]:
        assert self.template is not None
        never = {"preemptionPolicy": "Never"} if self.never_preempts else {}
        return {**self.template["spec"], "priority": self.priority, **never}


def played(planned: Planned, profile: Profile) -> Played:
    """The simulated workload for a planned one."""
    archetype = profile.catalog.archetype(planned.archetype)
    kind = "ReplicaSet" if planned.kind == "Deployment" else planned.kind
    template = workload_body(planned, profile.catalog)["spec"]["template"]

    def made(**asked: Any) -> Played:
        return Played(
            planned.name,
            planned.replicas,
            {},
            priority=planned.priority,
            never_preempts=not archetype.preempts,
            kind=kind,
            gang_members=planned.replicas if planned.group else 0,
            template=template,
            **asked,
        )

    wanted = made().demand.profile
    return made(same_key=wanted.same_key or "", spread=tuple(wanted.spread))


def machine_of(seed: InventoryMachine) -> Machine:
    """The machine as its provider would list it."""
    amounts = {
        name: resources.parse(name, quantity, round_up=False)
        for name, quantity in seed.resources.items()
    }
    labels = {k: v for k, v in seed.labels.items() if k not in (INSTANCE_TYPE_KEY, ZONE_KEY)}
    return Machine(
        id=seed.id,
        state=MachineState[seed.state],
        instance_type=seed.instance_type,
        zone=seed.zone,
        labels={**labels, RACK_KEY: seed.rack},
        capacity_type=CapacityType[seed.capacity_type],
        price_per_hour=seed.price_per_hour,
        interruption_probability=seed.interruption_probability,
        resources=amounts,
        allocatable=amounts,
        taints=tuple(Taint(each.key, each.value, each.effect) for each in seed.taints),
        host=seed.id if seed.state == "IDLE" else "",
    )


class Play:
    """One profile's world; `rest_seconds` pass after its end."""

    def __init__(self, profile: Profile, rest_seconds: float) -> None:
        self._profile, self._rest_seconds = profile, rest_seconds
        plan = make_plan(profile)
        self._plan = plan
        self._seeds = {seed.id: seed for seed in fleet_inventory(profile, None)}
        self._workloads = {each.name: each for each in plan.workloads if each.cluster == 0}
        self._running_since: dict[str, float] = {}

    async def play(self) -> None:
        """All of it."""
        async with running_world(self._world()) as world:
            (cluster,) = world.clusters.values()
            jobs = asyncio.create_task(self._end_jobs(cluster))
            teller = asyncio.create_task(self._tell_on(world, cluster))
            await self._load(cluster)
            await asyncio.sleep(self._rest_seconds)
            self._tell(world, cluster)
            for task in (jobs, teller):
                task.cancel()
            print("violations:", world.safety.violations or "none")

    def _world(self) -> WorldSpec:
        own = self._profile.settings.bigfleet
        held = dict.fromkeys((CapacityType.ON_DEMAND, CapacityType.SPOT), own.idle_hold_seconds)
        daemons = [
            Played(each.name, 0, {}, kind="DaemonSet", template=_template(daemon_set_body(each)))
            for each in self._profile.catalog.daemon_sets
        ]
        return WorldSpec(
            machines=[machine_of(seed) for seed in self._seeds.values()],
            seed=self._profile.settings.seed,
            engine=EngineConfig(
                reclaim_cap_fraction=own.reclaim_cap_fraction,
                reclaim_hold_seconds=own.reclaim_hold_seconds,
                idle_hold_seconds=held,
            ),
            cycle_seconds=own.cycle_seconds,
            latencies=Latencies(*(Latency(median, 3 * median) for median in (4.0, 1.0, 1.0, 1.0))),
            delays=Delays((0.0, 0.1), (0.0, 1.0), (0.0, 0.5), (0.0, 0.3)),
            scheduler_looks_ahead=False,
            daemons=daemons,
        )

    async def _load(self, cluster: SimulatedCluster) -> None:
        clock = asyncio.get_running_loop().time
        simulated = {n: played(each, self._profile) for n, each in self._workloads.items()}
        for at_seconds, name, number, deletes in sorted(self._moves()):
            await asyncio.sleep(max(0.0, at_seconds - clock()))
            if not deletes:
                cluster.apply(simulated[name].of(number))
            elif name in {workload.name for workload in cluster.workloads}:
                cluster.delete(name, 1)
        await asyncio.sleep(max(0.0, self._begin(None) + self._soak_seconds - clock()))

    @property
    def _soak_seconds(self) -> float:
        return float(self._profile.settings.soak.seconds)

    def _moves(self) -> Iterator[tuple[float, str, int, bool]]:
        """When, on which workload: how many pods it has from then on, or that it loses one."""
        for level in self._plan.levels:
            if level.cluster == 0:
                at_seconds = self._begin(level.step) + level.offset_seconds
                yield at_seconds, level.workload, level.replicas, False
        for event in self._plan.events:
            if isinstance(event, ChurnEvent) and event.cluster == 0:
                yield self._begin(event.step) + event.offset_seconds, event.workload, 0, True

    def _begin(self, step: int | None) -> float:
        """When a step of the plan begins; None is for the soak."""
        ramp = self._profile.settings.ramp
        soak = ramp.steps + 1 if step is None or step > ramp.steps else 0
        settling_seconds = SETTLING_SECONDS if soak else 0.0
        return ((soak or step or 1) - 1) * ramp.step_seconds + settling_seconds

    async def _end_jobs(self, cluster: SimulatedCluster) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(1.0)
            for pod in list(cluster.pods.values()):
                planned = self._workloads.get(pod.workload.name)
                if planned is None or not pod.node:
                    continue
                seconds = self._profile.catalog.archetype(planned.archetype).run_seconds
                began = self._running_since.setdefault(pod.name, clock())
                if seconds and clock() - began >= seconds:
                    cluster.complete(pod.workload.name, 1)

    async def _tell_on(self, world: World, cluster: SimulatedCluster) -> None:
        while True:
            await asyncio.sleep(TOLD_EVERY_SECONDS)
            self._tell(world, cluster)

    def _tell(self, world: World, cluster: SimulatedCluster) -> None:
        catalog = self._profile.catalog
        planned = (self._workloads.get(pod.workload.name) for pod in cluster.pods.values())
        pods = Counter(
            pod_requirements(catalog.archetype(p.archetype), p.size) for p in planned if p
        )
        held = [self._seeds[name] for name in cluster.nodes]
        paid = (m for m in world.provider.machines().values() if m.state.name != "SPECULATIVE")
        dollars = sum(machine.price_per_hour for machine in paid)
        agents = catalog.daemon_sets
        least = least_dollars_per_hour(pods, group_offerings(pods, self._seeds.values(), agents))
        of_held = least_dollars_per_hour(pods, group_offerings(pods, held, agents)) if held else 0.0
        print(
            f"{asyncio.get_running_loop().time():5.0f} s: {sum(pods.values())} pods, "
            f"{len(cluster.unbound())} wait, {len(held)} Nodes, ${dollars:.2f} an hour, "
            f"{dollars / least if least else 0:.2f} x the bound, "
            f"{dollars / of_held if of_held else 0:.2f} x that of the machines held; "
            f"{cluster.evicted} evicted",
            flush=True,
        )


def _template(body: Mapping[str, Any]) -> Mapping[str, Any]:
    template: Mapping[str, Any] = body["spec"]["template"]
    return template


def _main() -> None:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("profile")
    flags.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    flags.add_argument("--seed", type=int)
    flags.add_argument("--rest", type=float, default=120.0, metavar="SECONDS")
    asked = flags.parse_args()
    profile = load_profile(asked.profile, PROFILES, asked.overrides, asked.seed)
    run(Play(profile, asked.rest).play)


if __name__ == "__main__":
    _main()
