"""Which machines serve no new pods, from Nodes as the API server writes them."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from bigfleet.api.limit_codec import LimitReason
from bigfleet.api.wellknown import MACHINE_LABEL, RECLAIM_DEADLINE, RECLAIM_REVIEW
from bigfleet.controllers.operator.node_health import NodeHealth, UnfitMachine
from bigfleet.controllers.operator.node_types import Node, NodeTaint

HOLD = 300.0
BORN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
OWN = NodeTaint("gpu", "yes", "NoSchedule")


def node(
    name: str = "m-1",
    *taints: tuple[str, str],
    ready: bool = True,
    marks: Collection[str] = (),
    **spec: Any,
) -> Node:
    raw = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {MACHINE_LABEL: name},
            "annotations": dict.fromkeys(marks, "9e9"),
        },
        "spec": {"taints": [{"key": k, "effect": e} for k, e in taints], **spec},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }
    return msgspec.json.decode(json.dumps(raw), type=Node)


class Cluster:
    """Nodes of machines that serve a cluster, and the time since they were made."""

    def __init__(self, *nodes: Node) -> None:
        self.health = NodeHealth(HOLD)
        self.machines: dict[str, Collection[NodeTaint] | None] = {}
        for each in nodes:
            self.machines[each.metadata.name] = {OWN}
            self.health.put(each)

    def after(self, seconds: float) -> list[UnfitMachine]:
        return self.health.unfit_machines(self.machines, 1000 + seconds, BORN + seconds)

    def reasons(self, seconds: float) -> dict[str, LimitReason]:
        return {unfit.machine_id: unfit.reason for unfit in self.after(seconds)}


def test_a_node_that_is_as_it_should_be_has_no_limit() -> None:
    assert Cluster(node("m-1", ("gpu", "NoSchedule"))).after(0) == []


def test_a_cordoned_node_counts_for_what_it_runs_at_once() -> None:
    [found] = Cluster(node(unschedulable=True)).after(0)
    assert (found.reason, found.counts_pods, found.broken) == (LimitReason.CORDONED, True, False)


@pytest.mark.parametrize("mark", [RECLAIM_DEADLINE, RECLAIM_REVIEW])
def test_what_we_cordoned_ourselves_has_no_limit(mark: str) -> None:
    """Otherwise the review of a reclaim would acquire another machine."""
    assert Cluster(node(marks=[mark], unschedulable=True)).after(HOLD) == []


def test_a_machines_own_taints_and_passing_ones_are_no_limit() -> None:
    """What every machine of its kind has is known already; the node controller's come and go."""
    own = node(taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])
    passing = node("m-2", ("node.kubernetes.io/disk-pressure", "NoSchedule"))
    soft = node("m-3", ("by-hand", "PreferNoSchedule"))
    assert Cluster(own, passing, soft).after(HOLD) == []


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_taint_by_hand_limits_a_node_unless_it_is_new(effect: str) -> None:
    """Many Nodes join with a taint that goes when their network is there: to count that would buy
    each machine twice.
    """
    cluster = Cluster(node("m-1", ("by-hand", effect)))
    assert cluster.after(HOLD - 1) == []
    [found] = cluster.after(HOLD)
    assert (found.reason, found.counts_pods) == (LimitReason.TAINTED, True)
    assert found.message == f"by-hand:{effect}"


def test_taints_are_ignored_while_the_machines_own_are_unknown() -> None:
    """An operator that has just started learns them from the shard's replay."""
    cluster = Cluster(node("m-1", ("gpu", "NoSchedule")))
    cluster.machines["m-1"] = None
    assert cluster.after(HOLD) == []


def test_a_node_that_is_not_ready_for_the_hold_is_broken() -> None:
    cluster = Cluster(node(ready=False), *(node(f"o-{n}") for n in range(9)))
    assert cluster.after(0) == []
    assert cluster.after(HOLD - 1) == []
    [found] = cluster.after(HOLD)
    assert (found.reason, found.counts_pods, found.broken) == (LimitReason.NOT_READY, False, True)


def test_the_timeout_restarts_for_a_node_that_was_ready_meanwhile() -> None:
    cluster = Cluster(node(ready=False))
    cluster.after(0)
    cluster.health.put(node())
    cluster.after(HOLD - 1)
    cluster.health.put(node(ready=False))
    assert cluster.after(HOLD) == []
    assert cluster.reasons(2 * HOLD) == {"m-1": LimitReason.NOT_READY}


@pytest.mark.parametrize(("away", "of", "broken"), [(3, 15, True), (3, 14, False), (2, 3, True)])
def test_where_many_nodes_are_away_at_once_none_is_broken(away: int, of: int, broken: bool) -> None:
    """More than a fifth, and at least three: their cluster is cut off. What runs there counts."""
    nodes = [node(f"m-{number:02}", ready=number >= away) for number in range(of)]
    cluster = Cluster(*nodes)
    cluster.after(0)
    found = cluster.after(HOLD)
    assert len(found) == away
    assert {(unfit.broken, unfit.counts_pods) for unfit in found} == {(broken, not broken)}


def test_a_machine_whose_node_was_deleted_is_broken_at_once() -> None:
    cluster = Cluster(node())
    cluster.health.remove("m-1", cluster.machines)
    [found] = cluster.after(0)
    assert (found.reason, found.counts_pods, found.broken) == (LimitReason.MISSING, False, True)
    cluster.health.put(node())
    assert cluster.after(1) == []


def test_a_machine_whose_node_never_came_is_broken_after_the_hold() -> None:
    cluster = Cluster()
    cluster.machines["m-1"] = set()
    assert cluster.after(0) == []
    assert cluster.reasons(HOLD) == {"m-1": LimitReason.MISSING}


def test_a_machine_that_joins_again_is_not_missing() -> None:
    """Its previous Node was deleted; the timeout restarts for the next one."""
    cluster = Cluster(node())
    cluster.health.remove("m-1", cluster.machines)
    cluster.health.forget("m-1")
    assert cluster.after(0) == []
    assert cluster.after(HOLD - 1) == []
    assert cluster.reasons(HOLD) == {"m-1": LimitReason.MISSING}


def test_a_node_that_we_removed_is_not_missing() -> None:
    """One that was reclaimed, or whose machine had left before it was deleted."""
    cluster = Cluster(node(marks=[RECLAIM_DEADLINE]), node("m-2"))
    cluster.health.remove("m-1", cluster.machines)
    cluster.health.remove("m-2", {})
    assert cluster.after(0) == []


def test_only_what_matters_is_a_change() -> None:
    """A kubelet writes its Node again and again: that is no reason for a roll-up."""
    health = NodeHealth(HOLD)
    assert health.put(node())
    assert not health.put(node())
    assert health.put(node(unschedulable=True))
    assert health.put(node(ready=False))
    assert health.put(node("m-1", ("by-hand", "NoSchedule")))
