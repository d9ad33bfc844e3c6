"""Topology of gangs and spread needs, by examples with small fleets."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Operator, Requirement, Spread, Taint
from tests.engine.engine_pods import outcome, pods
from tests.engine.engine_rig import (
    DONE,
    EVENLY_BY_ZONE,
    RACK,
    ZONE,
    Spec,
    action_names,
    carried_out,
    checked,
    configured,
    decided,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
    zoned,
)
from tests.engine.engine_story import Story


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
        configured("b", labels={RACK: "b"}, last_claimed_by=1),
    ]
    fleet = fleet_of(specs)
    needs = [need_of(4, same(), group=group) for group in ("none", "own")]
    decision = checked(fleet, demand_of(fleet, [("east", needs[0]), ("east", needs[1])]))
    assert decision.claimed_by.tolist() == [0, 1]


def test_an_impossible_gang_acquires_in_the_most_covering_rack_and_rests() -> None:
    """It takes what the best rack has, keeps it, and its shortfall stays flat."""
    specs = [
        configured("a0", labels={RACK: "a"}),
        *(racked(f"b{n}", "b") for n in range(3)),
        *(racked(f"c{n}", "c") for n in range(2)),
    ]
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need_of(100, same()))])
    first = checked(fleet, demand)
    assert action_names(specs, first) == [
        "Bootstrap b0",
        "Bootstrap b1",
        "Bootstrap b2",
        "Reclaim a0",
    ]
    fleet = carried_out(fleet, demand, first, DONE)
    later = checked(fleet, demand)
    assert (action_names(specs, later), later.shortfalls[0].deficit) == ([], {"cpu": 88})
    assert first.shortfalls == later.shortfalls
    assert first.cycle_memory.reservations == ()


def test_an_impossible_gang_does_not_move_to_a_rack_that_covers_no_more() -> None:
    """At equal coverage the rack that already serves wins, whatever its name."""
    specs = [configured("z", labels={RACK: "z"}), racked("a", "a")]
    assert decided(specs, need_of(100, same())) == []


def test_an_impossible_gang_stays_though_neighbours_are_elsewhere() -> None:
    """At equal coverage its own machines hold it, not the number of its cluster's machines."""
    own = configured("z", cpu=8, labels={RACK: "z"}, last_claimed_by=0)
    others = [configured(f"a{n}", cpu=4, labels={RACK: "a"}, last_claimed_by=1) for n in range(2)]
    assert decided([own, *others], need_of(100, same()), need_of(8, group="b")) == []


def test_machines_without_the_key_are_no_home_for_a_gang() -> None:
    """Same needs a value to agree on."""
    assert decided([idle("i"), racked("r", "a", price=9)], need_of(4, same())) == ["Bootstrap r"]


def test_a_gang_cannot_have_what_an_earlier_one_took() -> None:
    """Two gangs in one cycle do not count the same machines."""
    specs = [racked("a1", "a"), racked("a2", "a"), racked("b1", "b"), racked("b2", "b")]
    gangs = [need_of(8, same(), group=group) for group in "xy"]
    assert decided(specs, *gangs) == [f"Bootstrap {name}" for name in ("a1", "a2", "b1", "b2")]


def test_a_gang_avoids_a_rack_reserved_for_an_equal() -> None:
    """The tightest rack is reserved for another gang, whose action was lost."""
    specs = [*(racked(f"a{n}", "a") for n in range(2)), *(racked(f"b{n}", "b") for n in range(3))]
    waits, comes = need_of(8, same(), group="waits"), need_of(8, same(), group="comes")
    story = Story(specs, ("west", waits))
    story.lose_actions()
    story.demand = demand_of(story.fleet, [("east", comes), ("west", waits)])
    story.fleet = replace(story.fleet, last_claimed_by=np.array([1, 1, NONE, NONE, NONE], np.int32))
    assert story.cycle() == ["Bootstrap b0", "Bootstrap b1", "Bootstrap a0", "Bootstrap a1"]


