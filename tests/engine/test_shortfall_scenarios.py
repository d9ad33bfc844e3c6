"""Shortfalls: ages, reasons, explanations and reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.explain.shortfall_report import report
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.model import penalty
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need, Operator, Requirement, Size
from bigfleet.model.report_limits import MAX_SHORTFALLS
from tests.engine.engine_pods import daemons, pods
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    NOW,
    RACK,
    ZONE,
    Spec,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    zoned,
)
from tests.engine.engine_story import Story

IN_Z = Requirement(ZONE, Operator.IN, ("z",))


def test_a_shortfall_ages_by_the_cycle_and_ends_with_its_cause() -> None:
    """Six cycles in a row are six; a cycle without begins anew."""
    story = Story([], ("east", need_of(4)))
    for age in range(1, 7):
        story.cycle()
        (shortfall,) = story.decision.shortfalls
        assert (shortfall.age_cycles, shortfall.since_seconds) == (age, story.now - age)
    relieved = fleet_of([idle("i")])
    story.specs, story.fleet = [idle("i")], relieved
    story.cycle()
    assert (story.short(), story.cycle_memory.shortfall_ages) == ({}, ())


def test_clusters_age_apart_and_gangs_of_one_profile_are_reported_together() -> None:
    """The same profile in two clusters is two rows; a row counts its needs, and is as old as the
    oldest of them."""
    needs = [("east", need_of(4)), ("west", need_of(4)), ("west", need_of(3, group="g"))]
    story = Story([], *needs[:2])
    story.cycle()
    story.demand = demand_of(story.fleet, needs)
    story.cycle()
    rows = report(story.fleet, story.demand, story.decision).rows
    assert [(r.cluster, r.needs, r.deficit, r.age_cycles) for r in rows] == [
        ("east", 1, {"cpu": 4}, 2), ("west", 2, {"cpu": 7}, 2),
    ]  # fmt: skip


def test_the_most_urgent_hundred_are_reported_and_other_old_ones_counted() -> None:
    """By priority, then by age; nothing that lasts is invisible."""
    story = Story([], *(("east", need_of(4, priority=-n)) for n in range(150)))
    for _ in range(5):
        story.cycle()
    assert report(story.fleet, story.demand, story.decision).unreported == 0
    story.cycle()
    found = report(story.fleet, story.demand, story.decision)
    assert [row.profile.priority for row in found.rows] == [-n for n in range(MAX_SHORTFALLS)]
    assert found.unreported == 50


def test_a_row_says_all_that_others_need_to_help() -> None:
    """Profile, priority, count of pods, what they ask for, age, penalty, cluster."""
    need = pods((3, 4), requirements=(IN_Z,), priority=7, interruption=penalty.bucket(8))
    story = Story([idle("i")], ("west", need))
    story.cycle()
    (row,) = report(story.fleet, story.demand, story.decision).rows
    assert (row.cluster, row.profile, row.needs, row.count) == ("west", need.profile, 1, 3)
    assert (row.deficit, row.age_cycles, row.since_seconds) == ({"cpu": 12}, 1, NOW)


def test_a_shortfall_tells_sizes_that_are_impossible_from_those_that_lack_a_place() -> None:
    """The former wait for a free machine, the latter for a fleet with larger machines."""
    story = Story([idle("i", cpu=4)], ("east", pods((1, 9), (2, 3), (1, 1))))
    assert story.cycle() == ["Bootstrap i"]
    (shortfall,) = story.decision.shortfalls
    assert shortfall.sizes == (Size((("cpu", 3),), 1),)
    assert shortfall.impossible == (Size((("cpu", 9),), 1),)
    assert (shortfall.pods, shortfall.deficit) == (2, {"cpu": 12})


def test_only_old_shortfalls_escalate_and_additional_pods_never() -> None:
    """After more than five cycles; no other shard has machines beside the ones that are there."""
    story = Story([], ("east", need_of(4)), ("east", need_of(4, same(), group="gang")),
                  ("east", need_of(4, Requirement(RACK, Operator.EXISTS), group="additional")),
                  )  # fmt: skip
    for age in range(1, 8):
        story.cycle()
        rows = report(story.fleet, story.demand, story.decision).rows
        assert [row.escalates for row in rows] == [age > 5, age > 5, False]


def reason_of(specs: list[Spec], *needs: Need) -> Reason | None:
    """Why the first need of cluster east is short."""
    fleet = fleet_of(specs)
    demand = demand_of(fleet, [("east", need) for need in needs])
    explainer = Explainer(fleet, demand, checked(fleet, demand, EngineConfig()))
    found = explainer.need(0).reason
    assert found is None or explainer.reason(0) is found
    return found


@pytest.mark.parametrize(
    ("specs", "need", "reason"),
    [
        ([idle("i")], need_of(4), None),
        ([idle("i")], need_of(4, IN_Z), Reason.NO_MATCHING_SUPPLY),
        ([idle("i")], need_of(8, unit=8), Reason.NO_MATCHING_SUPPLY),
        ([configured("c")], pods((3, 1), (1, 8)), Reason.NO_MATCHING_SUPPLY),
        ([configured("c")], pods((5, 1), (1, 8)), Reason.PRIORITY_STARVED),
        ([configured("w", "west", last_priority=9)], need_of(4), Reason.PRIORITY_STARVED),
        ([idle("i", labels={RACK: "a"}), idle("j", labels={RACK: "b"})], need_of(8, same()),
         Reason.TOPOLOGY_UNSATISFIABLE),
        (zoned("aaab"), need_of(16, spread=EVENLY_BY_ZONE), Reason.TOPOLOGY_UNSATISFIABLE),
        ([configured("w", "west", last_priority=-1)], need_of(8), Reason.PRIORITY_STARVED),
        (zoned("ab"), pods((3, 1), anti_affinity=(ZONE,)), Reason.PRIORITY_STARVED),
        (zoned("aab"), pods((3, 1), anti_affinity=(ZONE,)), Reason.TOPOLOGY_UNSATISFIABLE),
        ([Spec("d", MachineState.DRAINING, cluster="west")], need_of(8),
         Reason.PREEMPTION_EXHAUSTED),
    ],
)  # fmt: skip
def test_every_shortfall_has_its_reason(
    specs: list[Spec], need: Need, reason: Reason | None
) -> None:
    """Nothing fits, nothing is free, nothing is in the right place, or evicting was not enough."""
    assert reason_of(specs, need) is reason


def test_an_explanation_shows_what_matched_and_what_it_costs() -> None:
    """Machines by state, each condition by itself, what is placed and ordered, what is free."""
    specs = [
        configured("c", price=2, labels={ZONE: "z"}),
        idle("i", price=1, probability=0.5, labels={ZONE: "z"}),
        idle("elsewhere", labels={ZONE: "y"}),
        idle("small", cpu=1, labels={ZONE: "z"}),
    ]
    fleet = fleet_of(specs)
    need = need_of(12, IN_Z, unit=2, interruption=penalty.bucket(4))
    demand = demand_of(fleet, [("east", need)])
    found = Explainer(fleet, demand, checked(fleet, demand)).need(0)
    assert found.by_requirement == {"zone IN (z)": 3}
    assert found.matching == {MachineState.CONFIGURED: 1, MachineState.IDLE: 2}
    assert found.usable == {MachineState.CONFIGURED: 1, MachineState.IDLE: 1}
    assert [(specs[c.row].name, c.cost, c.holds, c.ordered and c.ordered.value)
            for c in found.counted] == [("c", 2.0, {"cpu": 4}, None),
                                        ("i", 3.0, {"cpu": 4}, "Bootstrap")]  # fmt: skip
    assert (found.deficit, found.free, found.lower_priority) == ({"cpu": 4}, 0, 0)


def test_an_explanation_shows_what_lower_priorities_use_and_what_is_free() -> None:
    """Counts of machines that fit but serve other needs."""
    low = configured("low", "west", last_claimed_by=1, labels={ZONE: "a"})
    fleet = fleet_of([low, *zoned("bb")])
    wants = need_of(8, spread=EVENLY_BY_ZONE, priority=9)
    demand = demand_of(fleet, [("east", wants), ("west", need_of(4))], unreachable=["west"])
    found = Explainer(fleet, demand, checked(fleet, demand)).need(0)
    assert (found.lower_priority, found.free) == (1, 0)


def test_a_gang_is_shown_its_best_domains() -> None:
    """What it holds there and what is free, per mille of all of it; five at most."""
    racks = [*(idle(f"a{n}", labels={RACK: "a"}) for n in range(3)),
             *(idle(f"{r}", labels={RACK: r}) for r in "bcdefg")]  # fmt: skip
    fleet = fleet_of(racks)
    demand = demand_of(fleet, [("east", need_of(16, same()))])
    found = Explainer(fleet, demand, checked(fleet, demand)).need(0)
    assert [(d.domain, d.per_mille) for d in found.domains] == [
        ("a", 750), *((rack, 250) for rack in "bcde"),
    ]  # fmt: skip


def test_a_need_for_nothing_is_explained_in_no_words() -> None:
    """It is valid, and never short."""
    fleet = fleet_of([idle("i")])
    demand = demand_of(fleet, [("east", replace(need_of(1), sizes=()))])
    found = Explainer(fleet, demand, checked(fleet, demand)).need(0)
    assert (found.reason, found.counted, found.usable) == (None, [], {})


def test_an_explanation_shows_a_needs_own_pods_on_a_machine_that_it_shares() -> None:
    """How many and what they ask for, and which of its sizes have no place or never will."""
    specs = [configured("c", cpu=9)]
    fleet = fleet_of(specs)
    demand = demand_of(
        fleet, [("east", pods((2, 3), group="a")), ("east", pods((9, 1), (1, 2), (2, 50)))]
    )
    explainer = Explainer(fleet, demand, checked(fleet, demand))
    first, second = explainer.need(0), explainer.need(1)
    assert [(c.row, c.pods, c.holds) for c in first.counted] == [(0, 2, {"cpu": 6})]
    assert [(c.row, c.pods, c.holds) for c in second.counted] == [(0, 2, {"cpu": 3})]
    assert second.short == (Size((("cpu", 1),), 8),)
    assert second.impossible == (Size((("cpu", 50),), 2),)
    assert second.deficit == {"cpu": 108}


def test_machines_that_daemon_sets_fill_are_not_usable() -> None:
    """They match, but hold no pod."""
    fleet = fleet_of([idle("i", cpu=4), idle("j", cpu=9)])
    demand = replace(
        demand_of(fleet, [("east", pods((1, 5)))], reported=[]), overheads={0: (daemons(4),)}
    )
    found = Explainer(fleet, demand, checked(fleet, demand)).need(0)
    assert (found.matching, found.usable) == (
        {MachineState.IDLE: 2}, {MachineState.IDLE: 1},
    )  # fmt: skip
