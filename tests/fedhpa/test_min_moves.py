"""Min moves from where it is idle to where more runs."""

from __future__ import annotations

from bigfleet.fedhpa.shares import ClusterBounds
from tests.fedhpa.fleet_model import SimFleet, settled


def _min(sim: SimFleet) -> dict[str, int]:
    return {name: share.min for name, share in sim.shares().items()}


def _idle_and_busy(**settings: float) -> SimFleet:
    sim = settled((10, 40), {"idle": (5, 20), "busy": (5, 20)}, **settings)
    sim.cluster("idle").load = 1.0  # 20 % of what its five replicas could take
    sim.cluster("busy").load, sim.cluster("busy").desired = 12.0, 12
    return sim


def test_min_moves_in_one_step_to_where_more_than_min_runs() -> None:
    sim = _idle_and_busy()
    sim.reconcile()
    assert _min(sim) == {"idle": 1, "busy": 9}


def test_usage_above_the_threshold_keeps_min_where_it_is() -> None:
    sim = _idle_and_busy(min_usage_percent=20)
    assert sim.run(3600.0) == 0


def test_a_threshold_of_zero_leaves_min_alone() -> None:
    assert _idle_and_busy(min_usage_percent=0).run(3600.0) == 0


def test_no_cluster_gives_up_min_when_none_runs_more() -> None:
    sim = _idle_and_busy()
    sim.cluster("busy").load, sim.cluster("busy").desired = 5.0, 5
    assert sim.run(3600.0) == 0


def test_a_preferred_min_is_never_given_away() -> None:
    sim = _idle_and_busy()
    sim.cluster("idle").bounds = ClusterBounds(3)
    sim.reconcile()
    assert _min(sim) == {"idle": 3, "busy": 7}


def test_min_is_raised_in_one_cluster_before_it_is_lowered_in_the_other() -> None:
    sim = _idle_and_busy()
    assert [write.cluster for write in sim.plan().writes] == ["busy", "idle"]


def test_min_returns_when_the_load_does_but_not_within_the_cool_down() -> None:
    sim = _idle_and_busy()
    sim.reconcile()
    idle, busy = sim.cluster("idle"), sim.cluster("busy")
    busy.load, idle.load = 1.0, 12.0
    sim.reconcile()
    assert _min(sim) == {"idle": 1, "busy": 9}
    sim.run(300.0)
    assert _min(sim)["idle"] > 1
    assert sum(_min(sim).values()) == 10
