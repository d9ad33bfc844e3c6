"""Lower bounds on machines and cost under the pods' constraints, by linear programming.

    python -m tests.packing.packing_lp RESULTS

Pods of one size and one set of constraints may be shared out among machines in any fractions, and
machines be used in any fraction; so no real packing needs less. A machine gives what DaemonSets
leave of it. Kept are: sizes (a pod goes only where it fits whole), node labels, taints, how many
machines the fleet has, that pods which repel each other share no machine, and hard zone spread,
where pods that are held to each zone make all zones count. Racks are left out.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from loaddriver.judge.active_pods import active_pods
from loaddriver.judge.facts import FleetFacts
from loaddriver.plan.files import load_plan
from loaddriver.plan.manifests import ZONE_KEY
from loaddriver.plan.records import Plan, Workload
from loaddriver.profile.catalog import Catalog
from loaddriver.profile.loading import Profile
from loaddriver.report.results import read_pods, read_summary
from loaddriver.run.inputs import RunInputs
from loaddriver.run.paired_run import PLAN, PROFILE
from loaddriver.sizing.demand import PlanDemand
from loaddriver.sizing.estimate import HostCapacity
from loaddriver.sizing.fit import Offering, PodRequirements, group_offerings, pod_requirements
from loaddriver.sizing.inventory import InventoryMachine, fleet_inventory
from loaddriver.sizing.shared_demand import compute_demand


@dataclass(frozen=True)
class Least:
    """Lower bounds on the number of machines and on dollars per hour."""

    machines: int
    dollars_per_hour: float


@dataclass(frozen=True)
class Class:
    """Equal pods of one cluster. Of `apart` ones a machine takes at most one; `spread` is the
    fewest and the most of them that may be in one zone.
    """

    cluster: int
    needs: PodRequirements
    pods: int
    apart: bool = False
    spread: tuple[int, int] | None = None


def classes_of(
    workloads: Iterable[Workload], catalog: Catalog, zones: Sequence[str]
) -> list[Class]:
    """Group pods with equal requirements; workloads with their own constraints stay apart."""
    plain: Counter[tuple[int, PodRequirements]] = Counter()
    spread: defaultdict[tuple[int, PodRequirements], list[tuple[int, int, int]]] = defaultdict(list)
    found: list[Class] = []
    for each in workloads:
        archetype = catalog.archetype(each.archetype)
        needs = pod_requirements(archetype, each.size)
        rule = archetype.spread if each.spread else None
        if archetype.anti_affinity is not None:
            found.append(Class(each.cluster, needs, each.replicas, apart=True))
        elif rule is not None and rule.when_unsatisfiable == "DoNotSchedule" and zones:
            low, high = _share_of_a_zone(each.replicas, rule.max_skew, len(zones))
            spread[each.cluster, needs].append((each.replicas, low, high))
        else:
            plain[each.cluster, needs] += each.replicas
    found += [Class(cluster, needs, n) for (cluster, needs), n in plain.items()]
    for (cluster, needs), own in spread.items():
        pods, low, high = (sum(column) for column in zip(*own, strict=True))
        found.append(Class(cluster, needs, pods, spread=(low, high)))
    return found


def zones_in_use(
    classes_or_needs: Iterable[PodRequirements], zones: Sequence[str]
) -> Sequence[str]:
    """All zones, if there are pods that only each single one of them can hold; else none: a packing
    might leave a zone empty, and then no pod need be spread to it.
    """
    held_to = {dict(needs.labels).get(ZONE_KEY) for needs in classes_or_needs}
    return zones if all((zone,) in held_to for zone in zones) else ()


def least(
    classes: Sequence[Class], offerings: Mapping[Offering, int], zones: Sequence[str]
) -> Least:
    """Both bounds."""
    program = Program(classes, list(offerings), [offerings[offer] for offer in offerings], zones)
    dollars = [offer.dollars_per_hour for offer in offerings]
    return Least(
        math.ceil(program.solved(np.ones(len(dollars)))[0] - 1e-6),
        program.solved(np.array(dollars))[0],
    )


@dataclass
class _Rows:
    """Rows of a sparse matrix, one after another."""

    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)

    def add(self, terms: Iterable[tuple[int, float]], limit: float) -> None:
        for column, value in terms:
            self.rows.append(len(self.limits))
            self.columns.append(column)
            self.values.append(value)
        self.limits.append(limit)

    def matrix(self, width: int) -> Any:
        """A scipy.sparse.coo_array of `width` columns."""
        # Imported here and below, so that not every worker that collects tests imports scipy.
        from scipy.sparse import coo_array

        shape = (len(self.limits), width)
        return coo_array((self.values, (self.rows, self.columns)), shape=shape)


class Program:
    """Columns: machines by cluster and offer, then pods by class and offer."""

    def __init__(
        self,
        classes: Sequence[Class],
        offerings: Sequence[Offering],
        supply: Sequence[int],
        zones: Sequence[str],
    ) -> None:
        self._classes, self._offers, self._supply, self._zones = classes, offerings, supply, zones
        clusters = sorted({each.cluster for each in classes})
        self._machines = {
            (cluster, at): number
            for number, (cluster, at) in enumerate(
                (cluster, at) for cluster in clusters for at in range(len(offerings))
            )
        }
        self._pods: dict[tuple[int, int], int] = {}
        for number, each in enumerate(classes):
            for at, offer in enumerate(offerings):
                if each.needs.fits(offer):
                    self._pods[number, at] = len(self._machines) + len(self._pods)

    def solved(self, costs: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """The optimum for what one machine of each offer costs, and the machines by cluster and
        offer, the clusters one below the other.
        """
        from scipy.optimize import linprog

        width = len(self._machines) + len(self._pods)
        most, exactly = self._at_most(), self._exactly()
        wanted = np.zeros(width)
        for (_, at), column in self._machines.items():
            wanted[column] = costs[at]
        result = linprog(
            wanted,
            A_ub=most.matrix(width),
            b_ub=most.limits,
            A_eq=exactly.matrix(width),
            b_eq=exactly.limits,
            bounds=(0, None),
            method="highs-ipm",
        )
        assert result.status == 0, result.message
        machines = result.x[: len(self._machines)].reshape(-1, len(self._offers))
        return float(result.fun), machines

    def whole(self, costs: NDArray[np.float64], seconds: float) -> NDArray[np.int64]:
        """Whole machines by cluster and offer that hold all pods, if those may be cut; the cheapest
        that are found within so many seconds.
        """
        from scipy.optimize import LinearConstraint, milp

        width = len(self._machines) + len(self._pods)
        most, exactly = self._at_most(), self._exactly()
        wanted, integral = np.zeros(width), np.zeros(width)
        for (_, at), column in self._machines.items():
            wanted[column], integral[column] = costs[at], 1
        result = milp(
            wanted,
            integrality=integral,
            constraints=[
                LinearConstraint(most.matrix(width), ub=most.limits),
                LinearConstraint(exactly.matrix(width), exactly.limits, exactly.limits),
            ],
            options={"time_limit": seconds, "mip_rel_gap": 0.01},
        )
        assert result.x is not None, result.message
        machines = result.x[: len(self._machines)].reshape(-1, len(self._offers))
        whole: NDArray[np.int64] = np.rint(machines).astype(np.int64)
        return whole

    def _exactly(self) -> _Rows:
        rows = _Rows()
        of_class: defaultdict[int, list[int]] = defaultdict(list)
        for (number, _), column in self._pods.items():
            of_class[number].append(column)
        for number, each in enumerate(self._classes):
            assert of_class[number], f"no machine holds {each.needs}"
            rows.add([(column, 1.0) for column in of_class[number]], each.pods)
        return rows

    def _at_most(self) -> _Rows:
        rows = _Rows()
        for terms in self._rooms():
            rows.add(terms, 0.0)
        for at, count in enumerate(self._supply):
            rows.add([(c, 1.0) for (_, own), c in self._machines.items() if own == at], count)
        for (number, at), column in self._pods.items():
            if self._classes[number].apart:
                machines = self._machines[self._classes[number].cluster, at]
                rows.add([(column, 1.0), (machines, -1.0)], 0.0)
        for terms, limit in self._zone_shares():
            rows.add(terms, limit)
        return rows

    def _rooms(self) -> Iterator[list[tuple[int, float]]]:
        """Each cluster's machines of an offer have room for the pods there, in each resource."""
        inside: defaultdict[tuple[int, int, str], list[tuple[int, float]]] = defaultdict(list)
        scale = {
            name: amount for offer in self._offers for name, amount in offer.available if amount
        }
        for (number, at), column in self._pods.items():
            each = self._classes[number]
            for name, amount in each.needs.requests:
                inside[each.cluster, at, name].append((column, amount / scale[name]))
        for (cluster, at, name), pods in inside.items():
            available = dict(self._offers[at].available)[name]
            yield [*pods, (self._machines[cluster, at], -available / scale[name])]

    def _zone_shares(self) -> Iterator[tuple[list[tuple[int, float]], float]]:
        zone_of = [dict(offer.labels).get(ZONE_KEY) for offer in self._offers]
        for number, each in enumerate(self._classes):
            if each.spread is None:
                continue
            for zone in self._zones:
                inside = [
                    (column, 1.0)
                    for (own, at), column in self._pods.items()
                    if own == number and zone_of[at] == zone
                ]
                yield inside, each.spread[1]
                yield [(column, -1.0) for column, _ in inside], -each.spread[0]


