"""Every created pod is one row, from whichever source knows best."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from record_rig import ANCHOR, END, at, bound, created, line, node, observations, pod

from bigfleet.api.kube.watch import Changed
from loaddriver.record.clocks import receipt_lags_seconds
from loaddriver.record.rows import PodRow, build_rows
from loaddriver.record.tally import Deaf
from loaddriver.record.watching import WatchStamps

LOG = [
    created("uid-1-xxxx", "web-a", 1, "g1"),
    line("create capacityrequests", "web-a-uid-1-xx", 1.2),
    line("patch capacityrequests/status", "web-a-uid-1-xx", 2.5, code=200),
    line("create nodes", "n1", 4),
    bound("uid-1-xxxx", "web-a", 7),
]


def seen() -> WatchStamps:
    stamps = WatchStamps(Deaf())
    stamps.take_pods(Changed(pod("uid-1-xxxx", "web-a", group="g1"), False), at(1.1))
    stamps.take_nodes(Changed(node("n1"), False), at(6))
    stamps.take_pods(Changed(pod("uid-1-xxxx", "web-a", "n1", "g1"), False), at(7.3))
    return stamps


def without_watch(row: PodRow) -> PodRow:
    """What the log alone knows of a pod."""
    return replace(
        row, node="", rack="", node_created_micros=None, node_ready_micros=None, found_room=None
    )


def only(rows: list[PodRow]) -> PodRow:
    (row,) = rows
    return row


def test_a_row_holds_the_whole_story() -> None:
    """Stamps come from the log; node, rack and readiness from the watch."""
    row = only(build_rows([observations(LOG, seen())]))
    assert (row.created_micros, row.seen_micros, row.bound_micros) == (at(1), at(1.2), at(7))
    assert (row.acknowledged_micros, row.node_ready_micros) == (at(2.5), at(6))
    assert (row.node, row.rack, row.bound_by, row.source) == ("n1", "r1", "scheduler", "audit")
    assert (row.archetype, row.workload, row.group, row.step) == (
        "tiny-stateless",
        "web",
        "g1",
        "1",
    )
    assert row.found_room is False
    assert sum(row.hops_micros().values()) == at(7) - at(1)


def test_a_pod_never_bound_stays_a_row() -> None:
    """It has waited until observation ended."""
    row = only(build_rows([observations(LOG[:1])]))
    assert row.bound_micros is None
    assert row.waited_seconds == (END - at(1)) / 1e6
    assert row.hops_micros() == {}


@given(st.sets(st.sampled_from(["created", "bound", "node"])))
def test_a_dropped_watch_event_changes_nothing_that_the_log_knows(dropped: set[str]) -> None:
    """Creation, binding, requests and binder are the same with any part of the watch missing."""
    stamps = WatchStamps(Deaf())
    if "created" not in dropped:
        stamps.take_pods(Changed(pod("uid-1-xxxx", "web-a"), False), at(1.1))
    if "node" not in dropped:
        stamps.take_nodes(Changed(node("n1"), False), at(6))
    if "bound" not in dropped:
        stamps.take_pods(Changed(pod("uid-1-xxxx", "web-a", "n1"), False), at(7.3))
    row = only(build_rows([observations(LOG, stamps)]))
    full = only(build_rows([observations(LOG, seen())]))
    assert without_watch(row) == without_watch(full)


def test_without_a_log_the_watch_is_the_clock() -> None:
    """Receipt is late, but it is something."""
    row = only(build_rows([observations(None, seen())]))
    assert (row.created_micros, row.bound_micros) == (at(1.1), at(7.3))
    assert (row.source, row.bound_by, row.seen_micros) == ("watch", "", None)


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
    assert (second.bound_micros, second.bound_by, second.deleted_micros) == (at(13), "anchor", None)


def test_pods_that_are_not_of_the_load_are_no_rows() -> None:
    """Only what carries the load's label is measured."""
    system = created("u9", "coredns", 1).replace(b"scaletest.bigfleet/workload", b"k8s-app")
    assert build_rows([observations([system])]) == []


def test_a_pod_on_a_node_that_was_ready_before_it_found_room() -> None:
    """Its wait is the scheduler's, whatever the node's own story."""
    stamps = seen()
    stamps.take_pods(Changed(pod("late", "web-b", "n1"), False), at(20.5))
    late = [created("late", "web-b", 20), bound("late", "web-b", 20.4)]
    row = build_rows([observations([*LOG, *late], stamps)])[1]
    assert row.found_room is True
    assert row.hops_micros() == {"scheduled": 400_000}


def test_a_machine_that_joins_again_is_another_node() -> None:
    """A pod belongs to the life of its node in which it was bound."""
    stamps = seen()
    stamps.take_nodes(Changed(node("n1"), True), at(30))
    stamps.take_nodes(Changed(node("n1", "uid-again", "r2"), False), at(41))
    stamps.take_pods(Changed(pod("next", "web-b", "n1"), False), at(43))
    log = [*LOG, line("create nodes", "n1", 40), created("next", "web-b", 35)]
    rows = build_rows([observations([*log, bound("next", "web-b", 42)], stamps)])
    assert [(row.node_created_micros, row.node_ready_micros, row.rack) for row in rows] == [
        (at(4), at(6), "r1"),
        (at(40), at(41), "r2"),
    ]


def test_the_lag_of_the_watch_is_receipt_minus_log() -> None:
    """One sample for the creation, one for the binding."""
    lags = receipt_lags_seconds([observations(LOG, seen())])
    assert [round(lag, 6) for lag in lags] == [0.1, 0.3]
