"""Every created pod is one row, from whichever source knows best."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bigfleet.kube.watch import Changed, Listed
from loaddriver.record.clocks import receipt_lags_seconds
from loaddriver.record.hops import HOPS
from loaddriver.record.journal import Event, Journal, RollUp
from loaddriver.record.live_counts import NullListener
from loaddriver.record.nodes import node_lifetimes
from loaddriver.record.rows import PodRow, build_rows
from loaddriver.record.watching import WatchTimestamps
from tests.record.record_rig import (
    ANCHOR,
    END,
    at,
    bound,
    created,
    iso,
    joined,
    line,
    node,
    node_status,
    observations,
    pod,
    request,
)

LOG = [
    created("uid-1-xxxx", "web-a", 1, "g1"),
    line("create capacityrequests", "web-a-uid-1-xx", 1.2),
    line("patch capacityrequests/status", "web-a-uid-1-xx", 2.5, code=200),
    joined("n1", 4),
    node_status("n1", 4.5, ready=False),
    node_status("n1", 6),
    node_status("n1", 9),
    bound("uid-1-xxxx", "web-a", 7, node="n1"),
]
# As a log is where the policy leaves bodies out.
TERSE = [LOG[0], LOG[1], LOG[2], line("create nodes", "n1", 4), bound("uid-1-xxxx", "web-a", 7)]


STORY = [
    Event(at=0, event="decided", action="Provision", cluster="c0"),
    Event(at=0, event="decided", action="Bootstrap", cluster="c0"),
    Event(at=0, event="decided", action="Bootstrap", cluster="c9"),
    Event(at=0, event="decided", action="Reclaim", cluster="c9", claimant="c0"),
    *(Event(at=0, event="state", state=s) for s in ("CONFIGURING", "DRAINING", "FAILED")),
]


def seen() -> WatchTimestamps:
    timestamps = WatchTimestamps(NullListener())
    timestamps.take_pods(Changed(pod("uid-1-xxxx", "web-a", group="g1"), False), at(1.1))
    timestamps.take_nodes(Changed(node("n1"), False), at(6))
    timestamps.take_pods(Changed(pod("uid-1-xxxx", "web-a", "n1", "g1"), False), at(7.3))
    return timestamps


def only(rows: list[PodRow]) -> PodRow:
    (row,) = rows
    return row


@pytest.mark.parametrize("log", [LOG, TERSE])
def test_a_row_holds_the_whole_story(log: list[bytes]) -> None:
    """Node, rack and readiness come from the log, or from the watch where the log is terse."""
    row = only(build_rows([observations(log, seen())]))
    assert (row.created_micros, row.seen_micros, row.bound_micros) == (at(1), at(1.2), at(7))
    assert (row.acknowledged_micros, row.node_ready_micros) == (at(2.5), at(6))
    assert (row.node, row.rack, row.bound_by, row.source) == ("n1", "r1", "scheduler", "audit")
    assert (row.archetype, row.workload, row.group, row.step) == (
        "tiny-stateless",
        "web",
        "g1",
        "1",
    )
    assert row.node_was_ready is False
    assert sum(row.hops_micros().values()) == at(7) - at(1)


def test_a_pod_is_rolled_up_when_the_shards_journal_says_so() -> None:
    """Not when its acknowledgement is written, which may be after its machine was chosen; without
    a journal, when its operator was told.
    """
    told = {"status": {"phase": "Acknowledged", "acknowledgedAt": iso(1.8)}}
    late = line("patch capacityrequests/status", "web-a-uid-1-xx", 5.5, code=200, request=told)
    log = [LOG[0], LOG[1], late, *LOG[3:]]
    chosen = Event(at=at(3) / 1e6, event="decided", action="Bootstrap", cluster="c0")
    journal = Journal({"n1": [chosen]}, 0, {"c0": [RollUp(at(1.5), at(1.7))]})
    row = only(build_rows([observations(log)], journal))
    assert row.rolled_up_micros == at(1.7)
    assert (row.hops_micros()["rolledUp"], row.hops_micros()["decided"]) == (500_000, 1_300_000)
    assert only(build_rows([observations(log)])).rolled_up_micros == at(1.8)


def test_a_late_operators_time_is_not_the_shards() -> None:
    """A roll-up of other requests, which its operator built before it had observed this one, does
    not count; what was requested before the run is in none of the run's numbers.
    """
    log = [LOG[0], LOG[1], *LOG[3:]]
    chosen = Event(at=at(3) / 1e6, event="decided", action="Bootstrap", cluster="c0")
    rollups = [
        RollUp(at(0.5), at(0.6), 20),
        RollUp(at(2.2), at(2.3), 20),
        RollUp(at(2.6), at(2.7), 21),
    ]
    journal = Journal({"n1": [chosen]}, 0, {"c0": rollups})
    row = only(build_rows([observations(log)], journal))
    assert row.rolled_up_micros == at(2.7)
    uncounted = [each._replace(requests=0) for each in rollups]
    journal = Journal({"n1": [chosen]}, 0, {"c0": uncounted})
    assert only(build_rows([observations(log)], journal)).rolled_up_micros == at(2.3)


def test_a_pod_never_bound_stays_a_row() -> None:
    """It has waited until observation ended."""
    row = only(build_rows([observations(LOG[:1])]))
    assert row.bound_micros is None
    assert row.waited_seconds == (END - at(1)) / 1e6
    assert row.hops_micros() == {}


@given(st.sets(st.sampled_from(["created", "bound", "node", "gone"])), st.integers(0, 10**9))
def test_no_watch_event_that_is_dropped_or_late_changes_a_number(
    dropped: set[str], late_micros: int
) -> None:
    """Where there is a log, the watch is only a check on it."""
    timestamps = WatchTimestamps(NullListener())
    if "created" not in dropped:
        timestamps.take_pods(Changed(pod("uid-1-xxxx", "web-a"), False), at(1.1) + late_micros)
    if "node" not in dropped:
        timestamps.take_nodes(Changed(node("n1"), False), at(6) + late_micros)
    if "bound" not in dropped:
        timestamps.take_pods(
            Changed(pod("uid-1-xxxx", "web-a", "n1"), False), at(7.3) + late_micros
        )
    log = [*LOG, line("delete pods", "web-a", 30, code=200), line("delete nodes", "n1", 31)]
    if "gone" not in dropped:
        timestamps.take_pods(Listed([]), at(31) + late_micros)
        timestamps.take_nodes(Listed([]), at(32) + late_micros)
    observed, blind = observations(log, timestamps), observations(log)
    assert build_rows([observed]) == build_rows([blind])
    assert node_lifetimes(observed) == node_lifetimes(blind)


MOMENT = st.integers(min_value=0, max_value=900)
MAYBE = st.none() | MOMENT


@given(
    came=MOMENT,
    bound_at=MAYBE,
    request=st.tuples(MAYBE, MAYBE),
    node_at=st.tuples(MAYBE, MAYBE),
    story=st.lists(st.tuples(MOMENT, st.sampled_from(STORY)), max_size=8),
)
def test_whatever_the_stamps_say_the_hops_are_ordered_and_add_up(
    came: int,
    bound_at: int | None,
    request: tuple[int | None, int | None],
    node_at: tuple[int | None, int | None],
    story: list[tuple[int, Event]],
) -> None:
    """Any clock, any order, anything missing: each hop is at least zero, and their sum is the wait
    to the microsecond; a pod is bound and split, or not bound and not split.
    """
    ack, join = "patch capacityrequests/status", "n1"
    lines = [created("uid-1-xxxx", "web-a", came)]
    lines += [line("create capacityrequests", "web-a-uid-1-xx", s) for s in request[:1] if s]
    lines += [line(ack, "web-a-uid-1-xx", s, code=200) for s in request[1:] if s]
    lines += [joined(join, s) for s in node_at[:1] if s]
    lines += [node_status(join, s) for s in node_at[1:] if s]
    lines += [bound("uid-1-xxxx", "web-a", s, node=join) for s in (bound_at,) if s is not None]
    events = [msgspec.structs.replace(event, at=at(second) / 1e6) for second, event in story]
    events.sort(key=lambda event: event.at)
    row = only(build_rows([observations(lines)], Journal({join: events}, 0)))
    hops = row.hops_micros()
    assert (row.bound_micros is None) == (not hops)
    assert all(part >= 0 for part in hops.values())
    assert list(hops) == [hop for hop in HOPS if hop in hops]
    if row.bound_micros is not None:
        assert sum(hops.values()) == max(0, row.bound_micros - row.created_micros)
        assert sum(hops.values()) == round(row.waited_seconds * 1e6)


def test_a_pod_on_a_node_whose_readiness_nobody_saw_is_in_neither_class() -> None:
    """The node was there before the pod; whether it was ready before it is not known."""
    log = [joined("n1", 1), created("u1", "web-a", 2), bound("u1", "web-a", 3, node="n1")]
    row = only(build_rows([observations(log)]))
    assert (row.node, row.node_was_ready) == ("n1", None)
    assert row.hops_micros() == {"scheduled": at(3) - at(2)}


def test_without_a_log_the_watch_is_the_clock() -> None:
    """Receipt is late, but it is something."""
    row = only(build_rows([observations(None, seen())]))
    assert (row.created_micros, row.bound_micros) == (at(1.1), at(7.3))
    assert (row.source, row.bound_by, row.seen_micros) == ("watch", "", None)
    assert (row.node, row.rack, row.node_was_ready) == ("n1", "r1", False)


def test_without_a_log_requests_are_stamped_by_their_watch() -> None:
    """The pod's own request, by its name; the first acknowledgement counts."""
    timestamps = seen()
    timestamps.take_requests(
        Changed(request("r1", "web-a-uid-1-xx", of_load=False), False), at(1.3)
    )
    for seconds in (2.7, 8):
        acknowledged = request("r1", "web-a-uid-1-xx", "Acknowledged", of_load=False)
        timestamps.take_requests(Changed(acknowledged, False), at(seconds))
    row = only(build_rows([observations(None, timestamps)]))
    assert (row.seen_micros, row.acknowledged_micros) == (at(1.3), at(2.7))


