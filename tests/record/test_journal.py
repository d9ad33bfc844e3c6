"""The shards' journals tell when a machine was chosen and when it began to boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bigfleet.api.journal import JournalEvent, JournalLine
from bigfleet.engine.decision import ActionType
from bigfleet.services.shard.records.journal import Journal as ShardJournal
from loaddriver.record.journal import (
    Acquisition,
    Event,
    Journal,
    RollUp,
    count_machines,
    read_journals,
)
from tests.record.record_rig import at


def entry(seconds: float, event: str, **more: str | float) -> dict[str, object]:
    return {"at": at(seconds) / 1e6, "event": event, "machine": "m1", "cluster": "c1", **more}


def rollup(
    built: float, at_seconds: float, event: str = "rollup-accepted", cluster: str = "c1"
) -> dict[str, object]:
    return {
        "at": at(at_seconds) / 1e6,
        "event": event,
        "cluster": cluster,
        "sequence": at(built) * 1000,
    }


TWO_LIVES = [
    entry(1, "decided", action="Provision"),
    entry(1.5, "state", state="CREATING"),
    entry(2, "state", state="IDLE"),
    entry(3, "decided", action="Bootstrap"),
    entry(4, "state", state="CONFIGURING"),
    entry(6, "state", state="CONFIGURED"),
    entry(50, "decided", action="Reclaim"),
    entry(51, "state", state="DRAINING"),
    entry(52, "state", state="IDLE"),
    entry(60, "decided", action="Bootstrap"),
    entry(61, "state", state="CONFIGURING"),
    entry(64, "state", state="CONFIGURED"),
]


def written(folder: Path, entries: list[dict[str, object]], torn: bytes = b"") -> Path:
    path = folder / "journal.jsonl"
    path.write_bytes(msgspec.json.Encoder().encode_lines(entries) + torn)
    return path


class Now:
    """A clock that stands still."""

    def unix_seconds(self) -> float:
        """Seconds since 1970."""
        return 1_700_000_000.5

    def monotonic_seconds(self) -> float:
        """Seconds since an unspecified moment."""
        return 0.5


def test_the_harness_reads_every_line_that_a_shard_writes(tmp_path: Path) -> None:
    """Each event, and each field of the schema, comes back as it was recorded."""
    path = tmp_path / "journal.jsonl"
    values: dict[str, Any] = {
        "machine": "m-1", "state": "IDLE", "action": "Preempt", "cluster": "c1", "claimant": "c2",
        "decided": 1.25, "grace": 0, "need": "abc", "group": "additional", "note": "why",
        "needs": 0, "sequence": 2**62, "requests": 5, "lacks": {"cpu": "2"}, "count": 3,
    }  # fmt: skip
    shards = ShardJournal(path, Now())
    shards.begin("shard-0", 7)
    for event in JournalEvent:
        shards.note(event, **values)
    shards.close()
    read = read_journals([path])
    assert (read.undecodable, list(read.stories)) == (0, ["m-1"])
    assert [line.event for line in read.stories["m-1"]] == list(JournalEvent)
    fixed = {"at": Now().unix_seconds(), "shard": "shard-0", "epoch": 7}
    for line in read.stories["m-1"]:
        assert msgspec.to_builtins(line) == values | fixed | {"event": line.event}
    assert {*values, *fixed, "event"} == set(JournalLine.__struct_fields__), "every field was tried"


def test_the_harness_knows_each_action_of_a_shard() -> None:
    """What an order does to its machine is read from the name of its action."""

    decided = [
        Event(1.0, JournalEvent.DECIDED, action=each.value, cluster="c1") for each in ActionType
    ]
    acquired = [event.action for event in decided if event.chooses_for("c1")]
    taken = [event.action for event in decided if event.takes]
    preempted = [event.action for event in decided if event.preempts]
    assert acquired == [ActionType.BOOTSTRAP.value, ActionType.PROVISION.value]
    assert taken == [ActionType.PREEMPT.value, ActionType.RECLAIM.value]
    assert preempted == [ActionType.PREEMPT.value]


def test_each_life_of_a_machine_has_its_own_choice(tmp_path: Path) -> None:
    """The first choice counts where a machine was created for the need and then joined."""
    journal = read_journals([written(tmp_path, TWO_LIVES)])
    assert journal.acquisition("m1", "c1", 0, at(5)) == Acquisition(at(1), at(4))
    assert journal.acquisition("m1", "c1", at(5), at(63)) == Acquisition(at(60), at(61))


def test_a_node_proves_that_its_machine_has_booted(tmp_path: Path) -> None:
    """A shard that hears of CONFIGURING late does not move the machine's boot past its Node."""
    journal = read_journals([written(tmp_path, TWO_LIVES)])
    assert journal.acquisition("m1", "c1", 0, at(3.5)) == Acquisition(at(1), at(3.5))


