"""The needs table: full replacement, stable arrival, one order for all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds
from bigfleet.engine.need_columns import NeedColumns, need_columns_of
from bigfleet.model.errors import InvalidInput
from bigfleet.model.group import group_text
from bigfleet.model.need import Need, NeedKey
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.demand.rollup_rows import encoded
from bigfleet.services.shard.records.interning import Numbers
from tests.support.shard_rig import need, rollup
from tests.support.wire_strategies import CLUSTERS, rollups


def table() -> NeedsTable:
    return NeedsTable(Numbers())


def groups(count: int, first: int = 0) -> list[Need]:
    return [need(group=f"g{n}") for n in range(first, first + count)]


def names(needs: NeedsTable) -> list[str]:
    return [group_text(n.group) for n in needs.demand().needs]


def test_a_rollup_replaces_all_of_its_cluster_and_nothing_else() -> None:
    """What a cluster does not repeat is gone; other clusters' needs stay."""
    needs = table()
    needs.replace(rollup("east", *groups(2)), 1)
    needs.replace(rollup("west", need(group="w")), 2)
    needs.replace(rollup("east", *groups(1, first=1)), 3)
    assert names(needs) == ["g1", "w"]
    assert len(needs) == 2


def test_demand_is_in_the_order_of_service() -> None:
    """Priority descending, then arrival, then cluster name, then the need's key."""
    needs = table()
    west = need(group="w-late", priority=1), need(group="w-top", priority=9)
    needs.replace(rollup("west", *west), 5)
    needs.replace(rollup("east", need(group="e2", priority=1), need(group="e1", priority=1)), 5)
    needs.replace(rollup("north", need(group="n-early", priority=1)), 4)
    assert names(needs) == ["w-top", "n-early", "e1", "e2", "w-late"]


def test_a_need_that_stays_keeps_its_arrival() -> None:
    """A need whose amount changes is not put behind those that came later."""
    needs = table()
    needs.replace(rollup("west", need(group="old")), 1)
    needs.replace(rollup("east", need(group="young")), 2)
    needs.replace(rollup("west", need(3, group="old")), 3)
    assert names(needs) == ["old", "young"]
    assert needs.demand().needs[0].aggregate == need(3).aggregate


def test_a_need_that_comes_back_arrives_anew() -> None:
    """Absent from one roll-up, a need loses its place."""
    needs = table()
    needs.replace(rollup("west", need(group="back")), 1)
    needs.replace(rollup("east", need(group="there")), 2)
    needs.replace(rollup("west"), 3)
    needs.replace(rollup("west", need(group="back")), 4)
    assert names(needs) == ["there", "back"]


def test_one_bad_need_is_left_out_alone() -> None:
    """What is wrong names cluster, need and value; all other changes of the roll-up count."""
    needs = table()
    needs.replace(rollup("east", *groups(2)), 1)
    bad = rollup("east", need(group="new"), need(group="bad"), need(group="g1"))
    bad.needs[1].min_unit["cpu"] = "-1"
    taken = needs.replace(bad, 2)
    assert taken.held == ""
    assert list(taken.needs) == [1]
    assert "cluster east, need 1: min_unit" in taken.needs[1]
    assert sorted(names(needs)) == ["g1", "new"]


def test_a_need_that_turns_bad_stays_as_it_was() -> None:
    """Its machines must not be given back for a fault in what was said of it last."""
    needs = table()
    needs.replace(rollup("east", *groups(2)), 1)
    bad = rollup("east", need(3, group="g0"), need(3, group="g1"))
    bad.needs[1].ClearField("sizes")
    bad.needs[1].aggregate_resources["cpu"] = "lots"
    assert list(needs.replace(bad, 2).needs) == [1]
    assert {group_text(n.group): n.pods for n in needs.demand().needs} == {"g0": 3, "g1": 1}
    assert not needs.replace(rollup("east", need(group="g0")), 3).needs
    assert names(needs) == ["g0"]


def test_a_rollup_of_which_nothing_makes_sense_is_refused() -> None:
    """Its sender may be of another release: the last good roll-up stays whole."""
    needs = table()
    needs.replace(rollup("east", *groups(2)), 1)
    bad = rollup("east", need(group="new"))
    bad.needs[0].requirements[0].operator = 99  # type: ignore[assignment]
    with pytest.raises(InvalidInput, match="cluster east, need 0: operator"):
        needs.replace(bad, 2)
    assert names(needs) == ["g0", "g1"]


