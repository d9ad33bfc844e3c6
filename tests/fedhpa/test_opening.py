"""A further cluster is opened for a spike that those in use cannot take, and closed after it."""

from __future__ import annotations

from bigfleet.fedhpa.shares import ClusterBounds, Share
from tests.fedhpa.fleet_model import SimFleet, fleet, settled


def _on_premise_first(**settings: float) -> SimFleet:
    """Use case 3: min = 1, so that only the preferred cluster is used at first."""
    sim = fleet((1, 20), "onprem", "cloud", "other", **settings)
    sim.cluster("onprem").load = 5.0
    sim.run(600.0)
    assert sim.shares() == {"onprem": Share(1, 20)}
    return sim


def test_a_spike_beyond_the_on_premise_capacity_spills_over() -> None:
    sim = _on_premise_first()
    onprem = sim.cluster("onprem")
    onprem.capacity, onprem.load = 8, 16.0
    sim.run(300.0)
    assert sim.shares() == {"onprem": Share(1, 8), "cloud": Share(1, 12)}


def test_a_spike_beyond_the_preferred_max_spills_over() -> None:
    sim = _on_premise_first()
    onprem = sim.cluster("onprem")
    onprem.bounds = ClusterBounds(0, 8)
    sim.run(60.0)
    assert sim.shares() == {"onprem": Share(1, 8)}
    onprem.load = 16.0
    sim.run(60.0)
    assert sim.shares() == {"onprem": Share(1, 8), "cloud": Share(1, 12)}


def test_nothing_is_opened_while_one_in_use_has_capacity() -> None:
    sim = settled((2, 20), {"a": (1, 10), "b": (1, 10)})
    sim.clusters += fleet((1, 1), "c").clusters
    sim.cluster("a").load, sim.cluster("a").capacity = 30.0, 4
    sim.run(7200.0)
    assert set(sim.shares()) == {"a", "b"}


def test_nothing_is_opened_when_all_of_max_is_in_use() -> None:
    sim = _on_premise_first()
    sim.cluster("onprem").load = 50.0
    sim.run(3600.0)
    assert sim.shares() == {"onprem": Share(1, 20)}


def test_one_at_a_time_is_opened_and_given_time() -> None:
    sim = _on_premise_first()
    for each in sim.clusters:
        each.capacity, each.load = 4, 20.0
    sim.run(270.0)
    assert set(sim.shares()) == {"onprem", "cloud"}
    sim.run(600.0)
    assert set(sim.shares()) == {"onprem", "cloud", "other"}


def test_an_idle_one_is_closed_after_its_time_and_gives_all_back() -> None:
    sim = _on_premise_first()
    onprem, cloud = sim.cluster("onprem"), sim.cluster("cloud")
    onprem.capacity, onprem.load, cloud.load = 8, 12.0, 5.0
    sim.run(600.0)
    assert set(sim.shares()) == {"onprem", "cloud"}
    onprem.load, cloud.load = 5.0, 0.5
    sim.run(500.0)
    assert set(sim.shares()) == {"onprem", "cloud"}
    sim.run(400.0)
    assert sim.shares() == {"onprem": Share(1, 20)}


def test_one_that_can_place_nothing_is_left_again_and_the_next_is_tried() -> None:
    sim = _on_premise_first()
    onprem = sim.cluster("onprem")
    onprem.capacity, onprem.load, sim.cluster("cloud").capacity = 8, 16.0, 0
    sim.run(900.0)
    assert set(sim.shares()) == {"onprem", "other"}


def test_load_that_only_the_full_cluster_has_does_not_make_clusters_come_and_go() -> None:
    sim = _on_premise_first()
    onprem = sim.cluster("onprem")
    onprem.capacity, onprem.load = 8, 16.0
    sim.run(7200.0)
    before = len(sim.moves)
    sim.run(36000.0)
    assert len(sim.moves) == before


def test_without_rebalancing_nothing_is_opened_or_moved() -> None:
    sim = _on_premise_first(enabled=False)
    sim.cluster("onprem").capacity, sim.cluster("onprem").load = 8, 16.0
    assert sim.run(7200.0) == 0
