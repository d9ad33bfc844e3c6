"""Max moves to where it is needed, from where it is not needed or cannot be used."""

from __future__ import annotations

from bigfleet.fedhpa.shares import Share
from tests.fedhpa.fleet_model import settled


def _max(sim: object) -> dict[str, int]:
    return {name: share.max for name, share in sim.shares().items()}  # type: ignore[attr-defined]


def test_a_spike_in_one_cluster_gets_all_the_slack_that_bounds_allow_in_one_pass() -> None:
    """Others keep what they run and the headroom, here one replica each."""
    sim = settled((6, 60), {"a": (2, 20), "b": (2, 20), "c": (2, 20)})
    sim.cluster("a").load = 500.0
    for _ in range(5):  # its HPA has doubled up to its limit
        assert not sim.reconcile().writes or _max(sim) == {"a": 54, "b": 3, "c": 3}
    assert _max(sim) == {"a": 54, "b": 3, "c": 3}
    assert len({moment for moment, _ in sim.moves}) == 1


def test_what_is_missing_comes_in_one_step_and_not_replica_by_replica() -> None:
    sim = settled((2, 40), {"a": (1, 20), "b": (1, 20)})
    sim.cluster("a").load, sim.cluster("a").desired = 30.0, 20
    sim.reconcile()
    assert _max(sim) == {"a": 33, "b": 7}  # the 30 that it wants, and the headroom of 10 %


def test_two_at_their_limit_share_what_there_is_in_proportion_to_what_they_lack() -> None:
    sim = settled((3, 30), {"a": (1, 10), "b": (1, 10), "c": (1, 10)}, headroom_percent=0)
    for name, load in (("a", 15.0), ("b", 11.0)):
        sim.cluster(name).load, sim.cluster(name).desired = load, 10
    sim.reconcile()
    assert _max(sim) == {"a": 16, "b": 12, "c": 2}


def test_steady_load_within_the_limits_moves_nothing() -> None:
    sim = settled((4, 20), {"a": (2, 10), "b": (2, 10)})
    sim.cluster("a").load = 9.0
    assert sim.run(3600.0) == 0


def test_new_hpas_neither_give_nor_take_whatever_their_status() -> None:
    """The former federation took the max of HPAs that had not read their target yet."""
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    a, b = sim.cluster("a"), sim.cluster("b")
    a.load, a.desired, b.created_at = 50.0, 10, sim.now
    assert sim.run(105.0) == 0
    sim.reconcile()
    assert _max(sim) == {"a": 18, "b": 2}


def test_a_cluster_without_metrics_keeps_its_share() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    sim.cluster("a").load, sim.cluster("a").desired = 50.0, 10
    sim.cluster("b").measuring = False
    assert sim.run(3600.0) == 0


def test_what_was_given_is_kept_for_the_cool_down() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    a, b = sim.cluster("a"), sim.cluster("b")
    a.load, a.desired = 14.0, 10
    sim.reconcile()
    assert _max(sim) == {"a": 16, "b": 4}
    a.load = b.load = 4.0
    a.desired = b.desired = 4
    b.load = 12.0
    assert sim.run(105.0) == 0
    sim.reconcile()
    assert _max(sim) == {"a": 6, "b": 14}


def test_load_that_swings_by_less_than_the_headroom_moves_nothing() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    a, b = sim.cluster("a"), sim.cluster("b")
    a.load, a.desired = 12.0, 10
    sim.run(600.0)
    before = len(sim.moves)
    for turn in range(100):
        a.load, b.load = (12.0, 4.0) if turn % 2 else (13.0, 5.0)
        sim.reconcile(30.0)
    assert len(sim.moves) == before


def test_what_a_cluster_cannot_schedule_moves_to_one_that_can() -> None:
    """Current below desired is the second reason to lower max."""
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    a, b = sim.cluster("a"), sim.cluster("b")
    a.load, a.capacity, b.load = 10.0, 4, 30.0
    assert sim.run(150.0) <= 1
    sim.run(120.0)
    assert _max(sim) == {"a": 4, "b": 16}


def test_a_cluster_that_still_finds_nodes_is_not_called_full() -> None:
    """BigFleet may be bringing machines one after the other."""
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    a, b = sim.cluster("a"), sim.cluster("b")
    a.load, a.desired, b.load, b.desired = 10.0, 10, 30.0, 10
    for capacity in range(1, 10):
        a.capacity = capacity
        sim.run(150.0)
    assert _max(sim) == {"a": 10, "b": 10}


def test_a_full_cluster_is_tried_again_only_after_the_retry_time() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    a, b = sim.cluster("a"), sim.cluster("b")
    a.load, a.capacity, b.load = 10.0, 4, 30.0
    sim.run(300.0)
    b.load, b.desired = 2.0, 2
    moved = len(sim.moves)
    sim.run(300.0)
    assert len(sim.moves) == moved
    a.capacity = 100
    sim.run(300.0)
    assert _max(sim)["a"] > 10


def test_max_never_falls_below_min_in_a_donor() -> None:
    sim = settled((10, 20), {"a": (1, 10), "b": (9, 10)})
    sim.cluster("b").load = 0.0
    sim.cluster("a").load, sim.cluster("a").desired = 50.0, 10
    sim.reconcile()
    assert sim.shares()["b"].max >= sim.shares()["b"].min


def test_no_thrash_between_two_that_both_want_everything() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    for each in sim.clusters:
        each.load = 100.0
    assert sim.run(7200.0) == 0


def test_equal_input_gives_equal_writes() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    sim.cluster("a").load, sim.cluster("a").desired = 30.0, 10
    assert sim.plan() == sim.plan()
    assert sim.shares()["a"] == Share(1, 10)