def _share_of_a_zone(pods: int, skew: int, zones: int) -> tuple[int, int]:
    """The minimum and maximum of the pods that one zone may have."""
    others = zones - 1
    return max(0, -(-(pods - skew * others) // zones)), (pods + skew * others) // zones


def of_workloads(
    workloads: Sequence[Workload], machines: Sequence[InventoryMachine], catalog: Catalog
) -> Least:
    """The bounds for workloads that all run at once on some of `machines`."""
    needs = [pod_requirements(catalog.archetype(each.archetype), each.size) for each in workloads]
    zones = zones_in_use(needs, sorted({machine.zone for machine in machines}))
    offerings = group_offerings(needs, machines, catalog.daemon_sets, extra_keys=[ZONE_KEY])
    return least(classes_of(workloads, catalog, zones), offerings, zones)


def there_at(plan: Plan, results: Path, fleet: FleetFacts, at_micros: int) -> list[Workload]:
    """The plan's workloads with the pods that each had at a moment of a run."""
    names = [f"c{number + 1}" for number in range(plan.header.clusters)]
    rows = active_pods(read_pods(results), at_micros, fleet)
    pods = Counter((row.cluster, row.workload) for row in rows)
    return [
        msgspec.structs.replace(each, replicas=count)
        for each in plan.workloads
        if (count := pods[names[each.cluster], each.name])
    ]


def inputs_of(profile: Profile, plan: Plan) -> RunInputs:
    """A profile and its plan with their fleet."""
    demand = compute_demand(plan, profile.catalog)
    machines = fleet_inventory(profile, demand if isinstance(demand, PlanDemand) else None)
    return RunInputs(profile, plan, demand, machines, HostCapacity(0, 0, 0))


def _report(results: Path) -> None:
    profile = msgspec.json.decode((results / PROFILE).read_bytes(), type=Profile)
    inputs = inputs_of(profile, load_plan(results / PLAN))
    summary = read_summary(results)
    assert summary.cost is not None
    turn = summary.run.soak_started_unix_seconds
    fleet = inputs.fleet_facts(None)
    end = max(row.observed_until_micros for row in read_pods(results))
    moments = {"at the end of the ramp": (turn, summary.cost.ramp_end)}
    moments["at the end"] = (end / 1e6, summary.cost.end)
    for when, (seconds, held) in moments.items():
        if seconds is None or held is None:
            continue
        workloads = there_at(inputs.plan, results, fleet, round(seconds * 1e6))
        bound = of_workloads(workloads, inputs.machines, inputs.profile.catalog)
        pods = sum(each.replicas for each in workloads)
        print(
            f"{when}, {pods} pods: {held.machines} machines held, at least {bound.machines} "
            f"({held.machines / bound.machines:.2f}x); ${held.dollars_per_hour:.2f} an hour, at "
            f"least ${bound.dollars_per_hour:.2f} "
            f"({held.dollars_per_hour / bound.dollars_per_hour:.2f}x)"
        )


if __name__ == "__main__":
    _report(Path(sys.argv[1]))