# Spread


def test_spread_keeps_the_skew() -> None:
    """More expensive machines elsewhere come before a second one in the same zone."""
    assert decided(zoned("aaabbc"), need_of(14, spread=EVENLY_BY_ZONE)) == [
        f"Bootstrap {name}" for name in ("a0", "b3", "c5", "a1", "b4")
    ]


def test_a_machine_created_for_a_zone_is_used_when_it_arrives() -> None:
    """Its zone had a share of the pods while it was being created. Once it is idle it belongs to no
    cluster; if the other zones had all pods then, it would be deleted unused.
    """
    specs = [speculative(zone, cpu=5, labels={ZONE: zone}) for zone in "abc"]
    story = Story(specs, ("east", need_of(8, unit=1, spread=EVENLY_BY_ZONE)))
    assert story.cycle() == ["Provision a", "Provision b", "Provision c"]
    creating = story.fleet.state.copy()
    creating[:2] = MachineState.IDLE
    story.fleet = replace(story.fleet, state=creating)
    assert story.cycle() == ["Bootstrap a", "Bootstrap b"]
    story.arrive()
    assert story.cycle() == ["Bootstrap c"]
    assert story.short() == {}


def test_a_machine_on_which_pods_that_spread_over_hosts_were_counted_is_not_used_for_that() -> None:
    """They were counted there because it came, and fit on the others as well."""
    over_hosts = (Spread(HOSTNAME_LABEL, 2, True),)
    specs = [
        *(configured(zone, cpu=5, labels={ZONE: zone}, last_claimed_by=0) for zone in "ab"),
        speculative("c", state=MachineState.IDLE, cpu=5, labels={ZONE: "c"}, last_claimed_by=0),
    ]
    assert decided(specs, need_of(8, unit=1, spread=over_hosts)) == []


def test_a_machine_created_for_spread_pods_is_not_used_if_it_would_be_empty() -> None:
    """Its zone has another one by now that the pods are counted on already."""
    specs = [
        *(configured(zone, cpu=5, labels={ZONE: zone}, last_claimed_by=0) for zone in "abc"),
        speculative("c2", state=MachineState.IDLE, cpu=5, labels={ZONE: "c"}, last_claimed_by=0),
    ]
    assert decided(specs, need_of(8, unit=1, spread=EVENLY_BY_ZONE)) == []


def test_spread_counts_what_is_bound() -> None:
    """The zone that already has a machine waits for the other one."""
    specs = [configured("a", labels={ZONE: "a"}), *zoned("ab")]
    assert decided(specs, need_of(8, spread=EVENLY_BY_ZONE)) == ["Bootstrap b1"]


def sold(zones: str) -> list[Spec]:
    """In each zone a machine of 4 CPUs for $1 and one of 16 for $4.50, both idle."""
    return [
        idle(f"{zone}{cpu}", cpu=cpu, price=price, labels={ZONE: zone})
        for zone in zones
        for cpu, price in ((4, 1.0), (16, 4.5))
    ]


def test_a_machine_for_a_zone_is_sized_for_the_pods_that_the_cluster_expects() -> None:
    """Each zone is likely to get a third of the next ninety pods, most of which will be others':
    three large machines that they can use, not three that nobody else fits on.
    """
    full = configured("full", cpu=900, labels={"pool": "old"})
    spread = pods((3, 1), spread=EVENLY_BY_ZONE)
    found = outcome([full, *sold("abc")], pods((900, 1)), spread).actions
    assert found == [f"Bootstrap {zone}16" for zone in "abc"]


def test_a_machine_for_a_zone_is_not_sized_for_what_others_would_not_use() -> None:
    """Nothing is expected of a small cluster, nor of pods of another priority."""
    full = configured("full", cpu=900, labels={"pool": "old"})
    urgent = pods((900, 1), priority=9)
    for others in ((), (urgent,)):
        specs = [full, *sold("abc")] if others else sold("abc")
        found = outcome(specs, *others, pods((3, 1), spread=EVENLY_BY_ZONE)).actions
        assert found == [f"Bootstrap {zone}4" for zone in "abc"]


