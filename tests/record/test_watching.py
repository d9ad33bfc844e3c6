"""A watch gives times of receipt, and forgets nothing through a gap."""

from __future__ import annotations

from bigfleet.kube.watch import Changed, Listed
from loaddriver.record.live_counts import LiveCounts, NullListener
from loaddriver.record.watching import WatchTimestamps
from tests.record.record_rig import at, node, pod, request


def test_first_sight_of_a_state_is_its_stamp() -> None:
    """Later events of the same state move nothing."""
    timestamps = WatchTimestamps(LiveCounts())
    timestamps.take_pods(Listed([]), at(0))
    timestamps.take_pods(Changed(pod("u1", "a"), False), at(1))
    timestamps.take_pods(Changed(pod("u1", "a", "n1"), False), at(3))
    timestamps.take_pods(Changed(pod("u1", "a", "n1"), False), at(4))
    seen = timestamps.pods["u1"]
    assert (seen.created_micros, seen.bound_micros, seen.node) == (at(1), at(3), "n1")


def test_what_a_new_list_lacks_is_gone() -> None:
    """After a gap the deletion itself is never delivered."""
    timestamps = WatchTimestamps(LiveCounts())
    timestamps.take_pods(Listed([pod("u1", "a"), pod("u2", "b")]), at(0))
    timestamps.take_nodes(Listed([node("n1"), node("n2")]), at(0))
    timestamps.take_pods(Listed([pod("u2", "b")]), at(9))
    timestamps.take_nodes(Listed([node("n2")]), at(9))
    assert timestamps.pods["u1"].deleted_micros == at(9)
    assert timestamps.pods["u2"].deleted_micros is None
    assert timestamps.nodes["uid-n1"].deleted_micros == at(9)


def test_what_is_not_of_the_load_or_the_fleet_is_left_out() -> None:
    """The watches are shared with readers that must know of everybody's pods."""
    live_counts = LiveCounts()
    timestamps = WatchTimestamps(live_counts)
    foreign, control_plane = pod("u1", "a", "n0"), node("n0")
    foreign.metadata.labels = {"app": "dns"}
    control_plane.metadata.labels = {"node-role.kubernetes.io/control-plane": ""}
    for listed in (Listed([foreign, pod("u2", "b")]), Listed([pod("u2", "b")])):
        timestamps.take_pods(listed, at(1))
    for deleted in (False, True):
        timestamps.take_pods(Changed(foreign, deleted), at(2))
        timestamps.take_nodes(Changed(control_plane, deleted), at(2))
    assert (list(timestamps.pods), timestamps.nodes) == (["u2"], {})
    assert (live_counts.created_total, live_counts.bound_total) == (1, 0)


def test_ready_is_stamped_once_and_followed() -> None:
    """A Node's first readiness is its stamp; whether it is ready now is kept beside it."""
    timestamps = WatchTimestamps(LiveCounts())
    timestamps.take_nodes(Changed(node("n1", ready=False), False), at(1))
    timestamps.take_nodes(Changed(node("n1"), False), at(2))
    timestamps.take_nodes(Changed(node("n1", ready=False), False), at(3))
    seen = timestamps.nodes["uid-n1"]
    assert (seen.ready_micros, seen.ready, seen.rack) == (at(2), False, "r1")


def test_a_watch_can_be_the_only_source_of_the_tally() -> None:
    """Where no audit log is ours the live view counts what the watch says."""
    live_counts = LiveCounts()
    timestamps = WatchTimestamps(live_counts)
    timestamps.take_pods(Changed(pod("u1", "a"), False), at(1))
    timestamps.take_pods(Changed(pod("u1", "a", "n1"), False), at(3))
    timestamps.take_pods(Changed(pod("u2", "b"), True), at(4))
    assert (live_counts.created_total, live_counts.bound_total, live_counts.backlog) == (2, 1, 0)


def test_the_schedulers_last_word_is_kept_until_the_pod_has_a_node() -> None:
    """A pod that waits says why; one that was bound, deleted or never refused says nothing."""
    timestamps = WatchTimestamps(NullListener())
    for words in ("0/0 nodes are available", "0/3 nodes: insufficient cpu"):
        for uid in ("u1", "u2", "u3"):
            timestamps.take_pods(Changed(pod(uid, uid, unschedulable_message=words), False), at(1))
    timestamps.take_pods(Changed(pod("u1", "u1"), False), at(2))
    timestamps.take_pods(Changed(pod("u2", "u2", "n1"), False), at(2))
    timestamps.take_pods(Changed(pod("u3", "u3"), True), at(2))
    timestamps.take_pods(Changed(pod("u4", "u4"), False), at(2))
    assert timestamps.pending() == {"u1": "0/3 nodes: insufficient cpu"}


def test_the_loads_own_requests_are_counted_as_pods_are() -> None:
    """An acknowledgement is to a request what a binding is to a pod; a controller's requests for
    pods are not counted beside them.
    """
    live_counts = LiveCounts()
    timestamps = WatchTimestamps(live_counts)
    timestamps.take_requests(Listed([request("r1", "a"), request("r0", "p", of_load=False)]), at(1))
    timestamps.take_requests(Changed(request("r1", "a", "Acknowledged"), False), at(3))
    timestamps.take_requests(Changed(request("r2", "b"), False), at(4))
    timestamps.take_requests(Listed([request("r1", "a", "Acknowledged")]), at(5))
    assert (live_counts.created_total, live_counts.bound_total, live_counts.backlog) == (2, 1, 0)
    assert list(live_counts.waits(at(9), step="1").bound) == [2.0]
    assert timestamps.requests["r2"].deleted_micros == at(5)
    assert timestamps.requests["r0"].deleted_micros == at(5)
