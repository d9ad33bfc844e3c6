"""Clusters with gangs that fit on one machine have one machine more than these need."""

from __future__ import annotations

from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.need import Need
from tests.engine.engine_rig import (
    DONE,
    NOW,
    RACK,
    UNLIMITED,
    Spec,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
)
from tests.engine.engine_story import Story

Asked = tuple[str, Need]
IN_A = {RACK: "a"}


def gangs(count: int, size: int = 2, cluster: str = "east", priority: int = 0) -> list[Asked]:
    """Gangs of pods of one CPU; machines have four unless something else is said."""
    return [
        (cluster, need_of(size, same(), unit=1, group=f"{cluster}-{size}-{n}", priority=priority))
        for n in range(count)
    ]


def story(specs: list[Spec], *needs: Asked, settings: EngineConfig = UNLIMITED) -> Story:
    """A story under demand as it is served."""
    fleet = fleet_of(specs)
    folded = fold(fleet, demand_of(fleet, needs)).demand
    clusters = [fleet.clusters[number] for number in folded.cluster.tolist()]
    return Story(specs, *zip(clusters, folded.needs, strict=True), settings=settings)


def idles(count: int) -> list[Spec]:
    return [idle(f"m{n}", labels=IN_A) for n in range(count)]


def surplus(count: int) -> list[Spec]:
    return [configured(f"s{n}", labels=IN_A, idle_since=0.0) for n in range(count)]


def test_one_machine_more_than_small_gangs_need_is_acquired() -> None:
    """Two gangs of two fill a machine of four, and a third gang finds an empty one."""
    ongoing = story(idles(4), *gangs(2))
    assert ongoing.cycle() == ["Bootstrap m0", "Bootstrap m1"]
    ongoing.arrive()
    assert [ongoing.cycle() for _ in range(3)] == [[]] * 3


def test_headroom_may_be_speculative() -> None:
    """A machine on its way is not created twice."""
    free = [speculative(f"p{n}", labels=IN_A) for n in range(3)]
    ongoing = story([idle("m", labels=IN_A), *free], *gangs(2))
    assert ongoing.cycle() == ["Bootstrap m", "Provision p0"]
    assert [ongoing.cycle() for _ in range(3)] == [[]] * 3


def test_one_surplus_machine_stays_as_headroom() -> None:
    """It need not be acquired again."""
    ongoing = story(surplus(4), *gangs(1, size=4))
    assert ongoing.settle() == ["Reclaim s2", "Reclaim s3"]


def test_a_machine_that_would_be_released_stays_as_headroom() -> None:
    """The pods on `a` fit on `b` as well: `a` becomes headroom, and `m` is not acquired for it."""
    in_service = [configured(name, labels=IN_A, last_claimed_by=n) for n, name in enumerate("abg")]
    pods = [("east", need_of(cpu, unit=cpu, priority=cpu)) for cpu in (2, 1)]
    ongoing = story([*in_service, idle("m", labels=IN_A)], *pods, *gangs(1, size=4))
    assert ongoing.cycle() == []
    assert ongoing.decision.headroom == {0}


def test_headroom_for_small_gangs_goes_once_larger_ones_have_theirs() -> None:
    """Both would do for a small gang; one of them is enough."""
    small = configured("small", cpu=2, labels=IN_A, headroom=True)
    needs = [*gangs(1, size=4, priority=1), *gangs(1, size=2)]
    ongoing = story([small, *surplus(3)], *needs)
    assert ongoing.cycle() == []
    assert ongoing.settle() == ["Reclaim small"]
    assert len(ongoing.decision.headroom) == 1


def test_gangs_of_all_sizes_share_one() -> None:
    """Room for the largest is room for any."""
    ongoing = story(idles(6), *gangs(1, size=2), *gangs(1, size=3))
    assert len(ongoing.cycle()) == 3


def test_each_cluster_has_its_own() -> None:
    """The scheduler of one cannot use the other's."""
    ongoing = story(idles(6), *gangs(1), *gangs(1, cluster="west"))
    assert len(ongoing.cycle()) == 4


def test_all_other_needs_are_served_before_headroom() -> None:
    """Also those later in order."""
    ongoing = story(idles(2), *gangs(1, priority=5), ("west", need_of(4)))
    assert ongoing.cycle() == ["Bootstrap m0", "Bootstrap m1"]
    assert ongoing.short() == {}


def test_a_need_that_is_short_may_use_the_headroom() -> None:
    """The gangs then get another one, if there is one."""
    headroom = configured("s1", labels=IN_A, headroom=True)
    for more, orders in (([], []), (idles(1), ["Bootstrap m0"])):
        ongoing = story([*surplus(1), headroom, *more], *gangs(1, size=4), ("east", need_of(4)))
        assert (ongoing.cycle(), ongoing.short()) == (orders, {})


def test_a_gang_over_several_machines_counts_the_headroom_of_its_cluster() -> None:
    """In its rack one more machine completes the gang, in another one two."""
    specs = [
        *surplus(1),
        configured("h", labels=IN_A, headroom=True),
        idle("m", labels=IN_A),
        *(idle(f"n{n}", labels={RACK: "b"}, price=0.5) for n in range(2)),
    ]
    ongoing = story(specs, *gangs(1, size=4), ("east", need_of(8, same(), unit=4, group="large")))
    assert "Bootstrap m" in ongoing.cycle()


def test_missing_headroom_evicts_no_pods_and_is_no_shortfall() -> None:
    """Headroom is not demand."""
    batch = configured("batch", "west", labels=IN_A, last_claimed_by=1, last_priority=-5)
    ongoing = story([idle("m", labels=IN_A), batch], *gangs(1), ("west", need_of(4, priority=-5)))
    assert ongoing.cycle() == ["Bootstrap m"]
    assert ongoing.short() == {}


def test_a_gang_that_is_short_has_no_headroom() -> None:
    """A machine that cannot serve it is no headroom for it either."""
    small = [idle(f"m{n}", cpu=2, labels=IN_A) for n in range(2)]
    ongoing = story(small, *gangs(5))
    assert len(ongoing.cycle()) == 2
    assert ongoing.decision.headroom == frozenset()
    assert ongoing.short() == {0: {"cpu": 6}}


def test_a_higher_priority_may_take_the_headroom() -> None:
    """As it may have any surplus machine."""
    for priority, orders in ((0, []), (1, ["Reclaim s1"])):
        needs = [*gangs(1, size=4), ("west", need_of(4, priority=priority))]
        needs.sort(key=lambda asked: -asked[1].profile.priority)
        specs = [
            configured(f"s{n}", labels=IN_A, idle_since=NOW, last_claimed_by=NONE) for n in range(2)
        ]
        assert story(specs, *needs).cycle(DONE) == orders


def test_without_gangs_the_headroom_is_reclaimed() -> None:
    ongoing = story(surplus(2))
    assert ongoing.settle() == ["Reclaim s0", "Reclaim s1"]


def test_a_gang_of_several_machines_has_no_headroom() -> None:
    """Its machines are chosen together, and it waits for them as a whole."""
    ongoing = story(idles(4), *gangs(1, size=8))
    assert len(ongoing.cycle()) == 2
