"""An audit log becomes stamps, and nothing in it is dropped silently."""

from __future__ import annotations

from array import array

import pytest

from loaddriver.record.live_counts import LiveCounts, Waits
from tests.record.record_rig import (
    ANCHOR,
    at,
    bound,
    created,
    iso,
    joined,
    line,
    node_status,
    reader,
    requested,
)


def test_a_pods_creation_is_stamped_from_its_answer() -> None:
    """A controller-made Pod has its name and UID only in the body of the answer."""
    timestamps = reader([created("u1", "web-x", 1.25)]).timestamps
    assert timestamps.pods["u1"].pod.name == "web-x"
    assert timestamps.pods["u1"].at_micros == at(1.25)
    assert timestamps.pods["u1"].creator == "replicaset-controller"


def test_a_binding_names_its_writer() -> None:
    """Who bound a pod is told, whoever it was."""
    (binding,) = reader([bound("u1", "web-x", 3, ANCHOR)]).timestamps.bindings
    assert (binding.uid, binding.at_micros, binding.writer) == ("u1", at(3), ANCHOR)


@pytest.mark.parametrize("verb", ["patch", "update"])
def test_the_first_acknowledgement_counts(verb: str) -> None:
    """Later writes of the same status say nothing new."""
    what = f"{verb} capacityrequests/status"
    timestamps = reader([line(what, "cr", 2, code=200), line(what, "cr", 9, code=200)]).timestamps
    assert timestamps.acknowledged == {("load", "cr"): at(2)}


def test_an_acknowledgement_says_when_the_shard_had_accepted_the_request() -> None:
    """It is written later, at its writer's pace; a condition on capacity is no acknowledgement."""
    what = "patch capacityrequests/status"
    short = {"status": {"conditions": [{"type": "CapacityShort", "status": "True"}]}}
    accepted = iso(3.25)
    told = {"status": {"phase": "Acknowledged", "acknowledgedAt": accepted}}
    timestamps = reader(
        [
            line(what, "cr", 2, code=200, request=short),
            line(what, "cr", 9, code=200, request=told),
        ]
    ).timestamps
    assert timestamps.acknowledged == {("load", "cr"): at(9)}
    assert timestamps.accepted == {("load", "cr"): at(3.25)}


@pytest.mark.parametrize("verb", ["create", "patch", "update"])
def test_a_request_beyond_what_is_there_is_told_from_an_ordinary_one(verb: str) -> None:
    """Whoever is asked for once is counted once, from the first moment on."""
    what, asks = f"{verb} capacityrequests", {"spec": {"additional": True, "priority": 0}}
    lines = [
        line(what, "plain", 1, request={"spec": {"priority": 0}}),
        line(what, "more", 2, request=asks),
        line(what, "more", 5, request=asks),
        line(what, "refused", 6, request=asks, code=409),
        line(what, "without-body", 7),
    ]
    assert reader(lines).timestamps.additional == {("load", "more"): at(2)}


def test_a_spec_that_a_json_patch_replaces_is_read_like_any_other() -> None:
    """A pod controller corrects requests so; other operations ask for nothing."""
    what = "patch capacityrequests"
    more = [{"op": "replace", "path": "/spec", "value": {"additional": True}}]
    label = [{"op": "add", "path": "/metadata/labels/a", "value": "b"}]
    lines = [
        line(what, "less", 1, request=[{"op": "remove", "path": "/spec/additional"}, *label]),
        line(what, "more", 2, request=[*label, *more]),
    ]
    timestamps = reader(lines).timestamps
    assert timestamps.undecodable == 0
    assert timestamps.additional == {("load", "more"): at(2)}


def test_refused_requests_stamp_nothing_and_are_counted_by_kind() -> None:
    """A binding that the server refused bound nobody."""
    refused = line("create pods/binding", "web-x", 3, uid="u1", code=409)
    timestamps = reader([refused, refused, line("create nodes", "n", 1, code=403)]).timestamps
    assert timestamps.bindings == []
    assert timestamps.nodes_created == {}
    assert timestamps.failed == {"create pods/binding 409": 2, "create nodes 403": 1}


