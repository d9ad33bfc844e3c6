"""Prices that moved and kinds that were interrupted, as a run is judged by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest

from loaddriver.judge.cost import cost_section
from loaddriver.judge.interruptions import Interruptions, interruption_section
from loaddriver.judge.percentiles import AtLeast
from loaddriver.judge.price_following import PriceFollowing, price_section
from loaddriver.plan.market import Interruption, Kind, MarketPlan, PriceMove
from loaddriver.record.audit import Removal
from loaddriver.record.journal import Event
from loaddriver.record.rows import PodRow
from loaddriver.sizing.inventory import InventoryMachine
from loaddriver.sizing.market import PlayedMarket
from tests.judge.fleet_rig import fleet, journal, machine, observed, state
from tests.judge.judge_rig import at, facts, row

OPERATOR, COLLECTOR = "bigfleet-operator", "system:serviceaccount:kube-system:pod-garbage-collector"
# The soak, and with it the market, goes from 40 to 100 s.
A, B = Kind("m6.large", "a", "ON_DEMAND"), Kind("m6.large", "b", "ON_DEMAND")
PODS = [row(f"u{n}", 0, 1, workload="web") for n in range(4)]


def market(*moves: tuple[float, Kind, float]) -> PlayedMarket:
    return PlayedMarket(MarketPlan(price_moves=tuple(PriceMove(*each) for each in moves)), at(40))


def bought(name: str, seconds: float, until: float | None = None) -> list[Event]:
    """A machine that was paid for from then on."""
    gone = [] if until is None else [state(name, until, "SPECULATIVE")]
    return [state(name, seconds, "CREATING"), *gone]


def followed(
    played: PlayedMarket, events: Sequence[Event], rows: Sequence[PodRow] = PODS
) -> PriceFollowing | None:
    """Machines m1 in zone a and m2 in zone b, each a dollar an hour and room for four pods."""
    known = fleet(machine("m1"), machine("m2", zone="b"), market=played)
    return price_section(facts(fleet=known), [observed()], rows, journal(*events))


def test_a_machine_costs_what_its_kind_costs_at_the_moment() -> None:
    """A third of the soak at a dollar, the rest at four; the other kind's price says nothing."""
    played = market((20, A, 4.0), (20, B, 9.0))
    known = facts(fleet=fleet(machine("m1"), market=played))
    section = cost_section(known, [observed({"m1": (0, None)})], PODS, None)
    assert section is not None
    assert section.ramp_end is not None
    assert section.mean_dollars_per_hour == pytest.approx(3.0)
    assert section.ramp_end.dollars_per_hour == 1.0
    assert section.end.dollars_per_hour == 4.0
    assert section.end.least_dollars_per_hour == pytest.approx(4.0, rel=0.01)


def test_who_is_where_it_is_cheapest_pays_the_least() -> None:
    """The pods fill one machine; m1 was bought when a was dear, m2 was at half of its price."""
    played = market((0, A, 2.0), (0, B, 0.5))
    for name, ratio in (("m2", 1.0), ("m1", 4.0)):
        section = followed(played, bought(name, 10))
        assert section is not None
        assert section.dollars_ratio == pytest.approx(ratio, rel=0.01)
        assert section.least_dollars_per_hour == pytest.approx(0.5, rel=0.01)


def test_each_period_is_judged_by_its_own_prices() -> None:
    """m1 stays: cheapest until 70 s, and then twice as dear as m2."""
    section = followed(market((0, A, 0.5), (30, A, 2.0)), bought("m1", 10))
    assert section is not None
    assert section.moves == 2
    first, second = section.periods["move1"], section.periods["move2"]
    assert (first.begins_at_seconds, first.seconds, second.begins_at_seconds) == (0, 30, 30)
    assert first.dollars_ratio == pytest.approx(1.0, rel=0.01)
    assert second.dollars_ratio == pytest.approx(2.0, rel=0.01)
    assert section.dollars_ratio == pytest.approx(2.5 / 1.5, rel=0.01)


def test_what_is_held_for_nobody_is_dear_and_what_is_not_needed_costs_nothing() -> None:
    gone = [replace(each, deleted_micros=at(70)) for each in PODS]
    section = followed(market((0, A, 1.0)), bought("m1", 10, until=85), gone)
    assert section is not None
    assert section.dollars_ratio == pytest.approx(45 / 30, rel=0.02)
    section = followed(market((0, A, 1.0)), bought("m1", 10), [])
    assert section is not None
    assert section.dollars_ratio is None


def test_prices_that_never_moved_make_no_section() -> None:
    assert followed(market(), bought("m1", 10)) is None
    assert followed(market((90, A, 1.0)), bought("m1", 10)) is None, "after the end"
    assert followed(market((0, A, 1.0)), []) is None, "without a journal"


def spot(name: str, zone: str) -> InventoryMachine:
    """A spot machine for four pods."""
    return msgspec.structs.replace(machine(name, zone=zone), capacity_type="SPOT")


def evicted(pod: str, seconds: float, by: str = OPERATOR) -> Removal:
    return Removal(("load", f"pod-{pod}"), at(seconds), by, by == OPERATOR)


