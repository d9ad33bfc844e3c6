"""How many pods of a need that is short one more machine of a flavour would serve."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from bigfleet.engine.explain.shortfall_report import report
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.labels import HOSTNAME_LABEL
from bigfleet.model.need import Need, Operator, Requirement, Spread
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import EVENLY_BY_ZONE, ZONE, configured
from tests.engine.engine_story import Story

_WEST = {"a": 1.0, "b": 1.0, "c": 3.0}


def _served(*needs: Need, east: str = "", ceiling: Ceiling | None = None) -> dict[str, int]:
    """By zone, how many unplaced pods of `needs` one more machine of 8 CPU would serve. East has a
    machine in each of the zones `east`, west in all three.
    """
    others = [
        configured(f"w-{zone}", "west", cpu=8, price=price, labels={ZONE: zone})
        for zone, price in _WEST.items()
    ]
    its = [configured(f"e-{zone}", cpu=8, labels={ZONE: zone}) for zone in east]
    story = Story([*others, *its], *(("east", need) for need in needs), ("west", pods((3, 8))))
    if ceiling is not None:
        number = story.fleet.clusters.index("east")
        story.demand = replace(story.demand, ceilings={number: ceiling})
    story.cycle()
    (row,) = report(story.fleet, story.demand, story.decision).rows
    pods_in = dict(
        zip(story.fleet.flavour.tolist(), (spec.labels[ZONE] for spec in story.specs), strict=True)
    )
    return {zone: int(row.pods_per_machine[number]) for number, zone in pods_in.items()}


def test_an_empty_machine_serves_what_fits_on_it() -> None:
    assert _served(pods((9, 4))) == {"a": 2, "b": 2, "c": 2}


@pytest.mark.parametrize(
    ("ceiling", "served"),
    [
        (Ceiling(machines=2), {"a": 2, "b": 2, "c": 2}),
        (Ceiling(machines=1), {"a": 0, "b": 0, "c": 0}),
        (Ceiling(dollars_per_hour=3.0), {"a": 2, "b": 2, "c": 0}),
        (Ceiling(machines=math.inf), {"a": 2, "b": 2, "c": 2}),
    ],
)
def test_a_machine_that_the_ceiling_would_withhold_serves_nothing(
    ceiling: Ceiling, served: dict[str, int]
) -> None:
    """East has one machine, of $1 an hour."""
    assert _served(pods((9, 4)), east="a", ceiling=ceiling) == served


def test_where_pods_that_keep_apart_have_one_a_machine_serves_nothing() -> None:
    apart = pods((5, 2), anti_affinity=(ZONE,))
    assert _served(apart, east="a") == {"a": 0, "b": 1, "c": 1}


def test_a_machine_serves_one_of_the_pods_that_keep_apart_by_host() -> None:
    apart = pods((5, 2), anti_affinity=(HOSTNAME_LABEL,))
    assert _served(apart, east="a") == {"a": 1, "b": 1, "c": 1}


def test_a_domain_with_max_skew_pods_more_than_the_fewest_is_full() -> None:
    """Zone b serves a higher priority. Without it zone a, where one pod is, could have another."""
    in_b = Requirement(ZONE, Operator.IN, ("b",))
    first = pods((1, 8), requirements=(in_b,), priority=9)
    evenly = pods((2, 8), spread=EVENLY_BY_ZONE)
    assert _served(first, evenly, east="ab") == {"a": 0, "b": 1, "c": 1}
    assert _served(evenly, east="a") == {"a": 1, "b": 1, "c": 1}


def test_with_fewer_domains_than_min_domains_each_has_max_skew_pods() -> None:
    three = Spread(ZONE, 1, True, min_domains=3)
    assert _served(pods((5, 2), spread=(three,)), east="ab") == {"a": 0, "b": 0, "c": 4}


def test_what_would_serve_one_of_several_needs_helps() -> None:
    """Each has one pod in its own zone."""
    needs = [pods((2, 8), spread=EVENLY_BY_ZONE, group=f"[{n}]") for n in range(2)]
    assert _served(*needs, east="ab") == {"a": 1, "b": 1, "c": 1}
