"""Removals of the load's pods, by the client that first requested each."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from loaddriver.record.audit import Name, Removal
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from loaddriver.substrates.credentials import LOAD_DRIVER

_ACCOUNTS = "system:serviceaccount:kube-system:"
_SCHEDULER = "system:kube-scheduler"
_OF_LOST_NODES = frozenset(
    {"pod-garbage-collector", "node-controller", "taint-eviction-controller"}
)
_KUBELETS = ("kwok", "system:node:")


class Cause(Enum):
    """The cause of a removal. CONTROLLER is the pod's own or the garbage collector; LOST pods were
    deleted with their Node; KUBELET deletes pods that have finished.
    """

    EVICTED = "evicted"
    PREEMPTED = "preempted"
    LOAD = "load"
    CONTROLLER = "controller"
    LOST = "lost"
    KUBELET = "kubelet"
    OTHER = "other"

    @property
    def is_disruption(self) -> bool:
        """Whether the workload's owner neither requested nor expected it."""
        return self in (Cause.EVICTED, Cause.PREEMPTED, Cause.LOST, Cause.OTHER)


@dataclass(frozen=True)
class PodRemoval:
    """The removal of a pod, and its number of successful evictions."""

    pod: PodRow
    at_micros: int
    cause: Cause
    evictions: int


def pod_removals(observed: Sequence[Observations], rows: Sequence[PodRow]) -> list[PodRemoval]:
    """The removals of the load's pods in the audit logs, in order of time."""
    found = [end for each in observed for end in _of_cluster(each, rows)]
    return sorted(found, key=lambda end: (end.at_micros, end.pod.uid))


def _of_cluster(observed: Observations, rows: Sequence[PodRow]) -> Iterator[PodRemoval]:
    rows_by_name: defaultdict[Name, list[PodRow]] = defaultdict(list)
    for row in rows:  # in order of creation
        if row.cluster == observed.cluster:
            rows_by_name[row.namespace, row.name].append(row)
    requests: defaultdict[str, list[Removal]] = defaultdict(list)
    pods: dict[str, PodRow] = {}
    for removal in observed.audit.removals if observed.audit else ():
        own = rows_by_name.get(removal.name, [])
        position = bisect_right(own, removal.at_micros, key=lambda row: row.created_micros)
        if position:
            pods[own[position - 1].uid] = own[position - 1]
            requests[own[position - 1].uid].append(removal)
    for uid, pod in pods.items():
        first = min(requests[uid], key=lambda removal: removal.at_micros)
        granted = sum(removal.eviction for removal in requests[uid])
        yield PodRemoval(pod, first.at_micros, _cause(first), granted)


def _cause(removal: Removal) -> Cause:
    who = removal.writer
    if removal.eviction:
        return Cause.EVICTED
    if who == _SCHEDULER:
        return Cause.PREEMPTED
    if who == LOAD_DRIVER:
        return Cause.LOAD
    if who.startswith(_ACCOUNTS):
        lost = who.removeprefix(_ACCOUNTS) in _OF_LOST_NODES
        return Cause.LOST if lost else Cause.CONTROLLER
    return Cause.KUBELET if who.startswith(_KUBELETS) else Cause.OTHER