def test_a_repeated_need_counts_once() -> None:
    """Two needs of one profile and group are a sender's error, also when both are known already."""
    needs = table()
    needs.replace(rollup("east", need()), 1)
    taken = needs.replace(rollup("east", need(), need()), 2)
    assert "repeats" in taken.needs[1]
    assert len(needs) == 1


def test_an_unchanged_need_is_not_parsed_again() -> None:
    """The same bytes give the very same record, and an unchanged table the very same demand."""
    needs = table()
    needs.replace(rollup("east", *groups(3)), 1)
    before = needs.demand()
    again = ClusterCapacityNeeds.FromString(rollup("east", *groups(3)).SerializeToString())
    needs.replace(again, 2)
    after = needs.demand()
    assert all(a is b for a, b in zip(before.needs, after.needs, strict=True))
    assert needs.demand() is after


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["east", "west"]),
            st.dictionaries(st.sampled_from("abcd"), st.integers(1, 3), max_size=4),
            st.booleans(),
        ),
        max_size=8,
    )
)
def test_columns_and_numbers_are_as_if_all_needs_were_read_anew(
    changes: list[tuple[str, dict[str, int], bool]],
) -> None:
    """Whatever comes, goes or only changes its size, and after needs have got other numbers."""
    numbers = Numbers()
    needs = NeedsTable(numbers)
    for at, (cluster, pods, renumbered) in enumerate(changes):
        needs.replace(rollup(cluster, *(need(n, group=g) for g, n in pods.items())), at)
        if renumbered:
            numbers.needs.keep(np.empty(0, np.int32))
        demand = needs.demand()
        assert demand.number is not None
        columns, afresh = need_columns_of(demand.needs), NeedColumns([*demand.needs])
        assert [numbers.needs[number] for number in demand.number.tolist()] == [
            NeedKey(numbers.clusters[cluster], *wanted.key)
            for wanted, cluster in zip(demand.needs, demand.cluster.tolist(), strict=True)
        ]
        assert columns.pods.tolist() == afresh.pods.tolist() == [n.pods for n in demand.needs]
        assert columns.priority.tolist() == afresh.priority.tolist()
        assert columns.start.tolist() == afresh.start.tolist()


def test_only_clusters_that_reported_count_as_reported() -> None:
    """An empty roll-up is a report; a refused one is not."""
    numbers = Numbers()
    needs = NeedsTable(numbers)
    bad = rollup("west", need())
    bad.needs[0].priority = 3
    bad.needs[0].interruption_penalty_bucket = 99  # type: ignore[assignment]
    needs.replace(rollup("east"), 1)
    with pytest.raises(InvalidInput):
        needs.replace(bad, 1)
    assert needs.demand().reported == {numbers.clusters.number("east")}


def test_a_cluster_is_known_to_have_grown_and_shrunk() -> None:
    """By the number of pods, and by needs that come and go."""
    needs = table()
    needs.replace(rollup("east", need(2)), 1.0)
    needs.replace(rollup("east", need(1)), 2.0)
    needs.replace(rollup("east", need(1), need(1, group="g")), 3.0)
    demand = needs.demand()
    assert (demand.rose_seconds, demand.fell_seconds) == ({0: 3.0}, {0: 2.0})


def test_additional_needs_that_come_and_go_are_no_change_of_demand() -> None:
    """Or pods would be evicted, as if demand had fallen, because others have found a place."""
    needs = table()
    needs.replace(rollup("east", need(2)), 1.0)
    needs.replace(rollup("east", need(2), need(1, group="additional")), 2.0)
    needs.replace(rollup("east", need(2)), 3.0)
    demand = needs.demand()
    assert (demand.rose_seconds, demand.fell_seconds) == ({0: 1.0}, {})


