"""What a cluster may have at most bounds what is acquired for it, and takes nothing away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from bigfleet.engine.decision import ClusterUsage, Decision
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.fit.folding import fold
from bigfleet.engine.snapshot import Demand, Fleet
from bigfleet.model.ceiling import Ceiling
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from tests.engine.engine_pods import pods
from tests.engine.engine_rig import (
    EVENLY_BY_ZONE,
    ZONE,
    Spec,
    action_names,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    need_of,
    same,
    speculative,
)


def world(
    specs: Sequence[Spec], *needs: tuple[str, Need], **ceilings: Ceiling
) -> tuple[Fleet, Demand]:
    """A fleet, and the demand of clusters with these ceilings."""
    fleet = fleet_of(specs)
    bounded = [
        (name, replace(need, priority_ceiling=ceilings.get(name, Ceiling()).priority))
        for name, need in needs
    ]
    bounded.sort(key=lambda pair: -pair[1].priority)
    by_number = {fleet.clusters.index(name): ceiling for name, ceiling in ceilings.items()}
    return fleet, replace(demand_of(fleet, bounded), ceilings=by_number)


def why(fleet: Fleet, demand: Demand, decision: Decision) -> tuple[Reason, str]:
    """Why the first need is short."""
    return Explainer(fleet, demand, decision).reason_and_message(0)


def test_machines_are_counted_in_every_state_in_which_they_are_on_their_way() -> None:
    """One configured, one joining, one being created and one draining for the cluster leave one
    of five.
    """
    S = MachineState
    specs = [
        configured("works"),
        configured("joins", state=S.CONFIGURING),
        speculative("made", state=S.CREATING, destination="east"),
        configured("drains", "west", state=S.DRAINING, destination="east"),
        idle("a"),
        idle("b"),
    ]
    fleet, demand = world(specs, ("east", pods((24, 1))), east=Ceiling(machines=5))
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == ["Bootstrap a"]
    assert decision.held == {fleet.clusters.index("east"): ClusterUsage(5, 5_000_000)}
    reason, message = why(fleet, demand, decision)
    assert reason is Reason.CEILING_REACHED
    assert message.endswith("has reached its ceiling: it has 5 of at most 5 machines")


def test_the_most_urgent_get_what_a_ceiling_leaves() -> None:
    specs = [idle("a"), idle("b"), idle("c")]
    low, high = pods((8, 1)), pods((8, 1), priority=5)
    fleet, demand = world(specs, ("east", low), ("east", high), east=Ceiling(machines=2))
    decision = checked(fleet, demand)
    assert [action.need for action in decision.actions] == [0, 0]
    assert decision.at_ceiling == {1}


def test_a_machine_beyond_the_remaining_budget_is_skipped_for_a_cheaper_one() -> None:
    """Of $2 an hour: the one for $2.50 would hold all eight pods."""
    large, small = idle("large", cpu=8, price=2.5), idle("small", price=1.5)
    specs = [large, small, idle("tiny", price=0.5, cpu=2)]
    fleet, demand = world(specs, ("east", pods((8, 1))), east=Ceiling(dollars_per_hour=2.0))
    decision = checked(fleet, demand)
    assert sorted(action_names(specs, decision)) == ["Bootstrap small", "Bootstrap tiny"]
    assert "for $2.00 of at most $2.00 an hour" in why(fleet, demand, decision)[1]


def test_pods_do_not_spread_to_a_zone_whose_machines_are_beyond_the_ceiling() -> None:
    """A zone without pods would hold back those in the two others."""
    specs = [
        idle(f"{zone}{n}", cpu=2, price=0.1, labels={ZONE: zone}) for zone in "ab" for n in "01"
    ]
    specs.append(idle("dear", price=9.0, labels={ZONE: "c"}))
    need = need_of(8, unit=1, spread=EVENLY_BY_ZONE)
    fleet, demand = world(specs, ("east", need), east=Ceiling(dollars_per_hour=1.0))
    assert len(action_names(specs, checked(fleet, demand))) == 4


def test_prices_add_up_without_the_errors_of_binary_fractions() -> None:
    """Three machines for $0.10 cost $0.30."""
    specs = [idle(name, price=0.1) for name in "abcd"]
    fleet, demand = world(specs, ("east", pods((16, 1))), east=Ceiling(dollars_per_hour=0.3))
    assert len(checked(fleet, demand).actions) == 3


def test_a_cluster_at_its_ceiling_preempts_nothing_more() -> None:
    """Of two victims it takes the one within its budget."""
    specs = [configured("has"), configured("v1", "west"), configured("v2", "west")]
    high, low = pods((12, 1), priority=9), pods((8, 1))
    for machines, taken in ((1, []), (2, ["Preempt v1"])):
        fleet, demand = world(specs, ("east", high), ("west", low), east=Ceiling(machines=machines))
        assert action_names(specs, checked(fleet, demand)) == taken


def test_a_cluster_preempts_by_the_priority_of_its_ceiling() -> None:
    specs = [configured("v1", "west"), configured("v2", "west")]
    claims = pods((8, 1), priority=2_000_000_000)
    victims = [("west", pods((4, 1))), ("west", pods((4, 1), priority=50, group="[1]"))]
    for priority, taken in ((0, 0), (40, 1), (51, 2)):
        fleet, demand = world(specs, ("east", claims), *victims, east=Ceiling(priority=priority))
        decision = checked(fleet, demand)
        assert len(decision.actions) == taken
    fleet, demand = world(specs, ("east", claims), *victims, east=Ceiling(priority=40))
    decision = checked(fleet, demand)
    index = next(i for i, need in enumerate(demand.needs) if need.priority_ceiling == 40)
    reason, message = Explainer(fleet, demand, decision).reason_and_message(index)
    assert reason is Reason.CEILING_REACHED
    assert "its priority 2000000000 is limited to 40" in message


def test_a_need_short_for_another_reason_does_not_report_the_ceiling() -> None:
    """A higher ceiling would not help."""
    specs = [configured("has")]
    fleet, demand = world(specs, ("east", pods((8, 1))), east=Ceiling(machines=1))
    decision = checked(fleet, demand)
    assert why(fleet, demand, decision)[0] is Reason.PRIORITY_STARVED
    specs = [configured("has", cpu=8), idle("small")]
    fleet, demand = world(specs, ("east", pods((2, 8))), east=Ceiling(machines=1))
    decision = checked(fleet, demand)
    assert why(fleet, demand, decision)[0] is Reason.PRIORITY_STARVED


def test_a_need_without_victims_now_does_not_report_the_ceiling() -> None:
    """The victim's cluster has not reported yet; its own priority is not limited."""
    specs = [configured("v", "west")]
    high = ("east", pods((4, 1), priority=9))
    fleet, demand = world(specs, high, ("west", pods((4, 1))), east=Ceiling(priority=50))
    demand = replace(demand, reported=frozenset())
    decision = checked(fleet, demand)
    assert why(fleet, demand, decision)[0] is Reason.PRIORITY_STARVED