# Notice at 50 s, gone at 60, back at 80.
CUT = Interruption(10.0, Kind("m6.large", "a", "SPOT"), 10.0, 20.0)


def interrupted(
    rows: Sequence[PodRow],
    removals: Sequence[Removal] = (),
    events: Sequence[Event] = (),
    nodes: Mapping[str, tuple[float, float | None]] | None = None,
) -> Interruptions:
    """Machines a1 and a2 of the interrupted kind, b1 of another."""
    ends = {each.name[1]: each.at_micros for each in removals}
    own = [replace(each, deleted_micros=ends.get(each.name, each.deleted_micros)) for each in rows]
    machines = (spot("a1", "a"), spot("a2", "a"), spot("b1", "b"))
    played = PlayedMarket(MarketPlan(interruptions=(CUT,)), at(40))
    known = facts(fleet=fleet(*machines, market=played))
    seen = observed(nodes or {}, tuple(removals))
    section = interruption_section(known, [seen], own, journal(*events) if events else None)
    assert section is not None
    return section


def on(node: str, uid: str, created: float = 0, bound: float | None = 1) -> PodRow:
    return replace(row(uid, created, bound, workload="web"), node=node if bound else "")


def test_the_replacement_of_an_evicted_pod_is_due_when_that_leaves() -> None:
    """Two leave at 51 and 52 s, and their replacements are bound at 58 and 65 s."""
    pods = [on("a1", "u1"), on("a1", "u2"), on("b1", "r1", 51.1, 58), on("b1", "r2", 52.1, 65)]
    section = interrupted(pods, [evicted("u1", 51), evicted("u2", 52)])
    assert (section.notices, section.pods, section.evicted, section.lost) == (1, 2, 2, 0)
    assert section.due_to_bind_seconds.max == 13
    assert section.never_bound == 0


def test_who_has_no_replacement_or_none_with_a_node_waits_until_the_end() -> None:
    pods = [on("a1", "u1"), on("a1", "u2"), on("", "r1", 51.1, None)]
    section = interrupted(pods, [evicted("u1", 51), evicted("u2", 52)])
    assert section.never_bound == 2
    assert section.due_to_bind_seconds.max == AtLeast(49)


def test_a_pod_that_goes_with_its_node_has_been_gone_since_its_machine() -> None:
    """The machine went at 60 s; what was left of its pod was collected at 75."""
    pods = [on("a1", "u1"), on("b1", "r1", 75.1, 80)]
    section = interrupted(pods, [evicted("u1", 75, COLLECTOR)])
    assert (section.evicted, section.lost) == (0, 1)
    assert section.due_to_bind_seconds.max == 20


def test_pods_that_leave_other_nodes_or_at_other_times_are_counted_apart() -> None:
    pods = [on("b1", "u1"), on("a1", "u2"), on("a1", "u3"), on("b1", "r3", 55.1, 56)]
    section = interrupted(pods, [evicted("u1", 55), evicted("u2", 45), evicted("u3", 55)])
    assert (section.pods, section.others_disturbed) == (1, 2)


def test_a_pod_that_the_plan_asked_for_replaces_nobody() -> None:
    planned = replace(on("b1", "p1", 51.5, 52), due_micros=at(51.4))
    pods = [on("a1", "u1"), planned, on("b1", "r1", 53, 60)]
    assert interrupted(pods, [evicted("u1", 51)]).due_to_bind_seconds.max == 9


def test_machines_count_that_were_nodes_at_the_notice_of_their_kind() -> None:
    nodes = {"a1": (10.0, 70.0), "a2": (10.0, 45.0), "b1": (10.0, None)}
    assert interrupted(PODS, nodes=nodes).machines == 1


def test_purchases_of_an_interrupted_kind_count_once_the_shard_could_know() -> None:
    """The provider's notice at 50 s has been listed and decided on by 53 s; at 80 s it is back."""

    def purchase(name: str, seconds: float) -> Event:
        return Event(at=at(seconds) / 1e6, event="decided", machine=name, action="Provision")

    for name, seconds, counted in (
        ("a1", 51, 0),
        ("a1", 54, 1),
        ("a1", 79, 1),
        ("a1", 81, 0),
        ("b1", 60, 0),
    ):
        section = interrupted(PODS, events=[purchase(name, seconds)])
        assert section.bought_while_interrupted == counted


def test_machines_of_other_kinds_that_join_meanwhile_take_over() -> None:
    events = [
        state("b1", 45, "CONFIGURED"),
        state("b1", 55, "CONFIGURED"),
        state("a2", 52, "CONFIGURED"),
    ]
    assert interrupted(PODS, events=events).joined_of_other_kinds == 1
    section = interrupted(PODS)
    assert (section.joined_of_other_kinds, section.bought_while_interrupted) == (None, None)


def test_without_an_interruption_there_is_no_section() -> None:
    known = facts(fleet=fleet(spot("a1", "a")))
    assert interruption_section(known, [observed()], PODS, None) is None