def test_spread_over_machines_is_not_sized_for_others() -> None:
    """A need that takes a machine for each few pods needs many, however small."""
    apart = (Spread(HOSTNAME_LABEL, 1, True),)
    in_zones = (Requirement(ZONE, Operator.EXISTS),)
    full = configured("full", cpu=900, labels={"pool": "old"})
    needs = pods((900, 1)), pods((3, 1), spread=apart, requirements=in_zones)
    assert outcome([full, *sold("abc")], *needs).actions == ["Bootstrap a4"]


def test_machines_for_pods_that_keep_apart_share_the_growth_of_such_pods() -> None:
    """Each of them takes a machine of its own, and the next workloads use the rest of it: of few
    machines each is large, of many each is small. Pods that share machines get others.
    """
    full = configured("full", cpu=900, labels={"pool": "old"})
    specs = [full, *(replace(spec, name=f"{spec.name}-{at}") for at in range(15)
                     for spec in sold("abc"))]  # fmt: skip
    alike = [pods((1, 2), anti_affinity=(HOSTNAME_LABEL,), group=f"{at}") for at in range(450)]
    sharing = [pods((900, 1))]
    in_zones = (Requirement(ZONE, Operator.EXISTS),)
    for others, apart, cpu in ((alike, 3, "16"), (alike, 45, "4"), (sharing, 3, "4")):
        kept = pods((apart, 1), anti_affinity=(HOSTNAME_LABEL,), requirements=in_zones)
        found = outcome(specs, *others, kept).actions
        assert {name.split("-")[0][-len(cpu) :] for name in found} == {cpu}
        assert len(found) == apart


def test_spread_would_rather_fall_short_than_lean() -> None:
    """A used-up zone where the cluster has a machine holds the others back at max_skew."""
    specs = [configured("b", labels={ZONE: "b"}), *zoned("aaaa")]
    found = outcome(specs, need_of(20, spread=EVENLY_BY_ZONE))
    assert (found.actions, found.short) == (["Bootstrap a0", "Bootstrap a1"], {0: 11})


def test_a_zone_too_small_for_its_part_is_not_entered() -> None:
    """Two zones hold sixteen pods, and a third one with room for four would keep them at fourteen:
    only where the cluster has machines do pods have to wait for a zone.
    """
    found = outcome(zoned("aaabbc"), need_of(16, spread=EVENLY_BY_ZONE))
    assert (found.actions, found.short) == (
        [f"Bootstrap {n}" for n in ("a0", "b3", "a1", "b4")],
        {},
    )


def test_a_neighbours_pods_do_not_count_for_the_skew() -> None:
    """Each need spreads its own pods; the room beside the neighbour's is used as any other."""
    specs = [configured(zone, cpu=8, labels={ZONE: zone}) for zone in "ab"]
    in_a = pods((4, 1), requirements=(Requirement(ZONE, Operator.IN, ("a",)),), priority=1)
    found = outcome(specs, in_a, pods((4, 1), spread=EVENLY_BY_ZONE), settings=EngineConfig())
    assert found.places == {"a": {0: 4, 1: 2}, "b": {1: 2}}


def test_soft_spread_limits_no_acquisition() -> None:
    """Only hard terms limit what is acquired."""
    soft = (Spread(ZONE, 1, False),)
    assert decided(zoned("aab"), need_of(8, spread=soft)) == ["Bootstrap a0", "Bootstrap a1"]


def test_same_outranks_spread() -> None:
    """A need that requires one zone cannot be spread over zones."""
    both = need_of(8, same(ZONE), spread=EVENLY_BY_ZONE)
    assert decided(zoned("aab"), both) == ["Bootstrap a0", "Bootstrap a1"]


