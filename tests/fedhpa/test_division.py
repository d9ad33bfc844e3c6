"""Whole replicas are divided exactly and always in the same way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bigfleet.fedhpa.shares.division import in_proportion, lower_evenly, raise_evenly

LEVELS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 50), max_size=6)


@given(LEVELS, st.data(), st.integers(-5, 300))
def test_raising_gives_all_that_fits_and_the_lowest_first(
    levels: dict[str, int], data: st.DataObject, amount: int
) -> None:
    caps = {name: level + data.draw(st.integers(0, 40)) for name, level in levels.items()}
    after = raise_evenly(levels, caps, amount)
    fits = min(max(0, amount), sum(caps.values()) - sum(levels.values()))
    assert sum(after.values()) == sum(levels.values()) + fits
    assert all(levels[name] <= after[name] <= caps[name] for name in levels)
    raised = [after[name] for name in levels if after[name] > levels[name]]
    waiting = [after[name] for name in levels if after[name] < caps[name]]
    assert not raised or not waiting or max(raised) <= min(waiting) + 1


@given(LEVELS, st.data(), st.integers(-5, 300))
def test_lowering_takes_all_that_it_may_and_the_highest_first(
    levels: dict[str, int], data: st.DataObject, amount: int
) -> None:
    floors = {name: data.draw(st.integers(0, level)) for name, level in levels.items()}
    after = lower_evenly(levels, floors, amount)
    takes = min(max(0, amount), sum(levels.values()) - sum(floors.values()))
    assert sum(after.values()) == sum(levels.values()) - takes
    assert all(floors[name] <= after[name] <= levels[name] for name in levels)


@given(LEVELS, st.integers(-5, 400))
def test_a_proportion_is_exact_and_none_gets_more_than_it_wants(
    wants: dict[str, int], amount: int
) -> None:
    given_ = in_proportion(amount, wants)
    assert sum(given_.values()) == min(max(0, amount), sum(wants.values()))
    assert all(0 <= given_[name] <= wants[name] for name in wants)


def test_odd_replicas_go_to_the_first_in_order() -> None:
    assert raise_evenly({"b": 0, "a": 0, "c": 0}, dict.fromkeys("bac", 99), 7) == {
        "b": 3,
        "a": 2,
        "c": 2,
    }


def test_a_million_replicas_are_divided_without_counting_them_one_by_one() -> None:
    levels = {f"c{i}": i for i in range(100)}
    after = raise_evenly(levels, dict.fromkeys(levels, 10**9), 10**6)
    assert sum(after.values()) == sum(levels.values()) + 10**6
    assert max(after.values()) - min(after.values()) <= 1
