"""Which domains move to shards that lack machines, and what keeps a fleet at rest."""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator import acknowledgements, domains, ladder
from bigfleet.services.coordinator.domain_lifecycle import DomainState
from bigfleet.services.coordinator.domain_moves import (
    COOLDOWN_SECONDS,
    SETTLING_SECONDS,
    Cause,
    MoveMemory,
)
from bigfleet.services.coordinator.ladder import Choice
from bigfleet.services.coordinator.registry import Registry
from tests.services.coordinator.domains_rig import RACK, SHARDS, carry_out, registry_of


def helpful(rack: str, idle: int = 0, speculative: int = 0, pods: int = 4) -> wire.HelpfulDomain:
    """Machines that hold `pods` pods each."""
    return wire.HelpfulDomain(
        topology_key=RACK,
        topology_value=rack,
        idle_machines=idle,
        free_machines=idle + speculative,
        idle_pods=idle * pods,
        free_pods=(idle + speculative) * pods,
    )


def short(
    *would_help: wire.HelpfulDomain,
    pods: int = 8,
    age: int = 6,
    priority: int = 0,
    cluster: str = "east",
    same_domain: bool = False,
) -> wire.Shortfall:
    return wire.Shortfall(
        cluster_id=cluster,
        profile_fingerprint="web",
        count=pods,
        age_cycles=age,
        priority=priority,
        same_domain=same_domain,
        helpful_domains=would_help,
    )


def report_of(
    shard: str, *shortfalls: wire.Shortfall, machines: int = 8, free: int = 8
) -> wire.ShardReportSnapshot:
    summary = wire.ShardSummary(total_machines=machines, free_machines=free)
    return wire.ShardReportSnapshot(shard_id=shard, shortfalls=shortfalls, summary=summary)


def chosen(
    registry: Registry,
    *reports: wire.ShardReportSnapshot,
    memory: MoveMemory | None = None,
    now: float = 0.0,
) -> list[tuple[str, str]]:
    """The racks that move, and to which shards."""
    choice = ladder.choose(registry, reports, memory or MoveMemory(), now)
    return [(move.name[1], move.to) for move in choice.moves]


def test_the_smallest_rack_that_holds_all_unplaced_pods_moves() -> None:
    registry = registry_of(own="s-0", small="s-1", right="s-1", large="s-2")
    would_help = helpful("large", 6), helpful("right", 2), helpful("small", 1)
    reports = report_of("s-0", short(*would_help)), report_of("s-1"), report_of("s-2")
    assert chosen(registry, *reports) == [("right", "s-0")]


def test_the_reason_names_who_lacked_what_and_who_had_it() -> None:
    registry = registry_of(own="s-0", r1="s-1")
    reports = report_of("s-0", short(helpful("r1", 2))), report_of("s-1")
    (move,) = ladder.choose(registry, reports, MoveMemory(), 0.0).moves
    assert move.cause is Cause.IDLE
    assert move.reason == (
        "cluster east of shard s-0 lacked machines for 8 pods of priority 0 for 6 cycles; "
        "shard s-1 had 2 idle ones here that serve 8"
    )


def test_a_shortfall_must_be_old_and_older_for_speculative_machines() -> None:
    registry = registry_of(own="s-0", idle="s-1", speculative="s-1")

    def moves_at(age: int, *would_help: wire.HelpfulDomain) -> list[tuple[str, str]]:
        return chosen(registry, report_of("s-0", short(*would_help, age=age)), report_of("s-1"))

    idle, speculative = helpful("idle", 2), helpful("speculative", 0, 2)
    assert [moves_at(age, idle) for age in (5, 6)] == [[], [("idle", "s-0")]]
    assert [moves_at(age, speculative) for age in (10, 11)] == [[], [("speculative", "s-0")]]
    assert moves_at(11, speculative, idle) == [("idle", "s-0")]


