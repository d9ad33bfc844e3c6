"""Which parts of a quota move, and that all shards together never use more than the whole."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator import quota_moves, quotas, shards
from bigfleet.services.coordinator.domain_moves import (
    COOLDOWN_SECONDS,
    SETTLING_SECONDS,
    MoveMemory,
)
from bigfleet.services.coordinator.quota_moves import QuotaCause, QuotaChoice
from bigfleet.services.coordinator.registry import Registry
from tests.services.coordinator.domains_rig import SHARDS, registry_of
from tests.support.quota_shard import QuotaShard

NAME = ("kwok", "eu")
S0, S1, S2 = SHARDS


def divided(**per_shard: int) -> Registry:
    """A fleet of three shards with one quota."""
    registry = registry_of()
    parts = {name.replace("_", "-"): part for name, part in per_shard.items()}
    quota = wire.QuotaAllocation(provider="kwok", region="eu", per_shard=parts)
    registry.apply(quotas.replaced(registry, quota, lambda: "1-0"))
    return registry


def lacking(
    machines: int, age: int = 11, priority: int = 0, *, same_domain: bool = False
) -> wire.Shortfall:
    lack = wire.QuotaShortage(provider="kwok", region="eu", machines=machines)
    return wire.Shortfall(
        cluster_id="east",
        profile_fingerprint="web",
        count=8,
        age_cycles=age,
        priority=priority,
        quotas=[lack],
        same_domain=same_domain,
    )


def report_of(
    registry: Registry, shard: str, held: int, *shortfalls: wire.Shortfall, listed: int = 0
) -> wire.ShardReportSnapshot:
    part = registry.quotas[NAME].slice_of(shard)
    use = wire.QuotaUse(provider="kwok", region="eu", machines=part, held=held, listed=listed)
    return wire.ShardReportSnapshot(shard_id=shard, quotas=[use], shortfalls=shortfalls)


def chosen(
    registry: Registry,
    *reports: wire.ShardReportSnapshot,
    memory: MoveMemory | None = None,
    now: float = 0.0,
) -> QuotaChoice:
    return quota_moves.choose(registry, reports, memory or MoveMemory(), now)


def amounts(choice: QuotaChoice) -> list[tuple[str, str, int]]:
    return [(move.giver, move.to, move.machines) for move in choice.moves]


def test_a_shard_whose_part_is_used_up_gets_what_others_do_not_use() -> None:
    """First from the one with most to spare; each keeps a twentieth of its part, rounded up."""
    registry = divided(s_0=5, s_1=20, s_2=10)
    reports = [
        report_of(registry, S0, 5, lacking(14)),
        report_of(registry, S1, 9),
        report_of(registry, S2, 4),
    ]
    choice = chosen(registry, *reports)
    assert amounts(choice) == [(S1, S0, 10), (S2, S0, 4)]
    assert choice.moves[0].cause is QuotaCause.SHORTFALL
    assert choice.moves[0].reason == (
        "cluster east of shard s-0 lacked machines for 8 pods of priority 0 for 11 cycles, and its "
        "quota was used up; shard s-1 had 10 to spare and gave 10"
    )


def test_a_shortfall_must_be_as_old_as_for_speculative_machines() -> None:
    registry = divided(s_0=5, s_1=20)
    for age, moves in ((10, []), (11, [(S1, S0, 2)])):
        needs = report_of(registry, S0, 5, lacking(2, age))
        assert amounts(chosen(registry, needs, report_of(registry, S1, 0))) == moves


def test_a_part_that_is_used_up_to_its_margin_stays() -> None:
    """With nothing to spare anywhere nothing moves."""
    registry = divided(s_0=5, s_1=20)
    needs = report_of(registry, S0, 5, lacking(2))
    assert amounts(chosen(registry, needs, report_of(registry, S1, 19))) == []


def test_the_most_urgent_shortfall_chooses_first() -> None:
    registry = divided(s_0=5, s_1=5, s_2=10)
    first = report_of(registry, S1, 5, lacking(6, priority=7))
    second = report_of(registry, S0, 5, lacking(6, age=50))
    choice = chosen(registry, second, first, report_of(registry, S2, 2))
    assert amounts(choice) == [(S2, S1, 6), (S2, S0, 1)]


def test_a_gang_gets_its_whole_number_or_nothing() -> None:
    registry = divided(s_0=5, s_1=10)
    for machines, moves in ((6, []), (5, [(S1, S0, 5)])):
        gang = report_of(registry, S0, 5, lacking(machines, same_domain=True))
        assert amounts(chosen(registry, gang, report_of(registry, S1, 4))) == moves


def test_a_shortfall_waits_after_a_move_and_who_got_some_gives_none_for_a_while() -> None:
    registry, memory = divided(s_0=5, s_1=20), MoveMemory()
    choice = chosen(registry, report_of(registry, S0, 5, lacking(2)), report_of(registry, S1, 0))
    memory.note_quotas([(move.quota, move.to) for move in choice.moves], choice.needs, 0.0)
    still = report_of(registry, S0, 5, lacking(2)), report_of(registry, S1, 0)
    for now, moves in ((SETTLING_SECONDS - 1, []), (SETTLING_SECONDS, [(S1, S0, 2)])):
        assert amounts(chosen(registry, *still, memory=memory, now=now)) == moves
    back = report_of(registry, S1, 20, lacking(2)), report_of(registry, S0, 0)
    for now, moves in ((COOLDOWN_SECONDS - 1, []), (COOLDOWN_SECONDS, [(S0, S1, 2)])):
        assert amounts(chosen(registry, *back, memory=memory, now=now)) == moves


def test_a_shard_that_joined_gets_its_even_part_without_asking() -> None:
    """As far as others do not use theirs; later it gives and takes like any other."""
    registry = divided(s_0=15, s_1=15)
    reports = [report_of(registry, S0, 12), report_of(registry, S1, 2)]
    choice = chosen(registry, *reports, report_of(registry, S2, 0))
    assert amounts(choice) == [(S1, S2, 10)]
    assert choice.moves[0].reason.startswith("shard s-2 joined without a part, where 10 would be")
    registry.apply(quotas.moved(registry, choice.moves, lambda: "1-1"))
    assert amounts(chosen(registry, *reports, report_of(registry, S2, 0))) == []


def test_what_a_removed_shard_had_is_there_for_whoever_needs_it() -> None:
    """But for what was purchased with it: those machines are others' now."""
    registry = divided(s_0=5, s_1=20)
    registry.apply(shards.removed(registry, S1))
    needs = report_of(registry, S0, 11, lacking(30))
    assert amounts(chosen(registry, needs)) == [(S1, S0, 14)]