def test_spread_alternates_between_idle_and_speculative() -> None:
    """A machine created in the empty zone raises the minimum for the idle zone."""
    bought = speculative("b", labels={ZONE: "b"})
    assert decided([*zoned("aa"), bought], need_of(12, spread=EVENLY_BY_ZONE)) == [
        "Bootstrap a0", "Provision b", "Bootstrap a1",
    ]  # fmt: skip


def test_spread_counts_pods_and_not_machines() -> None:
    """A large machine in one zone and small ones in the other hold as many pods."""
    specs = [idle("a-large", cpu=16, labels={ZONE: "a"})]
    specs += [idle(f"b{n}", cpu=2, price=0.4, labels={ZONE: "b"}) for n in range(6)]
    found = outcome(specs, pods((12, 1), spread=EVENLY_BY_ZONE))
    assert found.places.pop("a-large") == {0: 6}
    assert (sum(here[0] for here in found.places.values()), found.short) == (6, {})


def test_evicted_pods_go_to_a_new_domain_though_others_keep_more_than_the_skew() -> None:
    """As kube-scheduler places them: of the pods that are left in zone c, none moves."""
    only = Requirement("kind", Operator.IN, ("x",))
    specs = [
        configured("b1", cpu=2, labels={ZONE: "b"}, last_claimed_by=1),
        configured("b2", cpu=2, labels={ZONE: "b", "kind": "x"}, last_claimed_by=1),
        configured("c", cpu=4, labels={ZONE: "c"}, last_claimed_by=1),
        idle("a", cpu=2, labels={ZONE: "a"}),
    ]
    higher = "west", pods((1, 2), requirements=(only,), priority=1)
    story = Story(specs, higher, ("east", pods((8, 1), spread=EVENLY_BY_ZONE)))
    assert story.cycle() == ["Bootstrap a", "Preempt b2"]
    assert story.short() == {}


@pytest.mark.parametrize(("max_skew", "in_a"), [(1, 3), (3, 5)])
def test_hard_spread_is_used_up_to_its_skew(max_skew: int, in_a: int) -> None:
    """Where one zone has room for two pods, the other may have so many more."""
    specs = [configured("a", cpu=9, labels={ZONE: "a"}), configured("b", cpu=2, labels={ZONE: "b"})]
    found = outcome(specs, pods((9, 1), spread=(Spread(ZONE, max_skew, True),)))
    assert found.places == {"a": {0: in_a}, "b": {0: 2}}
    assert found.short == {0: 9 - in_a - 2}


@pytest.mark.parametrize(
    "constraint",
    [
        {"anti_affinity": (HOSTNAME_LABEL,)},
        {"spread": (Spread(HOSTNAME_LABEL, 1, True),)},
        {"spread": EVENLY_BY_ZONE},
    ],
)
def test_a_size_that_waits_keeps_no_machines_from_smaller_ones_of_its_need(
    constraint: dict[str, tuple[object, ...]],
) -> None:
    """The only machine that holds the large pod serves another cluster, at a higher priority."""
    specs = [
        idle("a", cpu=4, labels={ZONE: "a"}),
        idle("b", cpu=4, labels={ZONE: "b"}),
        configured("huge", "west", cpu=16, labels={ZONE: "a"}, last_claimed_by=0),
    ]
    fleet = fleet_of(specs)
    small_and_large = pods((1, 16), (2, 3), **constraint)  # type: ignore[arg-type]
    demand = demand_of(fleet, [("west", pods((1, 16), priority=9)), ("east", small_and_large)])
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == ["Bootstrap a", "Bootstrap b"]
    (short,) = decision.shortfalls
    assert [(size.pods, dict(size.amounts)) for size in short.sizes] == [(1, {"cpu": 16})]


