"""Everything that is known before anything is started: profile, plan, demand, fleet."""

from __future__ import annotations

from dataclasses import dataclass

from loaddriver.demand import Demand, demand
from loaddriver.inventory import SeedMachine, fleet_inventory
from loaddriver.judge.gangs import GroupKey
from loaddriver.plan import Plan, make_plan
from loaddriver.preflight import Host, Preflight, preflight
from loaddriver.profile import Profile, load_profile
from loaddriver.run.host import read_host
from loaddriver.run.options import RunOptions


@dataclass(frozen=True)
class Prepared:
    """A checked profile with all that follows from it and its seed."""

    profile: Profile
    plan: Plan
    demand: Demand
    machines: tuple[SeedMachine, ...]
    host: Host
    preflight: Preflight

    @property
    def cluster_names(self) -> list[str]:
        """Names by cluster number, in the order of the plan."""
        return [f"c{number + 1}" for number in range(self.profile.settings.clusters)]

    def planned_groups(self) -> dict[GroupKey, int]:
        """Pods by cluster name and co-location group."""
        return self._groups({"sameRack", "sameZone"})

    def same_rack_groups(self) -> dict[GroupKey, int]:
        """Those of them whose pods must share a rack: the ones that anchors are for."""
        return self._groups({"sameRack"})

    def _groups(self, topologies: set[str]) -> dict[GroupKey, int]:
        names = self.cluster_names
        return {
            (names[w.cluster], w.group): w.replicas
            for w in self.plan.workloads
            if w.group is not None and w.topology in topologies
        }


def prepare(options: RunOptions) -> Prepared:
    """Load, plan and size. Raises ProfileError; whether it is feasible stands in `preflight`."""
    profile = load_profile(options.profile, options.profiles, options.overrides, options.seed)
    plan = make_plan(profile)
    needed = demand(plan, profile.catalog)
    machines = fleet_inventory(profile, needed)
    host = read_host(options.results)
    check = preflight(profile, needed, machines, host)
    return Prepared(profile, plan, needed, machines, host, check)
