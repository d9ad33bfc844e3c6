"""Who ended a pod is read from the audit log: the first whose request was granted."""

from __future__ import annotations

import pytest

from loaddriver.record.removals import Cause, PodRemoval, pod_removals
from loaddriver.record.rows import build_rows
from tests.record.record_rig import at, bound, created, line, observations

ACCOUNT = "system:serviceaccount:kube-system:"


def evicted(name: str, seconds: float, code: int = 201) -> bytes:
    return line("create pods/eviction", name, seconds, user="bigfleet-operator", code=code)


def deleted(name: str, seconds: float, user: str) -> bytes:
    return line("delete pods", name, seconds, user=user, code=200)


def ends(*lines: bytes) -> list[PodRemoval]:
    observed = [observations([created("u1", "web-x", 1), bound("u1", "web-x", 2), *lines])]
    return pod_removals(observed, build_rows(observed))


def test_an_evicted_pod_was_not_removed_by_the_kubelet_that_cleared_it_up() -> None:
    """Kubelets delete what has ended; the cause came before that."""
    (end,) = ends(evicted("web-x", 5), deleted("web-x", 6, "kwok"))
    assert (end.cause, end.at_micros, end.evictions) == (Cause.EVICTED, at(5), 1)


def test_an_eviction_that_was_refused_removed_nobody() -> None:
    """A disruption budget says 429, and the operator comes again."""
    (end,) = ends(evicted("web-x", 5, 429), evicted("web-x", 7, 429), evicted("web-x", 9))
    assert (end.cause, end.at_micros, end.evictions) == (Cause.EVICTED, at(9), 1)
    assert ends(evicted("web-x", 5, 429)) == []


def test_evictions_granted_again_are_counted() -> None:
    (end,) = ends(evicted("web-x", 5), evicted("web-x", 7))
    assert end.evictions == 2


@pytest.mark.parametrize(
    ("user", "cause"),
    [
        ("system:kube-scheduler", Cause.PREEMPTED),
        ("load-driver", Cause.LOAD),
        (f"{ACCOUNT}replicaset-controller", Cause.CONTROLLER),
        (f"{ACCOUNT}generic-garbage-collector", Cause.CONTROLLER),
        (f"{ACCOUNT}pod-garbage-collector", Cause.LOST),
        (f"{ACCOUNT}node-controller", Cause.LOST),
        ("kwok", Cause.KUBELET),
        ("system:node:n1", Cause.KUBELET),
        ("bigfleet-operator", Cause.OTHER),
    ],
)
def test_each_writer_stands_for_a_cause(user: str, cause: Cause) -> None:
    """An operator that deletes instead of evicting is none of the good ways."""
    (end,) = ends(deleted("web-x", 5, user))
    assert end.cause is cause
    assert end.evictions == 0


def test_a_name_that_is_used_again_means_the_pod_that_bore_it_then() -> None:
    """StatefulSets do that."""
    again = [created("u2", "web-x", 8), bound("u2", "web-x", 9), evicted("web-x", 10)]
    first, second = ends(evicted("web-x", 5), *again)
    assert (first.pod.uid, second.pod.uid) == ("u1", "u2")
    assert (first.evictions, second.evictions) == (1, 1)


def test_a_pod_that_is_none_of_the_loads_is_left_out() -> None:
    assert ends(evicted("coredns-y", 5)) == []