@pytest.mark.parametrize("victims", [False, True])
def test_a_gang_that_its_ceiling_cuts_acquires_and_evicts_nothing(victims: bool) -> None:
    """Others of its cluster get what the ceiling leaves."""
    rack = {"rack": "r"}
    specs = [
        configured(f"m{at}", "west", labels=rack) if victims else idle(f"m{at}", labels=rack)
        for at in range(4)
    ]
    gang = pods((12, 1), requirements=(same(),), priority=9)
    needs = [("east", gang), ("west", pods((16, 1)))] if victims else [("east", gang)]
    fleet, demand = world(specs, *needs, east=Ceiling(machines=2))
    decision = checked(fleet, demand)
    assert decision.actions == []
    assert decision.at_ceiling == {0}
    assert why(fleet, demand, decision)[0] is Reason.CEILING_REACHED
    fleet, demand = world(specs, *needs, east=Ceiling(machines=3))
    assert len(checked(fleet, demand).actions) == 3
    fleet, demand = world(
        specs, *needs, ("east", pods((4, 1), priority=8)), east=Ceiling(machines=2)
    )
    assert len(checked(fleet, demand).actions) == 1


def test_an_incomplete_gang_acquires_nothing_beyond_its_ceiling() -> None:
    """Without a ceiling it acquires the whole rack."""
    specs = [idle(name, labels={"rack": "r"}) for name in "ab"]
    gang = pods((12, 1), requirements=(same(),))
    for ceiling, gathered in ((Ceiling(), 2), (Ceiling(machines=1), 0)):
        fleet, demand = world(specs, ("east", gang), east=ceiling)
        assert len(checked(fleet, demand).actions) == gathered


def test_what_comes_to_a_cluster_already_may_go_to_another_of_its_needs() -> None:
    """It is charged already: a need of higher priority may take it at any ceiling."""
    S = MachineState
    drains = configured("d", "west", state=S.DRAINING, destination="east", last_claimed_by=1)
    fleet, demand = world(
        [drains],
        ("east", pods((4, 1), priority=9)),
        ("east", pods((4, 1))),
        east=Ceiling(machines=1),
    )
    decision = checked(fleet, demand)
    assert decision.claimed_by.tolist() == [0]
    assert decision.held == {fleet.clusters.index("east"): ClusterUsage(1, 1_000_000)}


@pytest.mark.parametrize("machines", [1, 2])
def test_headroom_counts_toward_the_ceiling(machines: int) -> None:
    """None is acquired beyond the ceiling."""
    specs = [idle(name, labels={"rack": "r"}) for name in "abc"]
    gang = pods((4, 1), requirements=(same(),))
    fleet, asked = world(specs, ("east", gang), east=Ceiling(machines=machines))
    decision = checked(fleet, fold(fleet, asked).demand)
    assert len(decision.actions) == machines
    assert decision.held == {
        fleet.clusters.index("east"): ClusterUsage(machines, machines * 1_000_000)
    }


def test_a_gang_that_is_folded_keeps_the_priority_of_its_ceiling() -> None:
    """It preempts lower priorities than that only."""
    specs = [configured("v", "west", labels={"rack": "r"})]
    gang = pods((4, 1), requirements=(same(),), priority=9)
    fleet, asked = world(
        specs, ("east", gang), ("west", pods((4, 1), priority=5)), east=Ceiling(priority=5)
    )
    decision = checked(fleet, fold(fleet, asked).demand)
    assert decision.actions == []


def test_more_than_a_ceiling_allows_is_kept() -> None:
    """Nothing is reclaimed that is needed."""
    specs = [configured("a"), configured("b"), idle("c")]
    ceiling = Ceiling(machines=1, dollars_per_hour=0.0, priority=-1)
    fleet, demand = world(specs, ("east", pods((12, 1))), east=ceiling)
    assert checked(fleet, demand).actions == []
