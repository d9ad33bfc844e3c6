"""Which domains move for balance, and what keeps a fleet at rest."""

from __future__ import annotations

from collections import Counter
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.services.coordinator import domains, rebalancing, shard_removal, shards
from bigfleet.services.coordinator.domain_moves import COOLDOWN_SECONDS, Cause, MoveMemory
from bigfleet.services.coordinator.registry import Registry
from bigfleet.services.coordinator.rows import Domain
from tests.services.coordinator.domains_rig import RACK, SHARDS, carry_out, owned_rack, registry_of


def racks(shard: str, number: int, machines: int = 8, of_type: str = "m6") -> list[Domain]:
    return [owned_rack(f"{shard}-{of_type}-{n}", shard, machines, of_type) for n in range(number)]


def reports_of(
    registry: Registry,
    *names: str,
    in_use: dict[str, int] | None = None,
    short: str = "",
    fixed: tuple[str, ...] = (),
) -> list[wire.ShardReportSnapshot]:
    """Each of the shards could give any of its racks but the `fixed` ones."""
    return [
        wire.ShardReportSnapshot(
            shard_id=name,
            shortfalls=[wire.Shortfall(cluster_id="east")] if name == short else [],
            movable_domains=[
                wire.MovableDomain(
                    topology_key=row.topology_key,
                    topology_value=row.topology_value,
                    machines_in_use=(in_use or {}).get(row.topology_value, 0),
                )
                for row in registry.domains_of(name)
                if row.topology_value not in fixed
            ],
        )
        for name in names
    ]


def chosen(
    registry: Registry,
    *names: str,
    in_use: dict[str, int] | None = None,
    short: str = "",
    fixed: tuple[str, ...] = (),
) -> list[tuple[str, str]]:
    """The racks that move, and to which shards, with all allowed to move at once."""
    reports = reports_of(registry, *(names or SHARDS), in_use=in_use, short=short, fixed=fixed)
    moves = rebalancing.choose(registry, reports, MoveMemory(), 0.0)
    return [(move.name[1], move.to) for move in moves]


def play(registry: Registry, rounds: int = 100) -> int:
    """Move until nothing is due any more; returns how many domains have moved."""
    memory, numbers, moved = MoveMemory(), count(), 0
    for number in range(rounds):
        now = COOLDOWN_SECONDS * number
        moves = rebalancing.choose(registry, reports_of(registry, *SHARDS), memory, now)
        if not moves:
            return moved
        for move in moves:
            carry_out(registry, move, lambda: f"1-{next(numbers)}")
        memory.note(moves, [], now)
        moved += len(moves)
    raise AssertionError("it never comes to rest")


def counts(registry: Registry, of_type: str = "m6") -> list[int]:
    return [registry.load(name).of_type[of_type] for name in SHARDS]


def test_a_shard_that_joins_gets_its_even_part_of_each_instance_type() -> None:
    registry = registry_of(
        *racks("s-0", 6), *racks("s-1", 6), *racks("s-0", 3, 4, "g6"), *racks("s-1", 3, 4, "g6")
    )
    assert play(registry) == 6
    assert counts(registry) == [32, 32, 32]
    assert counts(registry, "g6") == [8, 8, 8]


def test_a_fleet_within_the_margin_is_at_rest() -> None:
    registry = registry_of(*racks("s-0", 11, 1), *racks("s-1", 10, 1), *racks("s-2", 9, 1))
    assert chosen(registry) == []


def test_racks_that_are_larger_than_the_difference_stay() -> None:
    """They would only change places."""
    assert chosen(registry_of(*racks("s-0", 1), *racks("s-1", 1))) == []
    assert chosen(registry_of(*racks("s-0", 2)), "s-0", "s-1") == [("s-0-m6-0", "s-1")]


def test_the_least_used_rack_moves() -> None:
    registry = registry_of(*racks("s-0", 3))
    used = {"s-0-m6-0": 2, "s-0-m6-1": 1, "s-0-m6-2": 3}
    assert chosen(registry, "s-0", "s-1", in_use=used) == [("s-0-m6-1", "s-1")]


