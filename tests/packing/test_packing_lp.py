"""The linear program's bounds are exact in known cases and never below the harness's own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from loaddriver.plan.make import make_plan
from loaddriver.plan.manifests import ZONE_KEY
from loaddriver.plan.records import RAMP
from loaddriver.profile.loading import load_profile
from loaddriver.sizing.fit import Offering, PodRequirements, group_offerings, pods_by_requirements
from loaddriver.sizing.inventory import fleet_inventory
from loaddriver.sizing.lower_bound import least_dollars_per_hour, least_machines
from tests.packing.packing_lp import Class, classes_of, least, of_workloads, zones_in_use

PROFILES = Path(__file__).parents[2] / "profiles"
ZONES = ("a", "b", "c")


def pod(cpu: int, zone: str = "") -> PodRequirements:
    labels = ((ZONE_KEY, (zone,)),) if zone else ()
    return PodRequirements((("cpu", cpu), ("pods", 1)), labels)


def machine(cpu: int, dollars: float, zone: str = "a") -> Offering:
    return Offering((("cpu", cpu), ("pods", 100)), ((ZONE_KEY, zone),), (), dollars)


def test_equal_pods_need_their_sum_of_the_cheapest_machines() -> None:
    bound = least([Class(0, pod(1000), 40)], {machine(4000, 1.0): 20, machine(4000, 2.0): 20}, ())
    assert bound.machines == 10
    assert bound.dollars_per_hour == pytest.approx(10)


def test_clusters_share_the_fleet_and_no_machine() -> None:
    """Ten cheap machines exist once, not once per cluster."""
    classes = [Class(number, pod(1000), 40) for number in range(2)]
    bound = least(classes, {machine(4000, 1.0): 10, machine(4000, 2.0): 20}, ())
    assert bound.dollars_per_hour == pytest.approx(10 * 1 + 10 * 2)


def test_anti_affine_pods_need_a_machine_each() -> None:
    apart = [Class(0, pod(100), 12, apart=True)]
    assert least(apart, {machine(4000, 1.0): 20}, ()).machines == 12


def test_two_anti_affine_workloads_share_machines() -> None:
    apart = [Class(0, pod(100), pods, apart=True) for pods in (12, 9)]
    assert least(apart, {machine(4000, 1.0): 20}, ()).machines == 12


def test_hard_spread_needs_expensive_machines_in_each_zone() -> None:
    """Thirty pods, ten in each zone, give or take one; zone c costs ten times as much."""
    offerings = {
        machine(1000, 1.0, "a"): 99,
        machine(1000, 1.0, "b"): 99,
        machine(1000, 10, "c"): 99,
    }
    plain = least([Class(0, pod(1000), 30)], offerings, ZONES)
    spread = least([Class(0, pod(1000), 30, spread=(9, 11))], offerings, ZONES)
    assert plain.dollars_per_hour == pytest.approx(30)
    assert spread.dollars_per_hour == pytest.approx(21 + 9 * 10)


def test_zones_count_only_if_pods_are_held_to_each_of_them() -> None:
    """A packing may leave a zone empty, and then no pod is spread to it."""
    assert zones_in_use([pod(1, zone) for zone in ZONES], ZONES) == ZONES
    assert zones_in_use([pod(1, "a"), pod(1, "b"), pod(1)], ZONES) == ()


@pytest.mark.parametrize("name", ["mixed-50", "spread-50", "antiaffinity-50"])
def test_the_harnesss_own_bound_is_no_higher_and_hardly_lower(name: str) -> None:
    """It ignores spread and anti-affinity, and has no solver."""
    few = ("podsPerCluster=500", "demandSteps=[]", "bursts=[]", "soak.churnPodsPerSecond=0")
    profile = load_profile(name, PROFILES, few)
    own = [each for each in make_plan(profile).workloads if each.origin == RAMP]
    machines = fleet_inventory(profile, None)
    bound = of_workloads(own, machines, profile.catalog)
    pods = pods_by_requirements(own, profile.catalog)
    offerings = group_offerings(pods, machines, profile.catalog.daemon_sets)
    dollars = least_dollars_per_hour(pods, offerings)
    assert dollars <= bound.dollars_per_hour * (1 + 1e-6)
    assert dollars >= 0.97 * bound.dollars_per_hour
    assert least_machines(pods, offerings) <= bound.machines


def test_every_pod_is_in_one_class_and_rules_of_their_own_keep_workloads_apart() -> None:
    profile = load_profile("mixed-50", PROFILES)
    own = [each for each in make_plan(profile).workloads if each.origin == RAMP]
    classes = classes_of(own, profile.catalog, ("zone-a", "zone-b", "zone-c"))
    assert sum(each.pods for each in classes) == 5000
    kinds = Counter((each.apart, each.spread is not None) for each in classes)
    assert kinds[True, False] == sum(each.archetype == "kept-apart" for each in own)
    assert kinds[False, True] > 0


def test_the_harness_does_not_depend_on_a_solver() -> None:
    """scipy is for developers; a run is judged by what comes with the package."""
    sources = (PROFILES.parent / "loaddriver").rglob("*.py")
    assert not [path for path in sources if "scipy" in path.read_text()]
