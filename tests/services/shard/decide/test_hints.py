"""Hints to clusters: what free capacity is told, and when it is told again."""

from __future__ import annotations

import pytest

from bigfleet.api.v1alpha1 import shard_pb2
from bigfleet.services.shard.decide.hints import CapacityHints, HintsByNeed, _rounded


def hints(count: int, clusters: int = 2) -> HintsByNeed:
    """One hint that is the same for all clusters."""
    hint = shard_pb2.AvailableCapacityUpdate(supersedes_key="capacity:p", available_count=count)
    return {(f"c{number}", "p"): hint for number in range(clusters)}


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, 0), (7, 7), (99, 99), (101, 100), (12_345, 12_000), (2**40, 2**31 - 1)],
)
def test_a_count_is_told_to_two_digits(count: int, told: int) -> None:
    """Of many free machines some come and go all the time; a cluster needs the magnitude."""
    assert _rounded(count) == told


def test_all_clusters_are_told_and_told_again_only_what_has_changed() -> None:
    told = CapacityHints()
    connected = ["c0", "c1"]
    assert [cluster for cluster, _ in told.changes(hints(3), connected)] == connected
    assert [*told.changes(hints(3), connected)] == []
    assert [cluster for cluster, _ in told.changes(hints(4), connected)] == connected


def test_a_cluster_that_comes_back_is_told_everything_and_others_nothing() -> None:
    told = CapacityHints()
    assert len([*told.changes(hints(3), ["c0", "c1"])]) == 2
    told.forget("c1")
    assert [cluster for cluster, _ in told.changes(hints(3), ["c0", "c1"])] == ["c1"]


def test_a_hint_is_withdrawn_from_the_clusters_that_had_it() -> None:
    told = CapacityHints()
    assert len([*told.changes(hints(3, clusters=1), ["c0", "c1"])]) == 1
    [(cluster, message)] = told.changes({}, ["c0", "c1"])
    assert cluster == "c0"
    assert message.available_capacity.withdrawn