def test_the_most_urgent_shortfall_chooses_first() -> None:
    """By priority, then by age."""
    registry = registry_of(a="s-0", b="s-1", r="s-2")
    urgent = report_of("s-1", short(helpful("r", 2), priority=5))
    older = report_of("s-0", short(helpful("r", 2), age=50))
    assert chosen(registry, older, urgent, report_of("s-2")) == [("r", "s-1")]
    younger = report_of("s-1", short(helpful("r", 2)))
    assert chosen(registry, younger, older, report_of("s-2")) == [("r", "s-0")]


def test_only_domains_that_a_live_shard_owns_for_certain_move() -> None:
    """Not one that is unowned, moves already, is the shard's own, or belongs to a silent shard."""
    registry = registry_of(own="s-0", silent="s-2", moving="s-1")
    registry.apply(domains.move(registry, (RACK, "moving"), "s-2", lambda: "1-7"))
    would_help = [helpful(rack, 2) for rack in ("own", "silent", "moving", "unowned")]
    assert chosen(registry, report_of("s-0", short(*would_help)), report_of("s-1")) == []


def test_a_gang_gets_one_domain_or_none() -> None:
    """Machines of several do not help it; what a shard reports holds the whole gang."""
    registry = registry_of(own="s-0", **{f"r{n}": "s-1" for n in range(60)})
    racks = [helpful(f"r{number}", 1) for number in range(3)]
    gang = report_of("s-0", short(*racks, same_domain=True))
    assert chosen(registry, gang, report_of("s-1")) == [("r0", "s-0")]
    assert len(chosen(registry, report_of("s-0", short(*racks)), report_of("s-1"))) == 2


def test_after_a_move_the_shortfall_waits_and_the_domain_stays() -> None:
    registry, memory = registry_of(a="s-0", b="s-1", r="s-2"), MoveMemory()
    reports = report_of("s-0", short(helpful("r", 2))), report_of("s-1"), report_of("s-2")
    choice = ladder.choose(registry, reports, memory, 0.0)
    memory.note(choice.moves, choice.needs, 0.0)
    other = registry_of(a="s-0", b="s-1", r="s-0", r2="s-2")
    still = report_of("s-0", short(helpful("r2", 2)))
    rest = report_of("s-1"), report_of("s-2")
    assert chosen(other, still, *rest, memory=memory, now=SETTLING_SECONDS - 1) == []
    assert chosen(other, still, *rest, memory=memory, now=SETTLING_SECONDS) == [("r2", "s-0")]
    back = report_of("s-1", short(helpful("r", 2))), report_of("s-0"), report_of("s-2")
    assert chosen(other, *back, memory=memory, now=COOLDOWN_SECONDS - 1) == []
    assert chosen(other, *back, memory=memory, now=COOLDOWN_SECONDS) == [("r", "s-1")]


def test_a_rack_that_waits_for_a_dead_shard_keeps_no_other_from_moving() -> None:
    """In a small fleet one rack moves at a time; this one moves when its shard returns."""
    registry = registry_of(own="s-0", r1="s-1", r2="s-2")
    registry.apply(domains.move(registry, (RACK, "r2"), "s-1", lambda: "1-9", "it was short"))
    needs = report_of("s-0", short(helpful("r1", 2)))
    donor = report_of("s-1")
    assert chosen(registry, needs, donor, report_of("s-2")) == []
    assert chosen(registry, needs, donor) == [("r1", "s-0")]


def test_a_donor_keeps_a_part_of_its_machines_free() -> None:
    registry = registry_of(own="s-0", r="s-1")
    needs = report_of("s-0", short(helpful("r", 4)))
    assert chosen(registry, needs, report_of("s-1", machines=100, free=8)) == []
    assert chosen(registry, needs, report_of("s-1", machines=100, free=9)) == [("r", "s-0")]


_RACKS = [f"r{number}" for number in range(6)]
_HELP = st.lists(
    st.builds(helpful, st.sampled_from(_RACKS), st.integers(0, 4), st.integers(0, 4)), max_size=5
)
_SHORT = st.builds(
    lambda would_help, pods, age, priority, cluster, same: short(
        *would_help, pods=pods, age=age, priority=priority, cluster=cluster, same_domain=same
    ),
    _HELP,
    st.integers(0, 40),
    st.integers(0, 20),
    st.integers(0, 3),
    st.sampled_from("abc"),
    st.booleans(),
)
_REPORTS = st.fixed_dictionaries({shard: st.lists(_SHORT, max_size=3) for shard in SHARDS})