def test_what_a_removed_shard_had_purchased_is_given_to_nobody_before_another_shard_has_it() -> (
    None
):
    """Its machines still run, and come to a shard that may have no part for them."""
    registry = divided(s_0=10, s_1=10, s_2=5)
    registry.apply(shards.removed(registry, S1))
    needs, other = report_of(registry, S0, 10, lacking(10)), report_of(registry, S2, 5)
    assert amounts(chosen(registry, needs, other)) == [(S1, S0, 10)], "it had purchased nothing"
    for listed, more in ((25, []), (19, [(S1, S0, 6)])):
        other = report_of(registry, S2, 5, listed=listed)
        assert amounts(chosen(registry, needs, other)) == more
    inherited = report_of(registry, S2, 15, listed=25)
    assert amounts(chosen(registry, needs, inherited)) == []


def test_a_quota_that_was_set_since_the_choice_is_left_as_it_is() -> None:
    """What was spare before may be in use now; the next cycle chooses again."""
    registry = divided(s_0=5, s_1=20)
    choice = chosen(registry, report_of(registry, S0, 5, lacking(6)), report_of(registry, S1, 0))
    assert choice.still_due(registry) == choice
    quota = wire.QuotaAllocation(provider="kwok", region="eu", per_shard={S0: 5, S1: 4})
    registry.apply(quotas.replaced(registry, quota, lambda: "2-0"))
    left = choice.still_due(registry)
    assert (left.moves, left.needs) == ([], ())


def told(registry: Registry) -> dict[str, int]:
    return {shard: registry.quotas[NAME].slice_of(shard) for shard in SHARDS}


@pytest.mark.parametrize(("held", "slice_of_receiver"), [(4, 11), (8, 7), (10, 5)])
def test_a_part_is_raised_only_by_what_the_giver_has_confirmed_to_do_without(
    held: int, slice_of_receiver: int
) -> None:
    """It may have purchased more since it reported."""
    registry, numbers = divided(s_0=5, s_1=10), count(1)
    giver = QuotaShard(S1, *NAME)
    giver.take(registry)
    choice = chosen(registry, report_of(registry, S0, 5, lacking(6)), report_of(registry, S1, 2))
    registry.apply(quotas.moved(registry, choice.moves, lambda: f"1-{next(numbers)}"))
    assert told(registry) == {S0: 5, S1: 4, S2: 0}
    giver.held = held
    giver.report(registry, lambda: f"1-{next(numbers)}")
    assert told(registry) == {S0: 5, S1: 4, S2: 0}, "it has not accepted yet"
    giver.take(registry)
    giver.report(registry, lambda: f"1-{next(numbers)}")
    assert told(registry) == {S0: slice_of_receiver, S1: 4, S2: 0}


_STEP = st.tuples(
    st.sampled_from(["take", "take", "report", "report", "late", "buy", "buy", "sell", "restart"]),
    st.sampled_from(SHARDS),
)
_CHANGE = st.tuples(st.just("set"), st.tuples(*(st.integers(0, 9) for _ in SHARDS)))
_MOVE = st.tuples(st.just("move"), st.tuples(st.sampled_from(SHARDS), st.integers(1, 5)))


@given(st.lists(_STEP | _CHANGE | _MOVE, max_size=80))
def test_whatever_is_lost_or_late_all_shards_together_never_use_more_than_the_whole(
    steps: list[tuple[str, Any]],
) -> None:
    """Slices in force and machines held; a smaller whole is reached as machines go."""
    registry, numbers = divided(s_0=4, s_1=4, s_2=4), count(1)
    fleet = {name: QuotaShard(name, *NAME) for name in SHARDS}
    for shard in fleet.values():
        shard.take(registry)
    allowed = 12
    for what, of in steps:
        if what == "set":
            parts = dict(zip(SHARDS, of, strict=True))
            quota = wire.QuotaAllocation(provider="kwok", region="eu", per_shard=parts)
            registry.apply(quotas.replaced(registry, quota, lambda: f"1-{next(numbers)}"))
        elif what == "move":
            to, machines = of
            reports = [report_of(registry, n, shard.held) for n, shard in fleet.items() if n != to]
            needs = report_of(registry, to, fleet[to].held, lacking(machines))
            moves = chosen(registry, needs, *reports).moves
            registry.apply(quotas.moved(registry, moves, lambda: f"1-{next(numbers)}"))
        else:
            fleet[of].act(what, registry, lambda: f"1-{next(numbers)}")
        row, before = registry.quotas[NAME], allowed
        allowed = sum(row.allowances.values())
        assert sum(shard.uses for shard in fleet.values()) <= allowed
        assert allowed <= max(before, sum(row.per_shard.values()))
