"""The minimum of machines that hold a plan's pods, and how close a run came to it.

A machine is so many pods of the one size that names its type, so each size of each cluster is a
packing problem of its own, with equal bins. Two bounds are worked out for it:

- no packing needs fewer machines than its pods divided by what one holds, rounded up;
- one packing is found by filling racks with gangs, largest first, and then with the other pods.

Where both agree, as they do for the profiles tested here, that number is the optimum, and no solver
could find a better one.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from loaddriver.plan.files import load_plan
from loaddriver.plan.records import Workload
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.loading import load_profile
from loaddriver.report.results import read_summary
from loaddriver.sizing.demand import demand
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory, rack_sizes

PROFILES = Path(__file__).parents[2] / "profiles"


@dataclass(frozen=True)
class Packing:
    """Machines over all clusters: no packing has fewer than `least`, one has `found`."""

    least: int
    found: int

    @property
    def proven(self) -> bool:
        """Whether `found` is the optimum."""
        return self.least == self.found


def best_packing(
    workloads: Iterable[Workload], machines: Sequence[InventoryMachine], catalog: Catalog
) -> Packing:
    """The bounds for `workloads`, whose replicas all run at once on some of `machines`."""
    problems: defaultdict[tuple[str, int], defaultdict[int, list[Workload]]]
    problems = defaultdict(lambda: defaultdict(list))
    for workload in workloads:
        problems[workload.archetype, workload.size][workload.cluster].append(workload)
    least = found = 0
    for (name, size), clusters in problems.items():
        archetype = catalog.archetype(name)
        racks = rack_sizes(machines, archetype.sizes[size].instance_types)
        for own in clusters.values():
            least += -(-sum(each.replicas for each in own) // archetype.density)
            found += _fill(own, racks, archetype.density)
    return Packing(least, found)


def _fill(workloads: Sequence[Workload], racks: list[int], density: int) -> int:
    """How many machines one packing takes for one cluster, out of `racks`, which says how many
    machines are left in each.
    """
    gangs = sorted((w.replicas for w in workloads if w.topology == "sameRack"), reverse=True)
    plain = sum(w.replicas for w in workloads if w.topology != "sameRack")
    loads = [0] * len(racks)
    for pods in gangs:
        rooms = (count * density - load for count, load in zip(racks, loads, strict=True))
        loads[next(at for at, room in enumerate(rooms) if room >= pods)] += pods
    used = [-(-load // density) for load in loads]
    spare = sum(used) * density - sum(loads)
    for at, machines in enumerate(used):
        racks[at] -= machines
    return sum(used) + -(-max(0, plain - spare) // density)


def of_run(results: Path) -> tuple[int, Packing]:
    """The Nodes that a run held at its end, and the best packing of the pods it had then, if it was
    shorter than its Jobs.
    """
    plan = load_plan(results / "plan.jsonl")
    profile = load_profile(plan.header.profile, PROFILES, seed=plan.header.seed)
    machines = fleet_inventory(profile, demand(plan, profile.catalog))
    summary = read_summary(results)
    assert summary.nodes is not None
    return summary.nodes.ready_at_end, best_packing(plan.workloads, machines, profile.catalog)


if __name__ == "__main__":
    held, best = of_run(Path(sys.argv[1]))
    bound = "proven" if best.proven else f"no packing has fewer than {best.least}"
    print(f"held {held}, best {best.found} ({bound}): {100 * held / best.found - 100:.1f} % more")