@given(st.fixed_dictionaries({r: st.sampled_from(SHARDS) for r in _RACKS}), st.lists(_REPORTS))
def test_whatever_is_reported_few_domains_move_and_none_twice_in_a_while(
    owners: dict[str, str], rounds: list[dict[str, list[wire.Shortfall]]]
) -> None:
    """At most one of six at a time, never to its owner, never without a shortfall that it helps."""
    registry, memory, numbers = registry_of(**owners), MoveMemory(), count()
    moved_at: dict[str, float] = {}
    for number, reported in enumerate(rounds):
        now = 20.0 * number
        reports = [report_of(shard, *shortfalls) for shard, shortfalls in reported.items()]
        choice = ladder.choose(registry, reports, memory, now)
        _check(registry, choice, reported)
        for move in choice.moves:
            rack = move.name[1]
            assert now - moved_at.get(rack, -COOLDOWN_SECONDS) >= COOLDOWN_SECONDS
            moved_at[rack] = now
            carry_out(registry, move, lambda: f"1-{next(numbers)}")
        memory.note(choice.moves, choice.needs, now)
    assert Counter(registry.domains[RACK, rack].state for rack in _RACKS) == {DomainState.OWNED: 6}


def _check(registry: Registry, choice: Choice, reported: dict[str, list[wire.Shortfall]]) -> None:
    assert len(choice.moves) <= 1
    for move in choice.moves:
        assert registry.domains[move.name].shard != move.to
        helped = [
            each
            for shortfall in reported[move.to]
            if shortfall.age_cycles > 5
            for each in shortfall.helpful_domains
        ]
        assert move.name[1] in {each.topology_value for each in helped if each.free_pods}


def drainable(rack: str, machines: int, priority: int = 0, pods: int = 4) -> wire.HelpfulDomain:
    """Machines in use by a priority, each for `pods` pods."""
    return wire.HelpfulDomain(
        topology_key=RACK,
        topology_value=rack,
        drained_machine_ids=[f"{rack}-{number}" for number in range(machines)],
        drained_pods=machines * pods,
        drained_priority=priority,
    )


def drained(
    registry: Registry, *reports: wire.ShardReportSnapshot, memory: MoveMemory | None = None
) -> list[tuple[str, int]]:
    """The racks that move because of machines in use, and how many of these are drained."""
    moves = ladder.choose(registry, reports, memory or MoveMemory(), 0.0).moves
    return [(move.name[1], len(move.drain.machine_ids)) for move in moves if move.drain]


def test_machines_in_use_move_last_and_only_for_a_higher_priority() -> None:
    registry = registry_of(own="s-0", r1="s-1")
    rest = report_of("s-1", machines=40)
    for age, priority, racks in ((20, 7, []), (21, 5, []), (21, 6, [("r1", 2)])):
        needs = report_of("s-0", short(drainable("r1", 2, 5), age=age, priority=priority))
        assert drained(registry, needs, rest) == racks
    free = report_of("s-0", short(helpful("r1", 2), drainable("r1", 2), age=30, priority=6))
    (move,) = ladder.choose(registry, (free, rest), MoveMemory(), 0.0).moves
    assert move.cause is Cause.IDLE


def test_a_donor_without_a_free_machine_drains_as_well_as_any() -> None:
    """That none is free anywhere is when machines in use are drained."""
    registry = registry_of(own="s-0", r1="s-1")
    needs = report_of("s-0", short(drainable("r1", 2), age=21, priority=1))
    assert drained(registry, needs, report_of("s-1", machines=40, free=0)) == [("r1", 2)]
    assert drained(registry, needs) == [], "without a report it may be unable to"