ROLLUPS = [
    rollup(built=1, at_seconds=1.1),
    rollup(built=5, at_seconds=5.4, event="rollup-accepted-in-part"),
    rollup(built=6, at_seconds=6.1, cluster="c2"),
    rollup(built=9, at_seconds=9.2, event="rollup-held"),
    rollup(built=10, at_seconds=10.1, event="rollup-rejected"),
]


@pytest.mark.parametrize(
    ("requested", "reported", "accepted"),
    [
        (4.9, 5.5, 5.4),
        (0.5, 5.5, 5.4),  # built before its operator had seen it
        (4.9, None, 5.4),
        (7, None, 9.2),
        (9.5, None, None),
        (0.2, 0.5, None),
        (None, None, None),
    ],
)
def test_a_request_is_rolled_up_when_a_shard_has_accepted_it(
    tmp_path: Path, requested: float | None, reported: float | None, accepted: float | None
) -> None:
    """By the shard's own record of that roll-up: the last that was built before its operator
    reported the request as accepted, else the first that was built after the request existed.
    """
    journal = read_journals([written(tmp_path, ROLLUPS)])
    moments = (None if each is None else at(each) for each in (requested, reported))
    found = journal.roll_up_with("c1", *moments)
    assert (found and found.accepted_micros) == (None if accepted is None else at(accepted))


COUNTED = {
    "c1": [RollUp(at(1), at(1.1), 0), RollUp(at(5), at(5.4), 3), RollUp(at(9), at(9.2), 4)],
    "restarted": [RollUp(at(1), at(1.1), 7), RollUp(at(5), at(5.4), 2)],
    "unknown": [RollUp(at(1), at(1.1)), RollUp(at(5), at(5.4))],
}


def test_a_request_is_in_the_first_roll_up_that_counts_it() -> None:
    """Not in one that was built after it existed, but before its operator had observed it."""
    journal = Journal({}, 0, COUNTED)
    for number, accepted in ((1, 5.4), (3, 5.4), (4, 9.2)):
        found = journal.roll_up_with("c1", at(0.5), None, number)
        assert found is not None
        assert found.accepted_micros == at(accepted)
    assert journal.roll_up_with("c1", at(0.5), None, 5) is None


def test_requests_are_numbered_in_the_order_in_which_they_were_created() -> None:
    """After those that were there before the run, which are in the last roll-up before it."""
    created = {("ns", "late"): at(8), ("ns", "early"): at(6)}
    journal = Journal({}, 0, COUNTED)
    assert journal.request_numbers("c1", created) == {("ns", "early"): 4, ("ns", "late"): 5}
    assert journal.request_numbers("c1", {("ns", "first"): at(0.5)}) == {("ns", "first"): 1}


@pytest.mark.parametrize("cluster", ["restarted", "unknown", "without-roll-ups"])
def test_counts_of_an_operator_that_began_anew_or_has_none_say_nothing(cluster: str) -> None:
    assert Journal({}, 0, COUNTED).request_numbers(cluster, {("ns", "a"): at(6)}) == {}


def test_nothing_is_invented_for_a_machine_without_a_story(tmp_path: Path) -> None:
    """An unknown machine, or no journal at all, leaves the hops out."""
    journal = read_journals([tmp_path / "never-written.jsonl"])
    assert journal.acquisition("m9", "c1", 0, at(5)) == Acquisition(None, None)


