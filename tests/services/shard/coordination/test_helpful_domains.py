"""Which domains of other shards a shard names with a shortfall."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.engine.explain.shortfall_report import ShortfallGroup
from bigfleet.engine.snapshot import Flavour
from bigfleet.model.domain import Domain
from bigfleet.model.report_limits import MAX_FREE_DOMAINS
from bigfleet.services.shard.coordination.helpful_domains import (
    OthersFreeMachines,
)
from bigfleet.services.shard.records.views import FreeMachines
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import RACK, ZONE, same
from tests.services.shard.coordination.shortfall_rig import short_of


def _free(flavour: Flavour, domain: str, idle: int, speculative: int = 0) -> FreeMachines:
    return FreeMachines(0, flavour, Domain(RACK, domain), idle, speculative)


def _helpful(
    short: ShortfallGroup, flavour: Flavour, *free: FreeMachines
) -> list[wire.HelpfulDomain]:
    return OthersFreeMachines(free, [flavour]).helpful_to(short)


def test_a_domain_counts_by_the_pods_that_its_free_machines_hold() -> None:
    """Two of 4 CPU each; those with idle machines first, and then the largest."""
    row, flavour = short_of(pods((3, 4)))
    free = (
        _free(flavour, "new", 0, 2),
        _free(flavour, "idle", 1, 2),
        _free(flavour, "larger", 0, 9),
    )
    found = _helpful(row, flavour, *free)
    assert [
        (
            each.topology_value,
            each.idle_machines,
            each.free_machines,
            each.idle_pods,
            each.free_pods,
        )
        for each in found
    ] == [("idle", 1, 3, 2, 6), ("larger", 0, 9, 0, 18), ("new", 0, 2, 0, 4)]


@pytest.mark.parametrize("cycles", [1, 5])
def test_a_young_shortfall_names_none(cycles: int) -> None:
    row, flavour = short_of(pods((3, 4)), cycles)
    assert _helpful(row, flavour, _free(flavour, "r1", 1)) == []


def test_machines_that_no_unplaced_pod_fits_on_do_not_count() -> None:
    row, flavour = short_of(pods((1, 9), (1, 8)))
    small = replace(flavour, allocatable={**flavour.allocatable, "cpu": 7})
    assert [each.free_pods for each in _helpful(row, flavour, _free(flavour, "r1", 1))] == [1]
    assert _helpful(row, flavour, _free(small, "r1", 1)) == []


def test_a_gang_names_only_domains_of_its_key_that_hold_all_of_it() -> None:
    row, flavour = short_of(pods((4, 4), requirements=(same(),), group="gang"))
    in_zone = FreeMachines(0, flavour, Domain(ZONE, "z"), 9, 0)
    free = _free(flavour, "small", 1), _free(flavour, "right", 1, 1), in_zone
    assert [each.topology_value for each in _helpful(row, flavour, *free)] == ["right"]


def test_flavours_that_the_decision_did_not_know_are_left_out() -> None:
    """The inventory may have renumbered them since; the next report has them."""
    row, flavour = short_of(pods((3, 4)))
    other = replace(flavour, price_per_hour=flavour.price_per_hour + 1)
    assert _helpful(row, flavour, _free(other, "r1", 1)) == []
    assert _helpful(row, flavour, _free(flavour, "r1", 1)._replace(number=1)) == []


def test_the_ten_best_domains_are_named() -> None:
    row, flavour = short_of(pods((3, 4)))
    free = [_free(flavour, f"r{number}", number) for number in range(1, 31)]
    found = _helpful(row, flavour, *free)
    assert len(found) == MAX_FREE_DOMAINS
    assert [each.idle_machines for each in found] == list(range(30, 20, -1))


def test_of_a_lasting_shortfall_each_domain_has_its_turn() -> None:
    """The best may be of a shard that is down; the coordinator knows, this shard does not."""
    row, flavour = short_of(pods((3, 4)))
    free = [_free(flavour, f"r{number:02}", number) for number in range(1, 31)]
    best = [f"r{number:02}" for number in range(30, 20, -1)]
    named: set[str] = set()
    for age in range(6, 200, 2):
        found = _helpful(replace(row, age_cycles=age), flavour, *free)
        names = [each.topology_value for each in found]
        assert len(set(names)) == MAX_FREE_DOMAINS
        assert names[:5] == best[:5]
        assert names == best or age >= 60
        named |= set(names)
    assert len(named) == 30