@pytest.mark.parametrize(("least", "places"), [(2, 6), (3, 2), (4, 2)])
def test_with_fewer_domains_than_min_domains_each_takes_max_skew_pods(
    least: int, places: int
) -> None:
    """The emptiest domain then counts as empty, as kube-scheduler has it."""
    specs = [configured(zone, cpu=9, labels={ZONE: zone}) for zone in "ab"]
    evenly = (Spread(ZONE, 1, True, min_domains=least),)
    found = outcome(specs, pods((6, 1), spread=evenly), settings=EngineConfig())
    assert sum(here[0] for here in found.places.values()) == places


def test_machines_are_acquired_in_as_many_domains_as_min_domains_says() -> None:
    """Though one zone has room for all."""
    specs = zoned("aaabbbccc")
    evenly = (Spread(ZONE, 1, True, min_domains=3),)
    found = outcome(specs, pods((6, 1), spread=evenly))
    assert (found.places, found.short) == ({"a0": {0: 2}, "b3": {0: 2}, "c6": {0: 2}}, {})


@pytest.mark.parametrize(("ignores", "placed"), [(False, 4), (True, 1)])
def test_a_zone_that_the_pods_may_not_use_holds_them_back_only_by_policy(
    ignores: bool, placed: int
) -> None:
    """nodeAffinityPolicy Honor leaves it out of the minimum; Ignore has it as an empty domain."""
    specs = [configured(zone, labels={ZONE: zone}) for zone in "ab"]
    in_a = (Requirement(ZONE, Operator.IN, ("a",)),)
    evenly = (Spread(ZONE, 1, True, ignores_node_affinity=ignores),)
    found = outcome(specs, pods((4, 1), requirements=in_a, spread=evenly), settings=EngineConfig())
    assert found.places == {"a": {0: placed}}


@pytest.mark.parametrize(("honors", "placed"), [(True, 4), (False, 1)])
def test_a_zone_of_tainted_machines_holds_pods_back_unless_taints_are_honored(
    honors: bool, placed: int
) -> None:
    """nodeTaintsPolicy is Ignore by default: the zone then counts as an empty domain."""
    taint = Taint("dedicated", "", "NoSchedule")
    specs = [configured("a", labels={ZONE: "a"})]
    specs += [configured("b", labels={ZONE: "b"}, taints=(taint,))]
    evenly = (Spread(ZONE, 1, True, honors_node_taints=honors),)
    found = outcome(specs, pods((4, 1), spread=evenly), settings=EngineConfig())
    assert found.places == {"a": {0: placed}}


# Anti-affinity


OVER_HOSTS = (Spread(HOSTNAME_LABEL, 1, True),)


def joined(story: Story, name: str) -> None:
    """Machine `name` is in service in east at once."""
    row = [spec.name for spec in story.specs].index(name)
    state, cluster = story.fleet.state.copy(), story.fleet.cluster.copy()
    state[row], cluster[row] = MachineState.CONFIGURED, story.fleet.clusters.index("east")
    story.fleet = replace(story.fleet, state=state, cluster=cluster)


def spread_over_hosts() -> Story:
    """Eight pods on two hosts, a tainted and a small machine for others, and free ones."""
    specs = [
        *(configured(host, disruption_cost=math.nan) for host in "ab"),
        idle("tainted", taints=(Taint("team", "x", "NoSchedule"),)),
        idle("small", cpu=1),
        *(idle(f"free{n}", labels={"pool": "new"}) for n in range(3)),
    ]
    return Story(specs, ("east", need_of(8, unit=1, spread=OVER_HOSTS)))


@pytest.mark.parametrize("host", ["tainted", "small"])
def test_pods_that_run_are_not_held_back_by_a_host_that_has_room_for_fewer(host: str) -> None:
    """By maxSkew each host may have one or two of them beside it, so a count from scratch would
    acquire a host for each of the others, though all of them run.
    """
    story = spread_over_hosts()
    assert story.cycle() == []
    joined(story, host)
    assert [story.cycle() for _ in range(3)] == [[]] * 3
    assert story.short() == {}