def test_a_line_that_cannot_be_read_is_counted_and_costs_no_other() -> None:
    """Garbage, a torn line and invalid UTF-8 each cost themselves only."""
    torn = created("u2", "web-y", 2)[:90]
    bad_text = bound("u3", "web-z", 2).replace(b"web-z", b"web-\xff")
    timestamps = reader([created("u1", "web-x", 1), b"garbage", torn, bad_text, bound("u1", "", 4)])
    assert timestamps.timestamps.undecodable == 3
    assert timestamps.timestamps.lines == 5
    assert list(timestamps.timestamps.pods) == ["u1"]
    assert len(timestamps.timestamps.bindings) == 1


def test_a_pod_logged_without_its_body_is_counted() -> None:
    """At level Metadata a creation names nobody: the policy is wrong, and the run must say so."""
    assert reader([line("create pods", "", 1)]).timestamps.without_uid == 1


def test_only_answers_count() -> None:
    """A request that was received may still be refused."""
    timestamps = reader([line("create nodes", "n", 1, stage="RequestReceived")]).timestamps
    assert timestamps.nodes_created == {}


def test_the_tally_follows_the_log_even_out_of_order() -> None:
    """A busy server may log a binding before the creation it belongs to."""
    live_counts = LiveCounts()
    reader(
        [bound("u1", "web-x", 3), created("u1", "web-x", 1), created("u2", "web-y", 2)], live_counts
    )
    assert (live_counts.created_total, live_counts.bound_total, live_counts.backlog) == (2, 1, 1)
    waits = live_counts.waits(at(10), step="1")
    assert list(waits.bound) == [2.0]
    assert list(waits.unbound) == [8.0]


def test_a_pod_deleted_while_it_waited_leaves_the_backlog_but_not_the_waits() -> None:
    """It waited in vain, for as long as it lived."""
    live_counts = LiveCounts()
    reader([created("u1", "web-x", 1), line("delete pods", "web-x", 5, code=200)], live_counts)
    assert live_counts.backlog == 0
    assert list(live_counts.waits(at(10)).unbound) == [4.0]


def test_a_node_is_ready_when_its_kubelet_wrote_so() -> None:
    """Other writes to its status stamp nothing; its rack is what it was created with."""
    log = [joined("n1", 1, "r7"), node_status("n1", 2, ready=False), node_status("n1", 3)]
    timestamps = reader(log).timestamps
    assert dict(timestamps.nodes_ready) == {"n1": [at(3)]}
    assert timestamps.racks == {("n1", at(1)): "r7"}


def test_a_node_without_a_rack_is_none_of_the_fleets() -> None:
    """A cluster's own control plane may register a Node; no pod of the load waits for that."""
    own = {"kind": "Node", "metadata": {"name": "control-plane", "uid": "u"}}
    log = [line("create nodes", "control-plane", 1, body=own), joined("n1", 2)]
    assert list(reader(log).timestamps.nodes_created) == ["n1"]


def test_the_loads_own_requests_reach_the_tally() -> None:
    """In a run without pods they are what is counted; an acknowledgement is their binding."""
    live_counts = LiveCounts()
    acknowledged = line("patch capacityrequests/status", "a", 4, code=200)
    log = [requested("a", 1, "r1"), requested("b", 2, "r2"), acknowledged, acknowledged]
    made = reader([*log, line("delete capacityrequests", "b", 7, code=200)], live_counts)
    assert (live_counts.created_total, live_counts.bound_total, live_counts.backlog) == (2, 1, 0)
    assert live_counts.waits(at(9), step="1") == Waits(array("d", [3.0]), array("d", [5.0]))
    assert set(made.timestamps.requests) == {"r1", "r2"}
    assert made.timestamps.withdrawn == {("load", "b"): at(7)}


def test_what_the_load_driver_was_granted_is_counted() -> None:
    """So that it can be held against what the servers told it; refusals are none of it."""
    log = [
        line("create deployments", "web", 1, user=ANCHOR),
        line("create deployments", "db", 1, user=ANCHOR, code=403),
        line("create deployments", "other", 1),
    ]
    assert reader(log).timestamps.load_writes == {("create deployments", ("load", "web")): 1}
