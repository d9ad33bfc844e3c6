"""The sum of a cluster's demand: small, exact, and the same however it came about."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigfleet.api.need_codec import need_from_wire
from bigfleet.api.v1alpha1.capacity_pb2 import CapacityNeed, ClusterCapacityNeeds
from bigfleet.controllers.operator.aggregate import Aggregate, NeedKey
from bigfleet.controllers.operator.request_demand import (
    CoLocation,
    RequestDemand,
    RequestSpec,
    demand_of,
)
from bigfleet.kube.pod_types import LabelSelector, SelectorRequirement
from tests.support.cpu_time import cpu_seconds, slowness

_RACK = "topology.bigfleet/rack"


def _demand(namespace: str = "team", cpu: str = "1", **more: Any) -> RequestDemand:
    return demand_of(
        namespace, RequestSpec(resources={"cpu": cpu, "pods": "1"}, priority=0, **more)
    )


def _gang(name: str) -> CoLocation:
    return CoLocation(_RACK, LabelSelector(match_labels={"gang": name}))


def test_a_deployment_of_fifty_thousand_pods_is_one_need_and_a_small_rollup() -> None:
    aggregate: Aggregate[int] = Aggregate()
    demand = _demand(cpu="250m")
    for number in range(50_000):
        aggregate.put(number, demand)
    [need] = aggregate.needs()
    assert need.aggregate == {"cpu": 12_500_000, "pods": 50_000_000}
    assert need.largest == {"cpu": 250, "pods": 1000}
    assert ClusterCapacityNeeds(needs=aggregate.content(0.0).needs).ByteSize() < 2048


def _mixed_demands(profiles: int, sizes: int) -> list[RequestDemand]:
    """Of `sizes` distinct sizes, each in each profile."""
    draw = random.Random(7)
    amounts = [(draw.randint(5, 3200) * 10, draw.randint(64, 65536)) for _ in range(sizes)]
    return [
        demand_of(
            "n",
            RequestSpec(
                {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "1"},
                number,
                [SelectorRequirement("topology.kubernetes.io/zone", "In", [f"zone-{number}"])],
            ),
        )
        for cpu, memory in amounts
        for number in range(profiles)
    ]


def _mixed(demands: list[RequestDemand], pods: int) -> Aggregate[int]:
    draw = random.Random(7)
    aggregate: Aggregate[int] = Aggregate()
    for number in range(pods):
        aggregate.put(number, draw.choice(demands))
    return aggregate


def _bytes(aggregate: Aggregate[int]) -> int:
    needs = aggregate.content(0.0).needs
    return ClusterCapacityNeeds(
        cluster_id="c-1", timestamp_unix_nanos=2**60, needs=needs
    ).ByteSize()


@pytest.mark.parametrize(("profiles", "sizes"), [(1, 500), (10, 500), (10, 50)])
def test_fifty_thousand_pods_of_five_hundred_sizes_are_a_roll_up_of_four_kilobytes(
    profiles: int, sizes: int
) -> None:
    """Whether each profile has all sizes or a part of them; no pod is lost in it."""
    aggregate = _mixed(_mixed_demands(profiles, sizes), 50_000)
    assert _bytes(aggregate) <= 4096
    reported = [need_from_wire(need, "") for need in aggregate.content(0.0).needs]
    assert sum(need.pods for need in reported) == 50_000
    for need, whole in zip(reported, aggregate.needs(), strict=True):
        assert need.profile == whole.profile
        assert 8 <= len(need.sizes) <= 64
        for name, amount in whole.aggregate.items():
            assert amount <= need.aggregate[name] < 1.35 * amount


def test_with_many_needs_up_to_sixty_four_sizes_of_each_are_reported_exactly() -> None:
    """They take more than 4 KB in any case; coarser sizes would cost machines."""
    demands = _mixed_demands(30, 60)
    aggregate = _mixed(demands, 50_000)
    assert [need_from_wire(sent, "") for sent in aggregate.content(0.0).needs] == aggregate.needs()


def test_a_roll_up_stays_small_and_steady_while_pods_come_and_go() -> None:
    demands, draw = _mixed_demands(10, 500), random.Random(5)
    aggregate = _mixed(demands, 20_000)
    before = {need.SerializeToString() for need in aggregate.content(0.0).needs}
    assert len(before) == 10
    for _ in range(5):
        for key in draw.sample(range(20_000), 100):
            aggregate.put(key, draw.choice(demands))
        assert _bytes(aggregate) <= 4096
    class_sizes = [
        {s.amounts for s in need_from_wire(n, "").sizes} for n in aggregate.content(0.0).needs
    ]
    first = [
        {s.amounts for s in need_from_wire(CapacityNeed.FromString(n), "").sizes} for n in before
    ]
    kept = sum(max(len(now & then) / len(then) for now in class_sizes) for then in first)
    assert kept / len(first) > 0.8


def test_the_requests_of_a_size_are_found_newest_first() -> None:
    """Each by its size, all of them without one; a size that is not there is not taken for all."""
    aggregate: Aggregate[str] = Aggregate()
    small, large = _demand(cpu="1"), _demand(cpu="2")
    aggregate.put("old", small, created=10.0)
    aggregate.put("new", small, created=30.0)
    aggregate.put("between", small, created=20.0)
    aggregate.put("large", large, created=40.0)
    row = aggregate.need_key_of("old")
    assert aggregate.requests_of(row, small.unit) == ["new", "between", "old"]
    assert aggregate.requests_of(row, None) == ["large", "new", "between", "old"]
    assert aggregate.requests_of(row, (("cpu", 77),)) is None
    assert aggregate.requests_of(NeedKey("none", ""), small.unit) is None
    aggregate.remove("new")
    assert aggregate.requests_of(row, small.unit) == ["between", "old"]


def test_every_request_is_found_by_the_class_that_stands_for_it() -> None:
    aggregate = _mixed(_mixed_demands(1, 500), 5_000)
    [need] = aggregate.content(0.0).needs
    row = aggregate.need_key_of(0)
    found = [
        key
        for size in need_from_wire(need, "").sizes
        for key in aggregate.requests_of(row, size.amounts) or ()
    ]
    assert sorted(found) == list(range(5_000))


def test_gangs_with_different_selectors_never_merge() -> None:
    aggregate: Aggregate[int] = Aggregate()
    for number in range(40):
        aggregate.put(number, _demand(co_location=_gang(str(number % 4))))
    assert [n.aggregate["pods"] for n in aggregate.needs()] == [10_000] * 4


def test_the_same_selector_in_two_namespaces_means_two_gangs() -> None:
    aggregate: Aggregate[int] = Aggregate()
    aggregate.put(1, _demand("a", co_location=_gang("x")))
    aggregate.put(2, _demand("b", co_location=_gang("x")))
    assert len(aggregate.needs()) == 2


def test_the_smallest_machine_must_hold_the_largest_unit_of_each_resource() -> None:
    aggregate: Aggregate[str] = Aggregate()
    aggregate.put("wide", demand_of("n", RequestSpec({"cpu": "8", "memory": "1Gi"}, 0)))
    aggregate.put("tall", demand_of("n", RequestSpec({"cpu": "1", "memory": "64Gi"}, 0)))
    [need] = aggregate.needs()
    assert need.largest == {"cpu": 8000, "memory": 64 * 2**20}
    aggregate.remove("wide")
    [need] = aggregate.needs()
    assert need.largest == {"cpu": 1000, "memory": 64 * 2**20}


_DEMANDS = [
    _demand(cpu="1"),
    _demand(cpu="2"),
    _demand(cpu="2", requirements=[SelectorRequirement("zone", "In", ["b", "a"])]),
    _demand(cpu="1", requirements=[SelectorRequirement("zone", "In", ["a", "b"])]),
    _demand(co_location=_gang("x")),
    _demand("other", co_location=_gang("x")),
    _demand(interruption_penalty="3"),
]


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 8), st.none() | st.sampled_from(_DEMANDS)), max_size=60))
def test_keeping_up_gives_the_same_as_starting_over(
    events: list[tuple[int, RequestDemand | None]],
) -> None:
    kept: Aggregate[int] = Aggregate()
    wanted: dict[int, RequestDemand] = {}
    for key, demand in events:
        if demand is None:
            kept.remove(key)
            wanted.pop(key, None)
        else:
            kept.put(key, demand)
            wanted[key] = demand
        kept.needs()  # what is remembered between changes must not outlive them
    fresh: Aggregate[int] = Aggregate()
    for key in reversed(wanted):
        fresh.put(key, wanted[key])
    assert kept.needs() == fresh.needs()
    assert kept.content(0.0) == fresh.content(0.0)
    assert len(kept) == len(wanted)
    assert [need_from_wire(sent, "") for sent in kept.content(0.0).needs] == kept.needs()


def test_putting_the_same_again_is_no_change() -> None:
    aggregate: Aggregate[int] = Aggregate()
    aggregate.put(1, _DEMANDS[0])
    version = aggregate.version
    aggregate.put(1, _DEMANDS[0])
    aggregate.remove(2)
    assert aggregate.version == version


def test_a_change_costs_the_same_whatever_the_size() -> None:
    """25,000 co-located requests in 5,000 gangs; building anew stays well below a second."""
    demands = [_demand(co_location=_gang(str(n))) for n in range(5000)]
    aggregate: Aggregate[int] = Aggregate()
    for number in range(25_000):
        aggregate.put(number, demands[number % 5000])
    assert len(aggregate.content(0.0).needs) == 5000
    took = []
    for number in range(3):  # others on this machine, and garbage, can only add to it
        aggregate.remove(number)
        took.append(cpu_seconds(lambda: aggregate.content(0.0)))
    assert len(aggregate.content(0.0).needs) == 5000
    assert min(took) < 0.5 * slowness()


def _waiting(aggregate: Aggregate[int], now: float) -> tuple[int, int]:
    """The reported rows, and those held back."""
    content = aggregate.content(now)
    return len(content.needs), len(content.incomplete)


def test_a_gang_is_reported_at_once_when_all_its_members_exist() -> None:
    """At a smaller size it might be placed where the rest of it does not fit."""
    aggregate: Aggregate[int] = Aggregate()
    member = _demand(co_location=_gang("a"))
    aggregate.put(1, member, 3)
    aggregate.put(2, member, 3)
    assert _waiting(aggregate, now=0.0) == (0, 1)
    aggregate.put(3, member, 3)
    assert _waiting(aggregate, now=0.1) == (1, 0)


def test_a_gang_that_no_longer_grows_is_reported_as_it_is() -> None:
    """What keeps the others away, such as a quota, may last; the scheduler binds those there."""
    aggregate: Aggregate[int] = Aggregate()
    member = _demand(co_location=_gang("a"))
    aggregate.put(1, member, 3)
    assert _waiting(aggregate, now=0.0) == (0, 1)
    aggregate.put(2, member, 3)
    assert _waiting(aggregate, now=29.0) == (0, 1)
    assert _waiting(aggregate, now=58.0) == (0, 1)
    assert _waiting(aggregate, now=59.0) == (1, 0)


def test_a_gang_once_reported_stays_reported() -> None:
    """Its machines are in use: holding it back would release them."""
    aggregate: Aggregate[int] = Aggregate()
    member = _demand(co_location=_gang("a"))
    for number in range(3):
        aggregate.put(number, member, 3)
    assert _waiting(aggregate, now=0.0) == (1, 0)
    aggregate.remove(1)
    assert _waiting(aggregate, now=0.1) == (1, 0)
    aggregate.put(4, member, 5)
    assert _waiting(aggregate, now=0.2) == (1, 0)


def test_a_gang_of_unknown_size_and_one_that_exceeds_it_are_reported_at_once() -> None:
    aggregate: Aggregate[int] = Aggregate()
    aggregate.put(1, _demand(co_location=_gang("unknown")))
    for number in (2, 3):
        aggregate.put(number, _demand(co_location=_gang("exceeds")), 1)
    assert _waiting(aggregate, now=0.0) == (2, 0)