def test_a_stamp_that_the_log_lacks_is_taken_from_the_watch_and_said_so() -> None:
    """The row is mixed; nobody is named as the binder."""
    row = only(build_rows([observations(LOG[:-1], seen())]))
    assert (row.source, row.bound_micros, row.bound_by) == ("mixed", at(7.3), "")


def test_a_name_used_again_is_another_pod() -> None:
    """A StatefulSet's pod comes back under its name; deletions name no UID."""
    log = [
        created("first", "db-0", 1),
        bound("first", "db-0", 2),
        line("create pods/eviction", "db-0", 10),
        line("delete pods", "db-0", 11, code=200),
        created("second", "db-0", 12),
        line("create pods/binding", "db-0", 13, user=ANCHOR),
    ]
    first, second = build_rows([observations(log)])
    assert (first.uid, first.deleted_micros) == ("first", at(10))
    assert (second.bound_micros, second.bound_by, second.deleted_micros) == (at(13), "other", None)


def test_pods_that_are_not_of_the_load_are_no_rows() -> None:
    """Only what carries the load's label is measured."""
    system = created("u9", "coredns", 1).replace(b"scaletest.bigfleet/workload", b"k8s-app")
    assert build_rows([observations([system])]) == []


def test_a_pod_on_a_node_that_was_ready_before_it_found_room() -> None:
    """Its wait is the scheduler's, whatever the node's own story."""
    timestamps = seen()
    timestamps.take_pods(Changed(pod("late", "web-b", "n1"), False), at(20.5))
    late = [created("late", "web-b", 20), bound("late", "web-b", 20.4, node="n1")]
    row = build_rows([observations([*LOG, *late], timestamps)])[1]
    assert row.node_was_ready is True
    assert row.hops_micros() == {"scheduled": 400_000}


def test_a_machine_that_joins_again_is_another_node() -> None:
    """A pod belongs to the life of its node in which it was bound."""
    timestamps = seen()
    timestamps.take_nodes(Changed(node("n1"), True), at(30))
    timestamps.take_nodes(Changed(node("n1", "uid-again", "r2"), False), at(41))
    timestamps.take_pods(Changed(pod("next", "web-b", "n1"), False), at(43))
    log = [*TERSE, line("create nodes", "n1", 40), created("next", "web-b", 35)]
    rows = build_rows([observations([*log, bound("next", "web-b", 42)], timestamps)])
    assert [(row.node_created_micros, row.node_ready_micros, row.rack) for row in rows] == [
        (at(4), at(6), "r1"),
        (at(40), at(41), "r2"),
    ]


def test_the_lag_of_the_watch_is_receipt_minus_log() -> None:
    """One sample for the creation, one for the binding."""
    lags = receipt_lags_seconds([observations(LOG, seen())])
    assert [round(lag, 6) for lag in lags] == [0.1, 0.3]
