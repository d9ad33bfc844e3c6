"""The state of one member, updated by watches and by the responses to writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bigfleet.fedhpa.members.objects import (
    MEMBER_PLURALS,
    POD_LABEL,
    Hpa,
    MemberWorkload,
    NamespacedName,
    Pod,
    WorkloadName,
)
from bigfleet.fedhpa.objects import Metadata
from bigfleet.observe import metrics

_KINDS = {kind.lower(): kind for kind in MEMBER_PLURALS}


@dataclass
class Listeners:
    """Callbacks for changes in a member."""

    autoscaler: Callable[[NamespacedName], None]
    workload: Callable[[WorkloadName], None]
    reachability: Callable[[], None]


@dataclass
class MemberState:
    """One member's managed objects; the last known ones while it is not `reachable`.

    `ever_listed`: they were listed at least once by this process. `reachability_known`: it was
    probed. `metrics_replicas` is the number of replicas that the metrics of an HPA cover.
    """

    name: str
    labels: Mapping[str, str]
    listeners: Listeners
    reachable: bool = False
    ever_listed: bool = False
    reachability_known: bool = False
    unreachable_reason: str = "not connected yet"
    hpas: dict[NamespacedName, Hpa] = field(default_factory=dict)
    metrics_replicas: dict[NamespacedName, int] = field(default_factory=dict)
    workloads: dict[WorkloadName, MemberWorkload] = field(default_factory=dict)
    _unscheduled: dict[tuple[str, str], set[str]] = field(default_factory=dict)

    def mark_reachable(self) -> None:
        """The member answers, and all objects are listed."""
        self.reachable = self.ever_listed = self.reachability_known = True
        self.unreachable_reason = ""
        metrics.fedhpa_reachable.labels(self.name).set(1)
        self.listeners.reachability()

    def mark_unreachable(self, why: str) -> None:
        """The member does not answer."""
        changed = self.reachable or not self.reachability_known
        self.reachable, self.reachability_known, self.unreachable_reason = False, True, why
        metrics.fedhpa_reachable.labels(self.name).set(0)
        if changed:
            self.listeners.reachability()

    def unscheduled(self, workload: WorkloadName) -> int:
        """How many of the workload's Pods have no node."""
        return len(self._unscheduled.get((workload.namespace, workload.label), ()))

    def put_hpa(self, hpa: Hpa) -> None:
        """Add or update an HPA, unless a newer version is known."""
        known = self.hpas.get(hpa.name)
        if _is_newer(hpa.metadata, known):
            # Just after scaling, an HPA still has the metrics from before.
            if known is None or _metrics(known) != _metrics(hpa):
                self.metrics_replicas[hpa.name] = hpa.status.current_replicas
            self.hpas[hpa.name] = hpa
            self.listeners.autoscaler(hpa.name)

    def drop_hpa(self, name: NamespacedName, uid: str | None = None) -> None:
        """Remove an HPA; with a `uid` only if it still has that."""
        known = self.hpas.get(name)
        if known is not None and uid in (None, known.metadata.uid):
            del self.hpas[name]
            self.metrics_replicas.pop(name, None)
            self.listeners.autoscaler(name)

    def replace_hpas(self, hpas: list[Hpa]) -> None:
        """Replace all HPAs."""
        for gone in set(self.hpas) - {h.name for h in hpas}:
            self.drop_hpa(gone)
        for hpa in hpas:
            self.put_hpa(hpa)

    def put_workload(self, kind: str, workload: MemberWorkload) -> None:
        """Add or update a workload, unless a newer version is known."""
        metadata = workload.metadata
        name = WorkloadName(kind, metadata.namespace, metadata.name)
        if _is_newer(metadata, self.workloads.get(name)):
            self.workloads[name] = workload
            self.listeners.workload(name)

    def drop_workload(self, name: WorkloadName, uid: str | None = None) -> None:
        """Remove a workload; with a `uid` only if it still has that."""
        known = self.workloads.get(name)
        if known is not None and uid in (None, known.metadata.uid):
            del self.workloads[name]
            self.listeners.workload(name)

    def replace_workloads(self, kind: str, workloads: list[MemberWorkload]) -> None:
        """Replace all workloads of that kind."""
        listed = {WorkloadName(kind, w.metadata.namespace, w.metadata.name) for w in workloads}
        for gone in {name for name in self.workloads if name.kind == kind} - listed:
            self.drop_workload(gone)
        for workload in workloads:
            self.put_workload(kind, workload)

    def replace_pods(self, pods: list[Pod]) -> None:
        """Replace all Pods without a node."""
        before, self._unscheduled = self._unscheduled, {}
        for pod in pods:
            self._unscheduled.setdefault(_owner(pod), set()).add(pod.metadata.name)
        for owner in before.keys() | self._unscheduled.keys():
            self._notify(owner)

    def observe_pod(self, pod: Pod, scheduled: bool) -> None:
        """Add a Pod without a node, or remove one that was scheduled or deleted."""
        owner = _owner(pod)
        names = self._unscheduled.setdefault(owner, set())
        if scheduled:
            names.discard(pod.metadata.name)
        else:
            names.add(pod.metadata.name)
        self._notify(owner)

    def _notify(self, owner: tuple[str, str]) -> None:
        namespace, label = owner
        short, _, name = label.partition(".")
        if kind := _KINDS.get(short):
            self.listeners.workload(WorkloadName(kind, namespace, name))


def _metrics(hpa: Hpa) -> bytes:
    return bytes(hpa.status.current_metrics)


def _owner(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.labels.get(POD_LABEL, "")


def _is_newer(metadata: Metadata, known: Hpa | MemberWorkload | None) -> bool:
    """Whether it is newer than the known one; resourceVersions are comparable since 1.35."""
    if known is None:
        return True
    return int(metadata.resource_version or 0) > int(known.metadata.resource_version or 0)
