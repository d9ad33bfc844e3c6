"""What two revisions do differently without any luck comes first, and is shown."""

from __future__ import annotations

import msgspec

from loaddriver.compare.fact_runner import gather
from loaddriver.compare.facts import EngineRow, engine_facts, story_fact, traffic_facts
from loaddriver.compare.measures import BYTES, WRITES, pair_measures
from tests.compare.compare_rig import run

STORY = "      1.00 decided m1\n      2.00 state m1 BOOTING\n"


def test_equal_stories_are_no_change() -> None:
    fact = story_fact({1: STORY, 2: STORY}, {1: STORY, 2: STORY})
    assert (fact.changed, fact.lines) == (False, [])
    assert "2 seeds" in fact.sentence


def test_another_action_is_a_change_that_is_shown() -> None:
    """The first seed that differs, with the lines of both sides."""
    other = STORY.replace("2.00 state m1", "2.50 state m1")
    fact = story_fact({1: STORY, 2: STORY}, {1: STORY, 2: other})
    assert fact.changed
    assert "1 of 2 seeds" in fact.sentence
    assert "seed 2" in fact.sentence
    assert "-      2.00 state m1 BOOTING" in fact.lines
    assert "+      2.50 state m1 BOOTING" in fact.lines


def test_a_long_difference_is_cut() -> None:
    fact = story_fact({1: "a\n" * 200}, {1: "b\n" * 200})
    assert len(fact.lines) == 12


def test_what_a_revision_cannot_tell_is_not_established() -> None:
    assert story_fact({1: STORY}, {1: None}).changed is None
    assert [each.changed for each in engine_facts([[row(1.0)]], [[]])] == [None]


def row(milliseconds: float, orders: int = 7) -> EngineRow:
    return EngineRow("small", milliseconds, orders, 0)


def test_the_engines_cpu_is_the_median_of_its_rounds() -> None:
    base = [[row(1.0)], [row(9.0)], [row(1.0)]]
    (fact,) = engine_facts(base, [[row(1.2)]] * 3)
    assert fact.changed is False
    assert "1 and 1.2 ms of CPU a decision (+20.0 %)" in fact.sentence


def test_other_orders_are_a_change() -> None:
    (fact,) = engine_facts([[row(1.0)]], [[row(1.0, orders=8)]])
    assert fact.changed
    assert fact.lines == [
        "-7 orders, 0 needs short at the end",
        "+8 orders, 0 needs short at the end",
    ]


def test_one_checkout_has_nothing_to_differ_in() -> None:
    said: list[str] = []
    assert gather("", "", said.append) == []
    assert said == []


def test_writes_and_bytes_of_one_run_of_each_side_are_facts() -> None:
    """Writes hardly vary, so a tenth more of them is a change."""
    was, now = (
        msgspec.structs.replace(run(), described={WRITES: writes, BYTES: size})
        for writes, size in ((40.0, 1e6), (44.0, 1.02e6))
    )
    writes, moved = traffic_facts(pair_measures(was, now))
    assert (writes.name, writes.changed, moved.changed) == (WRITES, True, False)
    assert "40 and 44 (+10.0 %) in the first run of each side" in writes.sentence


def test_what_the_servers_did_not_tell_is_no_fact() -> None:
    assert traffic_facts(pair_measures(run(), run())) == []