def test_what_another_cluster_chose_a_machine_for_is_not_this_ones(tmp_path: Path) -> None:
    """A machine that was created for c1 and then given to c2 was chosen for c2 only then."""
    events = [
        entry(1, "decided", action="Provision"),
        entry(2, "state", state="IDLE"),
        entry(3, "decided", action="Bootstrap", cluster="c2"),
        entry(4, "state", state="CONFIGURING", cluster="c2"),
    ]
    journal = read_journals([written(tmp_path, events)])
    assert journal.acquisition("m1", "c2", 0, at(5)) == Acquisition(at(3), at(4))


@pytest.mark.parametrize("action", ["Reclaim", "Preempt"])
def test_a_machine_taken_from_another_was_chosen_when_that_was_decided(
    tmp_path: Path, action: str
) -> None:
    """The drain of the one who had it is part of the wait of the one who gets it."""
    events = [
        *TWO_LIVES[:6],
        entry(50, "decided", action=action, claimant="c2"),
        entry(51, "state", state="DRAINING"),
        entry(58, "state", state="IDLE", cluster=""),
        entry(59, "decided", action="Bootstrap", cluster="c2", claimant="c2"),
        entry(60, "state", state="CONFIGURING", cluster="c2"),
    ]
    journal = read_journals([written(tmp_path, events)])
    assert journal.acquisition("m1", "c2", 0, at(63)) == Acquisition(at(50), at(60))
    assert journal.acquisition("m1", "c1", 0, at(5)) == Acquisition(at(1), at(4))


def test_a_choice_that_failed_gives_way_to_one_that_stood(tmp_path: Path) -> None:
    """A machine may be chosen, refused, and chosen again much later for other pods."""
    events = [
        entry(1, "decided", action="Bootstrap", decided=at(0.9) / 1e6),
        entry(2, "order-failed", action="Bootstrap", decided=at(0.9) / 1e6),
        entry(30, "decided", action="Bootstrap", decided=at(29.9) / 1e6),
        entry(31, "state", state="CONFIGURING"),
    ]
    journal = read_journals([written(tmp_path, events)])
    assert journal.acquisition("m1", "c1", 0, at(33)) == Acquisition(at(30), at(31))


def test_an_order_that_took_effect_although_it_failed_is_the_choice(tmp_path: Path) -> None:
    """An answer may be lost while the provider does what it was told."""
    events = [
        entry(1, "decided", action="Bootstrap", decided=at(0.9) / 1e6),
        entry(2, "order-failed", action="Bootstrap", decided=at(0.9) / 1e6),
        entry(3, "state", state="CONFIGURING"),
    ]
    journal = read_journals([written(tmp_path, events)])
    assert journal.acquisition("m1", "c1", 0, at(5)) == Acquisition(at(1), at(3))


def test_a_torn_last_line_is_counted(tmp_path: Path) -> None:
    """A shard killed in the middle of a write leaves half a line."""
    journal = read_journals([written(tmp_path, TWO_LIVES, b'{"at": 17')])
    assert journal.undecodable == 1
    assert len(journal.stories["m1"]) == len(TWO_LIVES)


def test_machines_are_counted_by_changes_of_state(tmp_path: Path) -> None:
    """Told twice of one state, a journal still counts once."""
    twice = [*TWO_LIVES, entry(65, "state", state="CONFIGURED")]
    counts = count_machines(read_journals([written(tmp_path, twice)]))
    assert (counts.configured, counts.created, counts.deleted) == (2, 1, 0)


def test_a_machine_of_which_nothing_but_an_order_is_known_has_not_changed(tmp_path: Path) -> None:
    """A run may be interrupted between the two."""
    events = [entry(1, "decided", action="Bootstrap", decided=at(0.9) / 1e6)]
    counts = count_machines(read_journals([written(tmp_path, events)]))
    assert (counts.configured, counts.created, counts.deleted) == (0, 0, 0)
