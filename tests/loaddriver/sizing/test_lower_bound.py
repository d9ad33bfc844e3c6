"""A bound is never above what a real packing needs, and not far below it."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loaddriver.plan.records import RAMP
from loaddriver.profile.archetypes import Toleration
from loaddriver.sizing.fit import Offering, PodRequirements, group_offerings, pods_by_requirements
from loaddriver.sizing.inventory import InventoryTaint, fleet_inventory
from loaddriver.sizing.lower_bound import least_dollars_per_hour, least_machines
from tests.loaddriver.load_rig import planned_shared

SPOT = InventoryTaint(key="spot", value="true", effect="NoSchedule")


def pod(cpu: int, memory: int = 0, zone: str = "", spot: bool = False) -> PodRequirements:
    requests = [("cpu", cpu), *([("memory", memory)] if memory else []), ("pods", 1)]
    labels = (("zone", (zone,)),) if zone else ()
    return PodRequirements(tuple(requests), labels, (Toleration(key="spot"),) if spot else ())


def machine(
    cpu: int, memory: int, dollars: float, zone: str = "a", taints: tuple[InventoryTaint, ...] = ()
) -> Offering:
    available = (("cpu", cpu), ("memory", memory), ("pods", 100))
    return Offering(available, (("zone", zone),), taints, dollars)


def test_equal_pods_need_their_sum_of_equal_machines() -> None:
    pods, offerings = {pod(1000): 40}, {machine(4000, 1, 1.0): 100}
    assert least_dollars_per_hour(pods, offerings) == pytest.approx(10, rel=0.01)
    assert least_machines(pods, offerings) == 10


def test_the_scarcest_resource_decides() -> None:
    """Here it is memory, and pod slots where pods are tiny."""
    offerings = {machine(4000, 4000, 1.0): 100}
    assert least_dollars_per_hour({pod(100, 1000): 40}, offerings) == pytest.approx(10, rel=0.01)
    assert least_machines({pod(1): 250}, offerings) == 3


def test_two_kinds_of_pods_that_complement_each_other_share_machines() -> None:
    offerings = {machine(4000, 4000, 1.0): 100}
    pods = {pod(3000, 1000): 10, pod(1000, 3000): 10}
    assert least_dollars_per_hour(pods, offerings) == pytest.approx(10, rel=0.01)


def test_cheap_machines_hold_only_as_much_as_there_are_of_them() -> None:
    offerings = {machine(4000, 1, 0.1): 5, machine(4000, 1, 1.0, "b"): 100}
    assert least_dollars_per_hour({pod(1000): 40}, offerings) == pytest.approx(5.5, rel=0.01)


def test_pods_that_may_not_use_cheap_machines_pay_for_dear_ones() -> None:
    """A zone that is asked for, and a taint that is not tolerated."""
    offerings = {machine(4000, 1, 0.1, "a", (SPOT,)): 100, machine(4000, 1, 1.0, "b"): 100}
    assert least_dollars_per_hour({pod(1000): 40}, offerings) == pytest.approx(10, rel=0.01)
    assert least_dollars_per_hour({pod(1000, spot=True): 40}, offerings) == pytest.approx(
        1, rel=0.01
    )
    both = {pod(1000, spot=True): 40, pod(1000, zone="b", spot=True): 40}
    assert least_dollars_per_hour(both, offerings) == pytest.approx(11, rel=0.01)


def test_what_is_paid_for_already_costs_nothing_and_counts_as_a_machine() -> None:
    offerings = {machine(4000, 1, 0.0): 10, machine(4000, 1, 1.0, "b"): 10}
    assert least_dollars_per_hour({pod(1000): 40}, offerings) == pytest.approx(0, abs=0.01)
    assert least_dollars_per_hour({pod(1000): 60}, offerings) == pytest.approx(5, rel=0.02)
    assert least_machines({pod(1000): 40}, offerings) == 10


def test_no_pods_need_nothing_and_pods_without_a_machine_are_left_out() -> None:
    offerings = {machine(4000, 1, 1.0): 10}
    assert least_machines({}, offerings) == 0
    assert least_dollars_per_hour({pod(9000): 3}, offerings) == 0.0
    assert least_machines({pod(1000): 4}, {}) == 0


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), min_size=1, max_size=4),
    dollars=st.lists(st.integers(1, 9), min_size=2, max_size=2),
)
def test_no_packing_that_exists_costs_less_than_the_bound(
    sizes: list[tuple[int, int]], dollars: list[int]
) -> None:
    """All ways to put a few pods onto a few machines, one by one."""
    kinds = [machine(8, 10, float(dollars[0])), machine(12, 8, float(dollars[1]), "b")]
    slots = [kinds[0], kinds[0], kinds[1], kinds[1]]
    best, fewest = math.inf, math.inf
    for where in product(range(len(slots)), repeat=len(sizes)):
        used = {at: [s for s, w in zip(sizes, where, strict=True) if w == at] for at in {*where}}
        fits = all(
            sum(c for c, _ in own) <= dict(slots[at].available)["cpu"]
            and sum(m for _, m in own) <= dict(slots[at].available)["memory"]
            for at, own in used.items()
        )
        if fits:
            best = min(best, sum(slots[at].dollars_per_hour for at in used))
            fewest = min(fewest, len(used))
    pods: dict[PodRequirements, int] = {}
    for cpu, memory in sizes:
        pods[pod(cpu, memory)] = pods.get(pod(cpu, memory), 0) + 1
    offerings = {kinds[0]: 2, kinds[1]: 2}
    if best < math.inf:
        assert least_dollars_per_hour(pods, offerings) <= best + 1e-6
        assert least_machines(pods, offerings) <= fewest


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mixed_50_takes_about_50_machines_at_least(seed: int) -> None:
    """The size that the profile is called after."""
    profile, plan, _ = planned_shared("mixed-50", seed=seed)
    own = [each for each in plan.workloads if each.origin == RAMP]
    pods = pods_by_requirements(own, profile.catalog)
    offerings = group_offerings(pods, fleet_inventory(profile, None), profile.catalog.daemon_sets)
    assert 45 <= least_machines(pods, offerings) <= 60
