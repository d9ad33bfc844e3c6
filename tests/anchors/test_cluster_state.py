"""The cluster state that follows from watch events, and the outcomes of groups."""

from __future__ import annotations

import pytest

from bigfleet.kube.watch import Changed, Listed
from loaddriver.anchors.choose import Anchor, Group, choose
from loaddriver.anchors.cluster_state import ClusterState
from loaddriver.anchors.outcomes import GroupOutcome, OutcomeRecorder
from loaddriver.record.watched import Pod
from tests.anchors.anchor_rig import cpus, kube_node, pod, seen


class Cluster:
    """One 4-CPU node `n1` in rack r1, with planned groups `g` and `h` of three pods."""

    def __init__(self) -> None:
        self.recorder = OutcomeRecorder("east", ["h", "g"])
        self.state = ClusterState({"g": 3, "h": 3}, self.recorder)
        self.state.take_nodes(Listed([kube_node("n1")]))

    def see(self, *pods: Pod, at: int = 7) -> None:
        for each in pods:
            self.state.take_pods(seen(each), at)

    @property
    def free(self) -> int:
        [node] = self.state.nodes()
        return cpus(node)

    @property
    def group(self) -> Group:
        return next(group for group in self.state.groups() if group.name == "g")

    def choose(self) -> tuple[Anchor, ...]:
        return choose(self.state.groups(), self.state.nodes()).anchors

    def outcome(self, group: str = "g") -> GroupOutcome:
        found = self.recorder.outcomes(self.state.rack_of)
        return {each.group: each for each in found}[group]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_all_pods_use_capacity(cluster: Cluster) -> None:
    cluster.see(pod("a", group="", on="n1"), pod("b", group="unplanned", on="n1"), pod("c"))
    assert cluster.free == 2


def test_a_pod_that_ended_or_was_deleted_frees_its_capacity_once(cluster: Cluster) -> None:
    cluster.see(pod("a", on="n1"), pod("b", on="n1"), pod("c", on="n1"))
    cluster.see(pod("a", on="n1", phase="Succeeded"))
    assert cluster.free == 2
    for name, phase in (("a", "Succeeded"), ("b", "Running")):
        cluster.state.take_pods(Changed(pod(name, on="n1", phase=phase), deleted=True), 9)
    assert cluster.free == 3


def test_a_terminating_pod_uses_capacity_until_deleted_but_is_no_member(
    cluster: Cluster,
) -> None:
    cluster.see(pod("a", on="n1"), pod("b", on="n1", leaving=True), pod("c", leaving=True))
    assert cluster.free == 2
    assert (cluster.group.placed, cluster.group.pending) == (1, ())


def test_a_new_list_drops_pods_and_nodes_that_vanished_in_a_gap(cluster: Cluster) -> None:
    cluster.see(pod("a", on="n1"), pod("b", on="n1"))
    cluster.state.take_pods(Listed([pod("b", on="n1")]), 9)
    assert cluster.free == 3
    cluster.state.take_nodes(Listed([kube_node("n2")]))
    assert [node.name for node in cluster.state.nodes()] == ["n2"]


def test_an_older_state_from_the_watch_does_not_undo_a_binding(cluster: Cluster) -> None:
    cluster.see(pod("a", on="n1"), pod("a"))
    assert cluster.free == 3
    assert cluster.group.placed == 1


def test_succeeded_members_need_no_capacity(cluster: Cluster) -> None:
    cluster.see(pod("a", on="n1"), pod("b", on="n1"))
    done = pod("b", on="n1", phase="Succeeded")
    cluster.see(done, done)
    cluster.state.take_pods(Changed(done, deleted=True), 9)
    assert cluster.group.missing == 1


def test_failed_members_are_recreated_and_need_capacity(cluster: Cluster) -> None:
    cluster.see(pod("a", on="n1"), pod("b", on="n1", phase="Failed"))
    assert cluster.group.missing == 2


