"""Machines that a decision must not use: backed off, of suspended clusters, and the free capacity
of machines whose Nodes take no new pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bigfleet.engine.decision import Decision
from bigfleet.engine.explain.explain import Explainer
from bigfleet.engine.explain.explanation import Reason
from bigfleet.engine.snapshot import NONE, Demand, Fleet
from bigfleet.model.machine import CapacityType
from bigfleet.model.need import Need
from tests.engine.engine_pods import daemons, places, pods
from tests.engine.engine_rig import (
    NOW,
    Spec,
    action_names,
    checked,
    configured,
    demand_of,
    fleet_of,
    idle,
    same,
    speculative,
)


def world(
    specs: Sequence[Spec], *needs: tuple[str, Need], backed_off: Sequence[str] = ()
) -> tuple[Fleet, Demand]:
    """A fleet in which the named machines are backed off, and its demand."""
    fleet = fleet_of(specs)
    flags = np.array([spec.name in backed_off for spec in specs], np.bool_)
    return replace(fleet, backed_off=flags), demand_of(fleet, needs)


def suspended(demand: Demand, fleet: Fleet, cluster: str) -> Demand:
    """The same demand while nothing is acquired for that cluster."""
    return replace(demand, suspended=frozenset({fleet.clusters.index(cluster)}))


def reason(fleet: Fleet, demand: Demand, decision: Decision) -> Reason:
    """Why the first need is short."""
    return Explainer(fleet, demand, decision).reason(0)


def test_a_machine_that_is_backed_off_is_not_acquired() -> None:
    """The next best is, although it costs more."""
    specs = [speculative("sold-out", price=1), speculative("dear", price=9)]
    fleet, demand = world(specs, ("east", pods((4, 1))), backed_off=["sold-out"])
    assert action_names(specs, checked(fleet, demand)) == ["Provision dear"]


def test_a_machine_that_is_backed_off_for_one_cluster_serves_another() -> None:
    """Only the first one's network may be broken; its need says what it waits for."""
    specs = [speculative("a"), speculative("b")]
    needs = [(cluster, pods((4, 1))) for cluster in ("east", "west")]
    fleet, demand = world(specs, *needs)
    east = np.full(2, fleet.clusters.index("east"), np.int32)
    fleet = replace(fleet, backed_off_for=east)
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == ["Provision a"]
    assert [short.need for short in decision.shortfalls] == [0]
    assert reason(fleet, demand, decision) is Reason.OFFERINGS_UNAVAILABLE


def test_a_machine_may_be_backed_off_for_two_clusters() -> None:
    """A third one, that comes later and is not concerned, gets it."""
    specs = [speculative("a"), speculative("b", price=9), configured("c", "north", cpu=1)]
    needs = [(cluster, pods((4, 1))) for cluster in ("east", "west", "north")]
    fleet, demand = world(specs, *needs)
    east, west = (
        np.array([fleet.clusters.index(cluster), NONE, NONE], np.int32)
        for cluster in ("east", "west")
    )
    fleet = replace(fleet, backed_off_for=east, backed_off_for_too=west)
    decision = checked(fleet, demand)
    got = {fleet.clusters[demand.cluster[a.need]]: specs[a.row].name for a in decision.actions}
    assert got == {"east": "b", "north": "a"}


def test_a_need_that_fits_backed_off_machines_only_waits_for_them() -> None:
    """The reason is not that no machine could ever serve it."""
    specs = [speculative("sold-out")]
    fleet, demand = world(specs, ("east", pods((4, 1))), backed_off=["sold-out"])
    decision = checked(fleet, demand)
    assert decision.actions == []
    (short,) = decision.shortfalls
    assert (short.pods, short.impossible) == (4, ())
    assert reason(fleet, demand, decision) is Reason.OFFERINGS_UNAVAILABLE


def test_the_reason_is_that_of_the_size_that_is_short() -> None:
    """A machine that holds only the others is out of service, which changes nothing for it."""
    specs = [configured("own", cpu=2), speculative("sold-out"), configured("huge", "west", cpu=16)]
    needs = [("west", pods((1, 16), priority=9)), ("east", pods((1, 16), (1, 2)))]
    fleet, demand = world(specs, *needs, backed_off=["sold-out"])
    decision = checked(fleet, demand)
    assert places(specs, decision) == {"own": {1: 1}, "huge": {0: 1}}
    assert Explainer(fleet, demand, decision).reason(1) is Reason.PRIORITY_STARVED


def test_an_idle_machine_that_is_backed_off_is_still_given_back() -> None:
    """One that does not boot must not be paid for until it may be tried again."""
    old = idle("broken", capacity_type=CapacityType.SPOT, idle_since=NOW - 61)
    fleet, demand = world([old], ("east", pods((4, 1))), backed_off=["broken"])
    assert action_names([old], checked(fleet, demand)) == ["Delete broken"]


def test_a_machine_in_service_that_is_backed_off_counts_and_is_left_alone() -> None:
    """Its provider does not answer: it serves its pods, and nobody may take it."""
    specs = [configured("held", "west")]
    high, low = pods((4, 1), priority=9), pods((4, 1))
    fleet, demand = world(specs, ("east", high), ("west", low), backed_off=["held"])
    decision = checked(fleet, demand)
    assert decision.actions == []
    assert places(specs, decision) == {"held": {1: 4}}
    fleet, demand = world(specs, ("east", high), ("west", low))
    assert action_names(specs, checked(fleet, demand)) == ["Preempt held"]


def test_for_a_suspended_cluster_nothing_is_acquired_or_preempted() -> None:
    """It keeps its machines; another cluster gets the one that it would not use."""
    specs = [configured("has"), configured("victim", "west"), idle("free")]
    high, low = pods((8, 1), priority=9), pods((8, 1))
    fleet, demand = world(specs, ("east", high), ("west", low))
    demand = suspended(demand, fleet, "east")
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == ["Bootstrap free"]
    assert places(specs, decision) == {"has": {0: 4}, "victim": {1: 4}, "free": {1: 4}}
    assert reason(fleet, demand, decision) is Reason.CLUSTER_SUSPENDED


def test_a_gang_of_a_suspended_cluster_keeps_no_machines_from_others() -> None:
    """Nor are any reserved for it."""
    specs = [idle("a", labels={"rack": "r"}), idle("b", labels={"rack": "r"})]
    gang = pods((8, 1), requirements=(same(),), priority=9)
    fleet, demand = world(specs, ("east", gang), ("west", pods((8, 1))))
    demand = suspended(demand, fleet, "east")
    decision = checked(fleet, demand)
    assert action_names(specs, decision) == ["Bootstrap a", "Bootstrap b"]
    assert decision.cycle_memory.reservations == ()


def test_what_pods_hold_on_a_limited_machine_is_not_lessened_by_daemon_sets() -> None:
    """The limit is what is there beside them already."""
    specs = [configured("cordoned"), idle("free")]
    fleet, demand = world(specs, ("east", pods((4, 1))))
    flavours = [replace(fleet.flavours[0], limited=True), *fleet.flavours[1:]]
    fleet = replace(fleet, flavours=flavours)
    demand = replace(demand, overheads={fleet.clusters.index("east"): (daemons(1),)})
    decision = checked(fleet, demand)
    assert (action_names(specs, decision), places(specs, decision)) == ([], {"cordoned": {0: 4}})