def test_of_a_donors_machines_a_quarter_is_drained_in_a_while() -> None:
    """For a gang all that it needs or none."""
    registry = registry_of(own="s-0", r1="s-1")
    rest, memory = report_of("s-1", machines=20), MoveMemory()
    needs = report_of("s-0", short(drainable("r1", 9), age=21, priority=1))
    gang = report_of("s-0", short(drainable("r1", 6), age=21, priority=1, same_domain=True))
    assert drained(registry, needs, rest) == [("r1", 5)]
    assert drained(registry, gang, rest) == []
    memory.note_drain("s-1", 5, 0.0)
    assert drained(registry, needs, rest, memory=memory) == []


def test_the_rack_where_the_fewest_machines_are_drained_moves() -> None:
    """One after the other: what is being drained may be enough."""
    registry = registry_of(own="s-0", many="s-1", few="s-1", **{f"r{n}": "s-1" for n in range(60)})
    racks = drainable("many", 4, pods=2), drainable("few", 2)
    needs = report_of("s-0", short(*racks, age=21, priority=1))
    rest = report_of("s-1", machines=40)
    choice = ladder.choose(registry, (needs, rest), MoveMemory(), 0.0)
    (move,) = choice.moves
    assert (move.name[1], move.home) == ("few", "")
    assert move.reason == (
        "cluster east of shard s-0 lacked machines for 8 pods of priority 1 for 21 cycles; no free "
        "ones served them, and shard s-1 used 2 here for priority 0 or less"
    )
    registry.apply(
        domains.move(registry, move.name, move.to, lambda: "2-1", move.reason, "", move.drain)
    )
    assert drained(registry, needs, rest) == []


def test_of_two_needs_of_a_shard_one_is_drained_for_at_a_time() -> None:
    """What is drained for the first one may be enough for both."""
    registry = registry_of(own="s-0", r1="s-1", r2="s-1", **{f"q{n}": "s-1" for n in range(60)})
    needs = report_of(
        "s-0",
        short(drainable("r1", 2), age=22, priority=1, cluster="east"),
        short(drainable("r2", 2), age=21, priority=1, cluster="west"),
    )
    assert drained(registry, needs, report_of("s-1", machines=40)) == [("r1", 2)]


def test_of_very_many_shortfalls_each_has_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise those that nothing helps would stall the leader, or keep it from all others."""
    monkeypatch.setattr(ladder, "MAX_CONSIDERED", 4)
    registry, memory = registry_of(own="s-0", r1="s-1"), MoveMemory()
    useless = [short(helpful("own", 1), age=50, cluster=f"c{n}") for n in range(10)]
    reports = (report_of("s-0", *useless, short(helpful("r1", 2))), report_of("s-1"))
    for second in range(3):
        assert registry.domains[RACK, "r1"].shard == "s-1"
        choice = ladder.choose(registry, reports, memory, 100.0 + second)
        assert len(choice.considered) == 4
        memory.note(choice.moves, choice.needs, 100.0 + second, choice.considered)
        assert [move.name[1] for move in choice.moves] == (["r1"] if second == 2 else [])


def test_a_donor_that_refuses_keeps_its_rack_for_a_while() -> None:
    """It may have begun nothing, and a moment later it would refuse again."""
    registry, memory = registry_of(own="s-0", r1="s-1"), MoveMemory()
    reports = (
        report_of("s-0", short(drainable("r1", 2), age=21, priority=1)),
        report_of("s-1", machines=40),
    )
    choice = ladder.choose(registry, reports, memory, 0.0)
    memory.note(choice.moves, choice.needs, 0.0)
    (move,) = choice.moves
    registry.apply(
        domains.move(registry, move.name, move.to, lambda: "2-1", move.reason, "", move.drain)
    )
    answer = wire.InstructAck(instruction_id="2-1", outcome=wire.InstructAck.FAILED)
    refusal = wire.ShardReport(shard_id="s-1", instruction_acks=[answer])
    registry.apply(acknowledgements.apply_acks(registry, refusal, lambda: "2-2"))
    row = registry.domains[RACK, "r1"]
    assert (row.shard, row.state, row.to, row.drained) == ("s-1", DomainState.OWNED, "", ())
    later = COOLDOWN_SECONDS - 1
    assert not ladder.choose(registry, reports, memory, later).moves
