"""Clusters with gangs that fit on one machine have one machine more than these need."""

from __future__ import annotations

from bigfleet.engine.fit.normalise import normalise
from bigfleet.engine.snapshot import NONE, EngineConfig
from bigfleet.model.need import Need
from tests.engine.engine_rig import (
    DONE,
    NOW,
    RACK,
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
AT_ONCE = EngineConfig(reclaim_cap_fraction=1.0, reclaim_hold_seconds=0.0)


def gangs(count: int, size: int = 2, cluster: str = "east", priority: int = 0) -> list[Asked]:
    """Gangs of pods of one CPU; machines have four unless something else is said."""
    return [
        (cluster, need_of(size, same(), unit=1, group=f"{cluster}-{size}-{n}", priority=priority))
        for n in range(count)
    ]


def story(specs: list[Spec], *needs: Asked, settings: EngineConfig = AT_ONCE) -> Story:
    """A story under demand as it is served."""
    fleet = fleet_of(specs)
    folded = normalise(fleet, demand_of(fleet, needs))
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


def test_it_may_be_bought() -> None:
    """What is on its way is not bought twice."""
    free = [speculative(f"p{n}", labels=IN_A) for n in range(3)]
    ongoing = story([idle("m", labels=IN_A), *free], *gangs(2))
    assert ongoing.cycle() == ["Bootstrap m", "Provision p0"]
    assert [ongoing.cycle() for _ in range(3)] == [[]] * 3


def test_of_surplus_machines_one_stays() -> None:
    """It need not be acquired again."""
    ongoing = story(surplus(4), *gangs(1, size=4))
    assert ongoing.settle() == ["Reclaim s2", "Reclaim s3"]


def test_gangs_of_all_sizes_share_one() -> None:
    """Room for the largest is room for any."""
    ongoing = story(idles(6), *gangs(1, size=2), *gangs(1, size=3))
    assert len(ongoing.cycle()) == 3


def test_each_cluster_has_its_own() -> None:
    """The scheduler of one cannot use the other's."""
    ongoing = story(idles(6), *gangs(1), *gangs(1, cluster="west"))
    assert len(ongoing.cycle()) == 4


def test_everybody_else_is_served_first() -> None:
    """Also who comes later in order."""
    ongoing = story(idles(2), *gangs(1, priority=5), ("west", need_of(4)))
    assert ongoing.cycle() == ["Bootstrap m0", "Bootstrap m1"]
    assert ongoing.short() == {}


def test_whoever_lacks_a_machine_may_use_the_one_ahead() -> None:
    """It is there, after all; the gangs then have another one ahead, if there is one."""
    ahead = configured("s1", labels=IN_A, ahead=True)
    for more, orders in (([], []), (idles(1), ["Bootstrap m0"])):
        ongoing = story([*surplus(1), ahead, *more], *gangs(1, size=4), ("east", need_of(4)))
        assert (ongoing.cycle(), ongoing.short()) == (orders, {})


def test_where_there_is_none_nobody_is_evicted_and_nothing_is_short() -> None:
    """Being ahead is no need."""
    batch = configured("batch", "west", labels=IN_A, last_claimed_by=1, last_priority=-5)
    ongoing = story([idle("m", labels=IN_A), batch], *gangs(1), ("west", need_of(4, priority=-5)))
    assert ongoing.cycle() == ["Bootstrap m"]
    assert ongoing.short() == {}


def test_a_gang_that_is_short_has_nothing_ahead() -> None:
    """A machine that does not serve it cannot be spared for it either."""
    small = [idle(f"m{n}", cpu=2, labels=IN_A) for n in range(2)]
    ongoing = story(small, *gangs(5))
    assert len(ongoing.cycle()) == 2
    assert ongoing.decision.headroom == frozenset()
    assert ongoing.short() == {0: {"cpu": 6}}


def test_who_outranks_the_gangs_may_have_it() -> None:
    """As it may have any surplus machine."""
    for priority, orders in ((0, []), (1, ["Reclaim s1"])):
        needs = [*gangs(1, size=4), ("west", need_of(4, priority=priority))]
        needs.sort(key=lambda asked: -asked[1].profile.priority)
        specs = [
            configured(f"s{n}", labels=IN_A, idle_since=NOW, last_claimed_by=NONE) for n in range(2)
        ]
        assert story(specs, *needs).cycle(DONE) == orders


def test_with_the_gangs_gone_it_goes() -> None:
    ongoing = story(surplus(2))
    assert ongoing.settle() == ["Reclaim s0", "Reclaim s1"]


def test_a_gang_of_several_machines_has_none_ahead() -> None:
    """Its machines are chosen together, and it waits for them as a whole."""
    ongoing = story(idles(4), *gangs(1, size=8))
    assert len(ongoing.cycle()) == 2