def test_a_collapse_is_held_until_three_agree() -> None:
    """A roll-up that keeps less than a tenth of ten or more pods counts from the third on."""
    needs = table()
    needs.replace(rollup("east", *groups(10)), 1)
    for count in (1, 2):
        held = needs.replace(rollup("east"), 1 + count).held
        assert "from 10 pods to 0 pods" in held
        assert len(needs) == 10
    assert needs.replace(rollup("east"), 4).held == ""
    assert len(needs) == 0


def test_a_sound_rollup_ends_the_doubt() -> None:
    """Agreement must be consecutive: one roll-up as before starts the count anew."""
    needs = table()
    needs.replace(rollup("east", *groups(10)), 1)
    for _ in range(3):
        assert needs.replace(rollup("east"), 2).held
        assert needs.replace(rollup("east"), 3).held
        assert needs.replace(rollup("east", *groups(10)), 4).held == ""
    assert len(needs) == 10


def test_a_held_rollup_counts_as_report() -> None:
    """A cluster that was believed before is still one whose machines may serve others."""
    numbers = Numbers()
    needs = NeedsTable(numbers)
    needs.replace(rollup("east", *groups(10)), 1)
    assert needs.replace(rollup("east"), 2).held
    assert numbers.clusters.number("east") in needs.demand().reported


def test_silence_confirms_a_held_rollup() -> None:
    """An operator that speaks only on change is believed 30 s after its last word."""
    needs = table()
    needs.replace(rollup("east", *groups(10)), 0)
    needs.replace(rollup("east"), 100)
    assert needs.release_held(129) == []
    assert needs.release_held(130) == ["east"]
    assert len(needs) == 0
    assert [*needs.demand().fell_seconds.values()] == [130]  # when it took effect


def test_a_departed_operators_doubt_is_dropped() -> None:
    """What an operator said just before it went away is not taken over by silence."""
    needs = table()
    needs.replace(rollup("east", *groups(10)), 0)
    needs.replace(rollup("east"), 100)
    needs.forget_held("east")
    assert needs.release_held(1000) == []
    assert len(needs) == 10


@pytest.mark.parametrize(("before", "kept", "held"), [(9, 0, False), (10, 1, False), (11, 1, True)])
def test_the_guard_looks_at_large_losses_only(before: int, kept: int, held: bool) -> None:
    """Fewer than ten pods may go at once, and keeping a tenth is enough."""
    needs = table()
    needs.replace(rollup("east", *groups(before)), 1)
    assert bool(needs.replace(rollup("east", *groups(kept)), 2).held) is held


_rollups = st.lists(
    st.tuples(
        st.sampled_from(["east", "west"]),
        st.dictionaries(st.integers(0, 5), st.integers(0, 2), max_size=5),
    ),
    max_size=8,
)


@given(_rollups)
def test_any_history_equals_its_last_rollups(history: Sequence[tuple[str, dict[int, int]]]) -> None:
    """Whatever came before, the demand is the last roll-up of each cluster, in order of service."""
    needs = table()
    last: dict[str, list[Need]] = {}
    for moment, (cluster, wanted) in enumerate(history):
        last[cluster] = [need(group=f"g{g}", priority=p) for g, p in wanted.items()]
        needs.replace(rollup(cluster, *last[cluster]), moment)
    demand = needs.demand()
    expected = {(c, n.key) for c, all_needs in last.items() for n in all_needs}
    clusters = needs._clusters
    got = [(clusters[int(c)], n.key) for c, n in zip(demand.cluster, demand.needs, strict=True)]
    assert sorted(got) == sorted(expected)
    priorities = [n.profile.priority for n in demand.needs]
    assert priorities == sorted(priorities, reverse=True)


@given(
    rollups(CLUSTERS[0]),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(
        [b"", b"\x98>a", b"\x99>12345678", b"\x9a>\x02ab", b"\x9d>1234", b"\x9b>\x9c>"]
    ),
)
def test_each_need_has_its_own_bytes_whatever_else_is_in_the_roll_up(
    rollup: ClusterCapacityNeeds, sent_at: int, unknown: bytes
) -> None:
    """Also fields of later versions, of every type."""
    rollup.timestamp_unix_nanos = sent_at
    later = ClusterCapacityNeeds.FromString(unknown + rollup.SerializeToString())
    expected = [need.SerializeToString(deterministic=True) for need in rollup.needs]
    assert encoded(later) == expected