def test_pods_of_a_lost_host_are_held_back_by_a_closed_one() -> None:
    """They have to start again: one on each host beside the one that stays."""
    story = spread_over_hosts()
    story.cycle()
    joined(story, "tainted")
    story.cycle()
    state = story.fleet.state.copy()
    state[1] = MachineState.FAILED
    story.fleet = replace(story.fleet, state=state)
    assert story.cycle() == ["Bootstrap small", *(f"Bootstrap free{n}" for n in range(3))]
    assert story.short() == {}


def test_pods_that_are_added_are_held_back_by_a_closed_host() -> None:
    """What runs already does not change what kube-scheduler allows."""
    story = spread_over_hosts()
    story.cycle()
    joined(story, "tainted")
    story.demand = demand_of(story.fleet, [("east", need_of(10, unit=1, spread=OVER_HOSTS))])
    assert story.cycle() == ["Bootstrap small", "Bootstrap free0"]


def test_three_pods_that_repel_each_other_by_host_get_three_machines() -> None:
    """However roomy the first one is; other needs' pods may stand beside them."""
    specs = [configured("c", cpu=8), *(idle(f"i{n}", cpu=8) for n in range(4))]
    apart = pods((3, 1), anti_affinity=(HOSTNAME_LABEL,))
    found = outcome(specs, apart, pods((2, 3), group="b"), settings=EngineConfig())
    assert found.actions == ["Bootstrap i0", "Bootstrap i1"]
    assert [found.places[name][0] for name in ("c", "i0", "i1")] == [1, 1, 1]
    assert found.short == {}


def test_pods_that_repel_each_other_by_zone_get_a_zone_each() -> None:
    """They are short if zones run out, and acquire no needless machines."""
    found = outcome(zoned("aabbb"), pods((4, 1), anti_affinity=(ZONE,)))
    assert (found.actions, found.short) == (["Bootstrap a0", "Bootstrap b2"], {0: 2})


def test_a_need_spreads_over_zones_and_hosts_at_once() -> None:
    """Each machine takes one pod, and the zones stay even."""
    specs = zoned("aaabbb")
    both = pods((4, 1), spread=EVENLY_BY_ZONE, anti_affinity=(HOSTNAME_LABEL,))
    found = outcome(specs, both)
    assert (sorted(found.places), found.short) == (["a0", "a1", "b3", "b4"], {})


# Gangs of several sizes


def test_a_gang_of_mixed_sizes_shares_one_rack() -> None:
    """Its large leader counts by its own size, not by that of the workers."""
    specs = [racked("a0", "a", cpu=8), *(racked(f"a{n}", "a") for n in (1, 2))]
    specs += [racked(f"b{n}", "b", price=0.1) for n in range(9)]
    gang = pods((1, 7), (4, 2), requirements=(same(),))
    found = outcome(specs, gang)
    assert found.places == {"a0": {0: 1}, "a1": {0: 2}, "a2": {0: 2}}


def test_one_member_too_many_for_a_rack_moves_the_whole_gang() -> None:
    """A rack counts by what its machines hold one by one, not by their sum."""
    specs = [*(racked(f"a{n}", "a", cpu=4) for n in range(3)), racked("b0", "b", cpu=6, price=9)]
    specs += [racked("b1", "b", cpu=6, price=9)]
    found = outcome(specs, pods((4, 3), requirements=(same(),)))
    assert found.places == {"b0": {0: 2}, "b1": {0: 2}}


def test_a_gang_whose_members_repel_each_other_gets_a_machine_each_in_one_rack() -> None:
    """A roomy rack of two machines is too small for three of them."""
    specs = [*(racked(f"a{n}", "a", cpu=64, price=0.1) for n in range(2))]
    specs += [racked(f"b{n}", "b", cpu=9) for n in range(4)]
    apart = pods((3, 1), requirements=(same(),), anti_affinity=(HOSTNAME_LABEL,))
    assert outcome(specs, apart).places == {"b0": {0: 1}, "b1": {0: 1}, "b2": {0: 1}}
