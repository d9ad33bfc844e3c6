"""Prices that move and kinds that are interrupted are planned: the same seed, the same changes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from loaddriver.errors import ProfileError
from loaddriver.plan.market import NO_CHANGES, Kind, MarketPlan, make_market_plan
from loaddriver.profile.loading import load_profile
from loaddriver.sizing.inventory import fleet_inventory
from loaddriver.sizing.market import prices_by_kind
from tests.loaddriver.load_rig import PROFILES, shipped

ROUTING, CHURN = "cost-routing-50", "spot-churn-50"
SPOT = [Kind(f"m{n}", zone, "SPOT") for n in range(2) for zone in ("zone-a", "zone-b")]
BOUGHT = Kind("m0", "zone-a", "ON_DEMAND")
PRICES = {**dict.fromkeys(SPOT, 0.3), BOUGHT: 1.0, Kind("m0", "zone-a", "RESERVED"): 0.0}


def planned(name: str, *overrides: str, seed: int | None = None) -> MarketPlan:
    """The changes that a profile's settings make of PRICES."""
    return make_market_plan(shipped(name, *overrides, seed=seed).settings, PRICES)


def test_equal_seeds_move_prices_and_interrupt_kinds_alike() -> None:
    for name in (ROUTING, CHURN):
        assert planned(name, seed=7) == planned(name, seed=7)
        assert planned(name, seed=7) != planned(name, seed=8)


def test_other_profiles_change_nothing() -> None:
    assert planned("handover-50") == NO_CHANGES


def test_each_move_gives_each_kind_a_new_price_within_the_factors() -> None:
    """Machines that are paid for have no price that could move."""
    moves = planned(ROUTING).price_moves
    assert Counter(move.seconds for move in moves) == dict.fromkeys((5, 85, 165, 245, 325), 5)
    assert {move.kind for move in moves} == {*SPOT, BOUGHT}
    factors = [move.dollars_per_hour / PRICES[move.kind] for move in moves]
    assert 0.25 <= min(factors) < 0.6
    assert 1.6 < max(factors) <= 4


def test_only_the_named_capacity_types_move() -> None:
    moves = planned(ROUTING, "fleet.prices.capacityTypes=[onDemand]").price_moves
    assert {move.kind for move in moves} == {BOUGHT}


def test_another_kind_in_the_fleet_changes_no_price_of_the_others() -> None:
    settings = shipped(ROUTING).settings
    more = make_market_plan(settings, {**PRICES, Kind("a0", "zone-a", "SPOT"): 0.1})
    assert [move for move in more.price_moves if move.kind in PRICES] == [
        *planned(ROUTING).price_moves
    ]


def test_kinds_of_spot_machines_take_turns() -> None:
    """So that each that the load uses is hit, whichever those are."""
    cuts = planned(CHURN, "fleet.interruptions.number=4").interruptions
    assert sorted(cut.kind for cut in cuts) == sorted(SPOT)
    assert [cut.seconds for cut in cuts] == [15, 75, 135, 195]
    assert (cuts[0].gone_seconds, cuts[0].back_seconds) == (45, 105)


@pytest.mark.parametrize("seed", range(20))
def test_a_kind_that_is_away_is_not_interrupted_again(seed: int) -> None:
    lasting = ("number=12", "everySeconds=15", "noticeSeconds=20", "downSeconds=25")
    overrides = [f"fleet.interruptions.{each}" for each in lasting]
    cuts = planned(CHURN, *overrides, seed=seed).interruptions
    for kind in SPOT:
        own = [cut for cut in cuts if cut.kind == kind]
        assert all(one.back_seconds <= two.seconds for one, two in pairwise(own))


def test_too_few_kinds_to_replace_those_that_are_away_are_named() -> None:
    settings = shipped(CHURN).settings
    with pytest.raises(ProfileError, match=r"up to 2 kinds .* at once, and the fleet has 2"):
        make_market_plan(settings, dict.fromkeys(SPOT[:2], 0.3))


def test_prices_of_machines_that_the_fleet_lacks_are_named() -> None:
    with pytest.raises(ProfileError, match="the fleet has no onDemand or spot machines"):
        make_market_plan(shipped(ROUTING).settings, {})


@pytest.mark.parametrize("seed", range(1, 6))
def test_who_stays_with_the_kind_that_was_cheapest_pays_far_more_than_the_gate(seed: int) -> None:
    """Twenty machines after each move, of which a kind has twelve; the gate says 1.6."""
    profile = shipped(ROUTING, seed=seed)
    moves = make_market_plan(
        profile.settings, prices_by_kind(fleet_inventory(profile, None))
    ).price_moves
    prices = [
        {move.kind: move.dollars_per_hour for move in moves if move.seconds == seconds}
        for seconds in sorted({move.seconds for move in moves})
    ]
    cheapest = [sorted(now, key=now.__getitem__)[:2] for now in prices]
    least = sum(12 * now[a] + 8 * now[b] for now, (a, b) in zip(prices, cheapest, strict=True))
    one, other = cheapest[0]
    stayed = sum(12 * now[one] + 8 * now[other] for now in prices)
    assert stayed > 2 * least


@pytest.mark.parametrize(
    ("name", "override", "why"),
    [
        (ROUTING, "fleet.prices.lowestFactor=4", "fleet.prices.lowestFactor = 4: prices would"),
        (ROUTING, "fleet.prices.number=6", "fleet.prices move for the last time 405 s into"),
        (ROUTING, "fleet.prices.capacityTypes=[spot, spot]", r"capacityTypes\[1\] = 'spot' is a"),
        (ROUTING, "fleet.prices.capacityTypes=[reserved]", "fleet.prices.capacityTypes"),
        (ROUTING, "fleet.prices.everySeconds=0", "fleet.prices.everySeconds"),
        (ROUTING, "system=none", "fleet.prices is played by BigFleet's provider"),
        (CHURN, "fleet.interruptions.number=7", "fleet.interruptions end 465 s into a soak"),
        (CHURN, "fleet.interruptions.noticeSeconds=-1", "fleet.interruptions.noticeSeconds"),
        (CHURN, "fleet.spotMarketHoursPerSecond=1", "fleet.spotMarketHoursPerSecond interrupts"),
    ],
)
def test_changes_that_cannot_be_are_named_by_their_key(name: str, override: str, why: str) -> None:
    with pytest.raises(ProfileError, match=why):
        load_profile(name, PROFILES, (override,))
