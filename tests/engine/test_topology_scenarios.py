"""Where gangs and spread needs get their machines, told by small fleets."""

from __future__ import annotations

from engine_pods import outcome, pods
from engine_rig import (
    DONE,
    EVENLY_BY_ZONE,
    RACK,
    ZONE,
    Spec,
    carried_out,
    checked,
    configured,
    decided,
    demand_of,
    fleet_of,
    idle,
    need_of,
    said,
    same,
    speculative,
    zoned,
)

from bigfleet.engine.snapshot import Settings
from bigfleet.model.need import Operator, Requirement, Spread


def racked(name: str, rack: str, **kwargs: object) -> Spec:
    """An Idle machine in a rack."""
    return idle(name, labels={RACK: rack}, **kwargs)


def test_a_gang_goes_where_all_of_it_fits() -> None:
    """A cheaper rack that is too small is not begun."""
    specs = [racked("a1", "a", price=0.1), racked("b1", "b"), racked("b2", "b")]
    assert decided(specs, need_of(8, same())) == ["Bootstrap b1", "Bootstrap b2"]


def test_a_gang_takes_the_tightest_rack_that_fits() -> None:
    """Large racks are left to large gangs."""
    specs = [*(racked(f"a{n}", "a") for n in range(3)), *(racked(f"b{n}", "b") for n in range(2))]
    assert decided(specs, need_of(8, same())) == ["Bootstrap b0", "Bootstrap b1"]


def test_a_serving_gang_stays_where_it_is() -> None:
    """A fresh rack that fits more tightly does not move a healthy gang."""
    here = configured("h", labels={RACK: "z"})
    specs = [here, *(racked(f"z{n}", "z") for n in range(3)), racked("a1", "a"), racked("a2", "a")]
    assert decided(specs, need_of(8, same())) == ["Bootstrap z0"]


def test_of_two_serving_racks_a_gang_keeps_its_own() -> None:
    """Machines of other gangs of the cluster attract less than the gang's own."""
    specs = [
        configured("a", labels={RACK: "a"}),
        configured("b", labels={RACK: "b"}, wanted_by=1),
    ]
    fleet = fleet_of(specs)
    needs = [need_of(4, same(), group=group) for group in ("none", "own")]
    decision = checked(fleet, demand_of(fleet, [("east", needs[0]), ("east", needs[1])]))
    assert decision.claimed_by.tolist() == [0, 1]


def test_an_impossible_gang_gathers_in_the_most_covering_rack_and_rests() -> None:
    """It takes what the best rack has, keeps it, and its shortfall stays flat."""
    specs = [
        configured("a0", labels={RACK: "a"}),
        *(racked(f"b{n}", "b") for n in range(3)),
        *(racked(f"c{n}", "c") for n in range(2)),
    ]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need_of(100, same()))])
    first = checked(fleet, demand)
    assert said(specs, first) == ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2", "Reclaim a0"]
    fleet = carried_out(fleet, demand, first, DONE)
    later = checked(fleet, demand)
    assert (said(specs, later), later.shortfalls[0].deficit) == ([], {"cpu": 88})
    assert first.shortfalls == later.shortfalls


def test_an_impossible_gang_does_not_move_to_a_rack_that_covers_no_more() -> None:
    """At equal coverage the rack that already serves wins, whatever its name."""
    specs = [configured("z", labels={RACK: "z"}), racked("a", "a")]
    assert decided(specs, need_of(100, same())) == []


def test_an_impossible_gang_stays_though_neighbours_gather_elsewhere() -> None:
    """At equal coverage its own machines hold it, not the number of its cluster's machines."""
    own = configured("z", cpu=8, labels={RACK: "z"}, wanted_by=0)
    others = [configured(f"a{n}", cpu=4, labels={RACK: "a"}, wanted_by=1) for n in range(2)]
    assert decided([own, *others], need_of(100, same()), need_of(8, group="b")) == []


def test_machines_without_the_key_are_no_home_for_a_gang() -> None:
    """Same needs a value to agree on."""
    assert decided([idle("i"), racked("r", "a", price=9)], need_of(4, same())) == ["Bootstrap r"]


def test_a_gang_cannot_have_what_an_earlier_one_took() -> None:
    """Two gangs in one cycle do not count the same machines."""
    specs = [racked("a1", "a"), racked("a2", "a"), racked("b1", "b"), racked("b2", "b")]
    gangs = [need_of(8, same(), group=group) for group in "xy"]
    assert decided(specs, *gangs) == [f"Bootstrap {name}" for name in ("a1", "a2", "b1", "b2")]


# Spread


def test_spread_keeps_the_skew() -> None:
    """Dearer machines elsewhere come before a second one in the same zone."""
    assert decided(zoned("aaabbc"), need_of(14, spread=EVENLY_BY_ZONE)) == [
        f"Bootstrap {name}" for name in ("a0", "b3", "c5", "a1", "b4")
    ]


def test_spread_counts_what_is_bound() -> None:
    """The zone that already has a machine waits for the other one."""
    specs = [configured("a", labels={ZONE: "a"}), *zoned("ab")]
    assert decided(specs, need_of(8, spread=EVENLY_BY_ZONE)) == ["Bootstrap b1"]


def test_spread_would_rather_fall_short_than_lean() -> None:
    """A used-up zone where the cluster has a machine holds the others back at max_skew."""
    specs = [configured("b", labels={ZONE: "b"}), *zoned("aaaa")]
    found = outcome(specs, need_of(20, spread=EVENLY_BY_ZONE))
    assert (found.orders, found.short) == (["Bootstrap a0", "Bootstrap a1"], {0: 11})


def test_a_zone_too_small_for_its_part_is_not_entered() -> None:
    """Two zones hold sixteen pods, and a third one with room for four would keep them at fourteen:
    only where the cluster has machines do pods have to wait for a zone.
    """
    found = outcome(zoned("aaabbc"), need_of(16, spread=EVENLY_BY_ZONE))
    assert (found.orders, found.short) == ([f"Bootstrap {n}" for n in ("a0", "b3", "a1", "b4")], {})


def test_a_neighbours_pods_do_not_count_for_the_skew() -> None:
    """Each need spreads its own pods; the room beside the neighbour's is used as any other."""
    specs = [configured(zone, cpu=8, labels={ZONE: zone}) for zone in "ab"]
    in_a = pods((4, 1), requirements=(Requirement(ZONE, Operator.IN, ("a",)),), priority=1)
    found = outcome(specs, in_a, pods((4, 1), spread=EVENLY_BY_ZONE), settings=Settings())
    assert found.places == {"a": {0: 4, 1: 2}, "b": {1: 2}}


def test_soft_spread_binds_nobody() -> None:
    """Only hard terms limit what is acquired."""
    soft = (Spread(ZONE, 1, False),)
    assert decided(zoned("aab"), need_of(8, spread=soft)) == ["Bootstrap a0", "Bootstrap a1"]


def test_same_outranks_spread() -> None:
    """Who wants one zone cannot be spread over zones."""
    both = need_of(8, same(ZONE), spread=EVENLY_BY_ZONE)
    assert decided(zoned("aab"), both) == ["Bootstrap a0", "Bootstrap a1"]


def test_spread_alternates_between_idle_and_bought() -> None:
    """A purchase in the empty zone opens the idle zone again."""
    bought = speculative("b", labels={ZONE: "b"})
    assert decided([*zoned("aa"), bought], need_of(12, spread=EVENLY_BY_ZONE)) == [
        "Bootstrap a0", "Provision b", "Bootstrap a1",
    ]  # fmt: skip
