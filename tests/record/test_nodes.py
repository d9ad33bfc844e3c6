"""What became of a machine's Node is the log's word where there is a log."""

from __future__ import annotations

from bigfleet.kube.watch import Changed
from loaddriver.record.live_counts import NullListener
from loaddriver.record.nodes import NodeLifetime, node_lifetimes
from loaddriver.record.recorder import Observations
from loaddriver.record.watching import WatchTimestamps
from tests.record.record_rig import at, joined, line, node, node_status, observations


def seen(ready: bool) -> WatchTimestamps:
    """A watch that saw the Node come, and nothing after."""
    timestamps = WatchTimestamps(NullListener())
    timestamps.take_nodes(Changed(node("n1", ready=ready), False), at(2))
    return timestamps


def last(observed: Observations) -> NodeLifetime:
    return node_lifetimes(observed)["n1"][-1]


def test_the_log_alone_says_whether_a_node_is_ready_in_the_end() -> None:
    """The last write that speaks of it decides, not the first."""
    up = [joined("n1", 1, kind="m.big"), node_status("n1", 2)]
    assert last(observations(up)).ready_at_end
    assert last(observations(up)).instance_type == "m.big"
    down = [*up, node_status("n1", 5, ready=False)]
    assert not last(observations(down)).ready_at_end
    assert last(observations(down)).ready_micros == at(2)
    assert last(observations([*down, node_status("n1", 7)])).ready_at_end


def test_a_node_that_is_gone_is_not_ready_and_one_that_came_again_may_be() -> None:
    """Each joining has a story of its own."""
    gone = [joined("n1", 1), node_status("n1", 2), line("delete nodes", "n1", 5, code=200)]
    assert not last(observations(gone)).ready_at_end
    again = [*gone, joined("n1", 8), node_status("n1", 9)]
    lifetimes = node_lifetimes(observations(again))["n1"]
    assert [lifetime.ready_at_end for lifetime in lifetimes] == [False, True]


def test_what_the_watch_missed_changes_nothing_where_there_is_a_log() -> None:
    """A watch that never heard of the failure, or of the node at all."""
    log = [joined("n1", 1), node_status("n1", 2), node_status("n1", 5, ready=False)]
    assert last(observations(log, seen(ready=True))) == last(observations(log))


def test_without_a_log_the_watch_is_believed() -> None:
    """It is all there is."""
    assert last(observations(None, seen(ready=True))).ready_at_end
    assert not last(observations(None, seen(ready=False))).ready_at_end