def test_a_rack_that_its_shard_cannot_give_stays() -> None:
    registry = registry_of(*racks("s-0", 3))
    assert chosen(registry, fixed=("s-0-m6-0", "s-0-m6-1")) == [("s-0-m6-2", "s-1")]


def test_the_reason_names_both_shards_and_what_would_be_even() -> None:
    registry = registry_of(*racks("s-0", 3))
    (move,) = rebalancing.choose(registry, reports_of(registry, "s-0", "s-1"), MoveMemory(), 0.0)
    assert move.cause is Cause.BALANCE
    assert move.reason == (
        "shard s-0 had 24 machines of type m6 and shard s-1 0, where 12 would be even"
    )


def test_a_shard_that_lacks_machines_gives_none() -> None:
    assert chosen(registry_of(*racks("s-0", 6)), short="s-0") == []
    assert chosen(registry_of(*racks("s-0", 6)), short="s-1") == [("s-0-m6-0", "s-1")]


def test_a_rack_on_loan_counts_for_its_home() -> None:
    """It neither moves back nor makes others move; nor does it move on."""
    registry = registry_of(*racks("s-0", 2), *racks("s-1", 2), *racks("s-2", 2))
    lent = registry.domains[RACK, "s-0-m6-0"]
    changes = domains.move(registry, lent.name, "s-1", lambda: "1-9", "it was short")
    registry.apply(changes)
    registry.apply(domains.released(registry, registry.domains[lent.name], lambda: "1-10"))
    registry.apply(domains.taken(registry.domains[lent.name]))
    assert counts(registry) == [8, 24, 16]
    assert chosen(registry) == []
    assert registry.domains[lent.name].home == "s-0"


def test_what_a_removed_shard_had_lent_stays_where_it_is() -> None:
    registry = registry_of(owned_rack("r1", "s-1", 8, "m6", home="s-0"), *racks("s-2", 1))
    registry.apply(shards.removed(registry, "s-0"))
    registry.apply(shard_removal.orphaned_rows(registry, 10, lambda: "1-9"))
    assert registry.domains[RACK, "r1"].home == "s-1"
    assert shard_removal.orphaned_rows(registry, 10, lambda: "1-10") == {}


def test_a_rack_on_its_way_to_a_removed_shard_stays_where_it_is() -> None:
    """Its new home is not the shard that it was to go to: that row would be orphaned for ever."""
    registry = registry_of(*racks("s-1", 1), *racks("s-2", 1))
    on_its_way = registry.domains[RACK, "s-1-m6-0"]
    registry.apply(domains.move(registry, on_its_way.name, "s-0", lambda: "1-9", "", "s-0"))
    registry.apply(shards.removed(registry, "s-0"))
    registry.apply(shard_removal.orphaned_rows(registry, 10, lambda: "1-10"))
    assert registry.domains[on_its_way.name].home == "s-1"
    assert shard_removal.orphaned_rows(registry, 10, lambda: "1-11") == {}


def test_a_rack_of_an_earlier_release_is_at_home_with_its_shard() -> None:
    assert owned_rack("r1", "s-1").home == "s-1"


_RACK = st.tuples(st.sampled_from(SHARDS), st.integers(0, 12), st.sampled_from(["m6", "g6"]))


@given(st.lists(_RACK, max_size=40))
def test_any_fleet_comes_to_rest_as_even_as_its_racks_allow(
    made: list[tuple[str, int, str]],
) -> None:
    """No shard has more of a type than another by more than a rack, or the margin."""
    rows = [
        owned_rack(f"r{number}", shard, machines, of_type)
        for number, (shard, machines, of_type) in enumerate(made)
    ]
    registry = registry_of(*rows)
    before = Counter(rack.instance_type for rack in rows for _ in range(rack.machines))
    play(registry)
    for of_type in ("m6", "g6"):
        found, even = counts(registry, of_type), before[of_type] / len(SHARDS)
        assert sum(found) == before[of_type]
        if max(found) > 1.1 * even or min(found) < 0.9 * even:
            giver = SHARDS[found.index(max(found))]
            sizes = [
                row.machines
                for row in registry.domains_of(giver)
                if row.instance_type == of_type and row.machines
            ]
            assert max(found) - min(found) <= min(sizes)
