"""The limit of one cluster's demand in bytes: the excess is left out need by need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bigfleet.adapters.provider.memory import MemoryProvider
from bigfleet.commands import shard_queries
from bigfleet.model.group import group_text
from bigfleet.model.machine import MachineState
from bigfleet.model.need import Need
from bigfleet.observe.metrics import REGISTRY
from bigfleet.services.shard.demand import demand_limit
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.records.interning import Numbers
from tests.support.shard_rig import cycles, machine, need, rollup, shard
from tests.support.waiting import eventually

AT_MOST = 5
_S = MachineState


@pytest.fixture(autouse=True)
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five small needs."""
    limit = AT_MOST * demand_limit.MIN_BYTES_OF_A_NEED
    monkeypatch.setattr(demand_limit, "MAX_DEMAND_BYTES", limit)


def table() -> NeedsTable:
    return NeedsTable(Numbers())


def in_force(needs: NeedsTable) -> list[str]:
    return [group_text(each.group) for each in needs.demand().needs]


def replaced(needs: NeedsTable, *now: Need, at: float) -> list[str]:
    """The groups that are left out."""
    left_out = needs.replace(rollup("east", *now), at).left_out
    return [group_text(now[index].group) for index in sorted(left_out)]


def test_what_fits_is_served_whole() -> None:
    """Up to the limit nothing is left out."""
    needs = table()
    assert replaced(needs, *(need(group=f"g{n}") for n in range(AT_MOST)), at=1) == []
    assert len(needs) == AT_MOST
    assert needs.left_out == {}


def test_a_need_of_many_bytes_counts_for_several() -> None:
    """The limit is one of bytes, not of needs."""
    needs = table()
    long = need(group="x" * 3 * demand_limit.MIN_BYTES_OF_A_NEED, priority=1)
    assert len(replaced(needs, long, *(need(group=f"g{n}") for n in range(4)), at=1)) == 3
    assert len(needs) == 2


def test_a_need_that_is_too_large_by_itself_leaves_out_no_other() -> None:
    """It is rejected by name, whatever its priority."""
    needs = table()
    endless = need(group="x" * 2**18, priority=9)
    every = [endless, *(need(group=f"g{n}") for n in range(AT_MOST))]
    outcome = needs.replace(rollup("east", *every), 1)
    assert (list(outcome.needs), list(outcome.left_out)) == ([0], [])
    assert len(needs) == AT_MOST


def test_a_new_need_displaces_none_of_its_own_priority() -> None:
    """Also where its name would come first, and where those that are served ask for more."""
    needs = table()
    replaced(needs, *(need(group=f"g{n}") for n in range(AT_MOST)), at=1)
    grown = [need(1 + n, group=f"g{n}") for n in range(AT_MOST)]
    assert replaced(needs, need(group="a"), *grown, at=2) == ["a"]
    assert [each.aggregate for each in needs.demand().needs] == [e.aggregate for e in grown]


def test_a_need_of_higher_priority_displaces_the_last_of_the_lowest() -> None:
    """Priority comes before arrival."""
    needs = table()
    first = [need(group=f"g{n}") for n in range(AT_MOST - 1)]
    replaced(needs, *first, at=1)
    late = need(group="a-late")
    replaced(needs, *first, late, at=2)
    assert replaced(needs, *first, late, need(group="urgent", priority=9), at=3) == ["a-late"]
    assert in_force(needs)[0] == "urgent"


def test_what_was_left_out_is_served_once_there_is_room() -> None:
    """No roll-up freezes what came before."""
    needs = table()
    every = [need(group=f"g{n}") for n in range(AT_MOST + 2)]
    assert replaced(needs, *every, at=1) == ["g5", "g6"]
    assert replaced(needs, *every[2:], at=2) == []
    assert in_force(needs) == ["g2", "g3", "g4", "g5", "g6"]


def test_nothing_is_reclaimed_from_a_cluster_that_exceeds_the_limit() -> None:
    """It is unknown which of its machines run pods of needs that are left out."""
    needs = table()
    every = [need(group=f"g{n}") for n in range(AT_MOST + 1)]
    replaced(needs, *every, at=1)
    assert needs.demand().reported == frozenset()
    replaced(needs, *every[1:], at=2)
    assert len(needs.demand().reported) == 1


DEMANDS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1200), st.booleans()), max_size=12)


@given(DEMANDS, st.randoms(use_true_random=False))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_need_is_served_before_one_that_goes_before_it(
    demands: Sequence[tuple[int, int, bool]], shuffle: Random
) -> None:
    """By priority, then arrival; within the limit, and whatever the order of the roll-up."""
    every = [
        need(group=f"{n:02}{'x' * length}", priority=priority)
        for n, (priority, length, _) in enumerate(demands)
    ]
    early = [each for each, (_, _, came_early) in zip(every, demands, strict=True) if came_early]
    outcomes = []
    for _ in range(2):
        needs = table()
        needs.replace(rollup("east", *early), 1)
        known = set(in_force(needs))
        left_out = set(replaced(needs, *every, at=2))
        served = set(in_force(needs))
        assert served.isdisjoint(left_out)
        assert served | left_out == {group_text(each.group) for each in every}
        ranks = {
            group_text(each.group): (-each.priority, group_text(each.group) not in known)
            for each in every
        }
        last_served = max((ranks[group] for group in served), default=(-9, False))
        assert all(last_served <= ranks[group] for group in left_out)
        outcomes.append(served)
        shuffle.shuffle(every)
    assert outcomes[0] == outcomes[1]


async def test_the_excess_is_reported_and_the_rest_is_served(tmp_path: Path) -> None:
    """To the operator by index, in `bigfleet why` and as a metric, until it is gone."""
    provider = MemoryProvider([machine("m-1")], auto_finish=True)
    async with shard(provider, tmp_path) as rig:
        operator = await rig.operator()
        low = [need(group=f"g{n}", zone="nowhere") for n in range(AT_MOST + 2)]
        ack = await operator.roll_up(*low, need(group="high", priority=9))
        assert list(ack.left_out) == [4, 5, 6]
        assert "exceed" in ack.left_out_why
        assert not ack.rejected
        await operator.receives_state("m-1", _S.CONFIGURED)
        await eventually(lambda: _left_out() == 3)
        told = await shard_queries.ask(rig.address, shard_queries.need_query("east"))
        assert "3 more needs of cluster east left out" in told.as_text()
        assert told.data["left_out"] == 3
        ack = await operator.roll_up(*low[:2])
        assert not ack.left_out
        await cycles(rig, 1)
        assert _left_out() == 0


def _left_out() -> float:
    return REGISTRY.get_sample_value("bigfleet_shard_needs_left_out") or 0.0
