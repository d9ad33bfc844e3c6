"""What is computed before anything starts: profile, plan, demand, fleet."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from loaddriver.judge.disruptions import BudgetKey
from loaddriver.judge.facts import FleetFacts
from loaddriver.judge.gangs import GroupKey
from loaddriver.plan.make import make_plan
from loaddriver.plan.market import MarketPlan, make_market_plan
from loaddriver.plan.records import Plan
from loaddriver.profile.loading import Profile, load_profile
from loaddriver.record.cpu import PROVIDER
from loaddriver.run.bigfleet_roles import check_faults
from loaddriver.run.context import RunOptions
from loaddriver.run.existing_clusters import check_place, plan_for
from loaddriver.run.host import read_host
from loaddriver.run.paired_run import ServedNode
from loaddriver.run.running_provider import ListedFleet, read_fleet
from loaddriver.sizing.demand import PlanDemand
from loaddriver.sizing.estimate import HostCapacity, check_host_capacity
from loaddriver.sizing.fit import pod_requirements
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory, machines_by_provider
from loaddriver.sizing.load import load_need
from loaddriver.sizing.market import UNCHANGED, PlayedMarket, prices_by_kind
from loaddriver.sizing.preflight import Preflight, preflight
from loaddriver.sizing.shared_demand import SharedMachineDemand, compute_demand


@dataclass(frozen=True)
class Arm:
    """One play of the plan, with its results folder; `run_id` marks its processes and data.

    A bare arm has `nodes`, which exist from the start, and `bare_of`, the run that had them.
    """

    inputs: RunInputs
    folder: Path
    run_id: str
    nodes: tuple[ServedNode, ...] = ()
    bare_of: str = ""


def with_anchors(inputs: RunInputs, anchors: str) -> RunInputs:
    """Return `inputs` with anchors "on" or "off"."""
    settings = msgspec.structs.replace(inputs.profile.settings, anchors=anchors)
    return replace(inputs, profile=replace(inputs.profile, settings=settings))


@dataclass(frozen=True)
class RunInputs:
    """A valid profile, and what follows from it and its seed. `provider` has the machines, if it is
    not the harness's.
    """

    profile: Profile
    plan: Plan
    demand: PlanDemand | SharedMachineDemand
    machines: tuple[InventoryMachine, ...]
    host: HostCapacity
    provider: ListedFleet | None = None

    def preflight(self) -> Preflight:
        """Check that the fleet and this machine suffice for the profile."""
        need = load_need(self.plan)
        return preflight(self.profile, self.demand, self.machines, self.host, need)

    @property
    def market(self) -> MarketPlan:
        """What prices and supply are to do in the soak. Raises ProfileError if they cannot."""
        return make_market_plan(self.profile.settings, prices_by_kind(self.machines))

    @property
    def cluster_names(self) -> list[str]:
        """The cluster names, in the order of the plan."""
        return list(self.profile.settings.cluster_names)

    def beside(self) -> dict[str, int]:
        """The parts of the system under test that the run does not start, by name, where they are
        processes of this machine.
        """
        process = self.provider.process if self.provider else None
        return {PROVIDER: process} if process is not None else {}

    def budget_floors(self) -> dict[BudgetKey, int]:
        """The pods that disruption budgets keep available, by cluster name and workload.

        Workloads that the plan scales are left out, because their size varies.
        """
        sizes: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
        for level in self.plan.levels:
            sizes[level.cluster, level.workload].add(level.replicas)
        budgets = {each.name: each.disruption_budget for each in self.profile.catalog.archetypes}
        names = self.cluster_names
        return {
            (names[w.cluster], w.name): budget.floor(w.replicas)
            for w in self.plan.workloads
            if sizes[w.cluster, w.name] <= {w.replicas, 0}
            and (budget := budgets[w.archetype]) is not None
        }

    def fleet_facts(
        self,
        soak_started_micros: int | None,
        own_nodes: Iterable[InventoryMachine] = (),
        market: PlayedMarket = UNCHANGED,
    ) -> FleetFacts:
        """The fleet's machines, and the requirements of the plan's pods. `own_nodes` are the
        machines that another autoscaler created, `market` is what prices and supply did.
        """
        catalog, names = self.profile.catalog, self.cluster_names
        archetypes = {each.name: each for each in catalog.archetypes}
        begins = self._shrinks_at_seconds()
        return FleetFacts(
            machines={machine.id: machine for machine in self.machines},
            own_nodes={machine.id: machine for machine in own_nodes},
            daemon_sets=catalog.daemon_sets,
            needs={
                (names[w.cluster], w.name): pod_requirements(archetypes[w.archetype], w.size)
                for w in self.plan.workloads
            },
            run_seconds={
                each.name: each.run_seconds
                for each in catalog.archetypes
                if each.run_seconds is not None
            },
            shrinks_at_micros=None
            if soak_started_micros is None or begins is None
            else soak_started_micros + round(begins * 1e6),
            shares_machines=catalog.shares_machines,
            market=market,
        )

    def _shrinks_at_seconds(self) -> float | None:
        """When in the soak a demand step first lowers demand; bursts do not count."""
        factor = 1.0
        for step in self.profile.settings.demand_steps:
            if step.factor < factor:
                return step.at_seconds
            factor = step.factor
        return None

    def planned_groups(self, last_step: int | None = None) -> dict[GroupKey, int]:
        """Pods by cluster name and co-location group, of the steps up to `last_step` or of all."""
        return self._groups({"sameRack", "sameZone"}, last_step)

    def same_rack_groups(self) -> dict[GroupKey, int]:
        """The co-location groups whose pods must share a rack; these get anchors."""
        return self._groups({"sameRack"})

    def _groups(self, topologies: set[str], last_step: int | None = None) -> dict[GroupKey, int]:
        names = self.cluster_names
        return {
            (names[w.cluster], w.group): w.replicas
            for w in self.plan.workloads
            if w.group is not None
            and w.topology in topologies
            and (last_step is None or w.step <= last_step)
        }


def prepare_inputs(options: RunOptions) -> RunInputs:
    """Load the profile, make its plan and size its fleet; `preflight` checks feasibility.

    Raises ProfileError, or InfrastructureError if this machine is too small even to plan.
    """
    profile = load_profile(options.profile, options.profiles, options.overrides, options.seed)
    check_place(options, profile.settings)
    host = _host(options)
    check_host_capacity(profile, host)
    plan = plan_for(options, profile.settings, make_plan(profile))
    needed = compute_demand(plan, profile.catalog)
    check_faults(profile.settings)
    if running := profile.settings.fleet.running_provider:
        listed = read_fleet(running)
        return RunInputs(profile, plan, needed, listed.machines, host, listed)
    machines = fleet_inventory(profile, needed if isinstance(needed, PlanDemand) else None)
    if profile.settings.fleet.providers:
        machines_by_provider(profile.settings.fleet.providers, machines)
    make_market_plan(profile.settings, prices_by_kind(machines))
    return RunInputs(profile, plan, needed, machines, host)


def _host(options: RunOptions) -> HostCapacity:
    """This machine; where a run is in pods, kube-scheduler has found them nodes with enough."""
    host = read_host(options.results)
    if options.in_pod:
        return replace(host, memory_available_bytes=sys.maxsize)
    return host