def test_a_group_without_live_bound_pods_reserves_no_rack(cluster: Cluster) -> None:
    cluster.see(pod("a", on="n1"), pod("a", on="n1", leaving=True), pod("b"))
    assert cluster.group.racks == frozenset()
    assert cluster.group.started


def test_a_nominated_group_is_not_nominated_again_until_the_nomination_expires(
    cluster: Cluster,
) -> None:
    cluster.see(pod("b"), pod("c", created="2026-01-01T00:00:01Z"), pod("a"))
    [anchor] = cluster.choose()
    assert [ref.name for ref, _ in anchor.places] == ["a", "b", "c"]
    cluster.state.nominated(anchor, 8)
    assert cluster.choose() == ()
    assert cluster.state.expire_nominations(8) == []
    assert cluster.state.expire_nominations(9) == [anchor]
    assert cluster.choose() == (anchor,)


def test_a_nomination_of_which_a_pod_was_bound_does_not_expire(cluster: Cluster) -> None:
    cluster.see(pod("a"), pod("b"), pod("c"))
    [anchor] = cluster.choose()
    cluster.state.nominated(anchor, 8)
    cluster.see(pod("a", on="n1"))
    assert cluster.state.expire_nominations(9) == []
    is_pending = [cluster.state.is_pending(ref) for ref, _ in anchor.places]
    assert is_pending == [False, True, True]


def test_pods_count_as_untried_until_kube_scheduler_marks_them_unschedulable(
    cluster: Cluster,
) -> None:
    cluster.see(pod("a", untried=True), pod("b"), pod("c", untried=True))
    assert cluster.group.untried == 2
    cluster.see(pod("a"), pod("c", on="n1", untried=True))
    assert cluster.group.untried == 0


def test_no_group_is_pending_once_each_has_a_bound_pod(cluster: Cluster) -> None:
    waited = [cluster.state.any_group_pending]
    for change in (pod("a"), pod("b"), pod("b", on="n1")):
        cluster.see(change)
        waited.append(cluster.state.any_group_pending)
    assert waited == [False, True, True, False]


def test_a_group_whose_first_pod_went_to_its_nominated_node_is_anchored(cluster: Cluster) -> None:
    cluster.see(pod("a"), pod("b"), pod("c"))
    [anchor] = cluster.choose()
    cluster.state.nominated(anchor, 8)
    cluster.see(pod("b", on="n1"), at=9)
    cluster.see(pod("a", on="n2"), at=10)
    found = GroupOutcome("east", "g", "anchored", "", "uid-b", "n1", "r1", 9)
    assert cluster.outcome() == found


def test_a_group_whose_first_pod_went_elsewhere_is_scheduler_first(cluster: Cluster) -> None:
    cluster.see(pod("a"), pod("b"), pod("c"))
    [anchor] = cluster.choose()
    cluster.state.nominated(anchor, 8)
    cluster.see(pod("b", on="n2"), at=9)
    cluster.see(pod("a", on="n1"), at=10)
    assert cluster.outcome().outcome == "scheduler-first"


def test_a_group_with_a_pod_bound_elsewhere_stays_scheduler_first(
    cluster: Cluster,
) -> None:
    cluster.see(pod("a", on="n1"))
    cluster.state.take_pods(Changed(pod("a", on="n1"), deleted=True), 9)
    cluster.see(pod("b"), pod("c"))
    assert cluster.choose() == ()
    assert cluster.outcome() == GroupOutcome(
        "east", "g", "scheduler-first", "", "uid-a", "n1", "r1", 7
    )


def test_a_group_never_bound_is_no_room_with_its_last_obstacle(cluster: Cluster) -> None:
    assert cluster.outcome().outcome == "no-room"
    assert cluster.outcome().reason == "none of its pods was observed pending"
    cluster.recorder.record_obstacle("g", "no rack can hold it")
    assert cluster.outcome().reason == "no rack can hold it"
    assert cluster.outcome().at_micros is None


def test_every_planned_group_has_one_outcome_in_order_of_name(cluster: Cluster) -> None:
    found = cluster.recorder.outcomes(cluster.state.rack_of)
    assert [each.group for each in found] == ["g", "h"]
