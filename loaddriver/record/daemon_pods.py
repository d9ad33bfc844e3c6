"""The pods of DaemonSets: no part of what is measured, but they take room on every node."""

from __future__ import annotations

from collections import Counter

from loaddriver.plan.setup_manifests import DAEMON_SET_LABEL
from loaddriver.record.audit import AuditTimestamps, Name
from loaddriver.record.recorder import Observations

DaemonPod = tuple[str, str]
"""A node and the DaemonSet of which a pod was there."""


def daemon_pods_at_end(observed: Observations) -> Counter[DaemonPod]:
    """How many pods of each DaemonSet were bound to each node and had not been removed when
    observation ended; none where the API server's log is not ours.
    """
    log = observed.audit or AuditTimestamps()
    daemon_sets_by_pod: dict[Name, str] = {
        (made.pod.namespace, made.pod.name): made.pod.labels[DAEMON_SET_LABEL]
        for made in log.pods.values()
        if DAEMON_SET_LABEL in made.pod.labels
    }
    gone = {removal.name for removal in log.removals}
    return Counter(
        (binding.node, daemon_sets_by_pod[binding.name])
        for binding in log.bindings
        if binding.name in daemon_sets_by_pod and binding.name not in gone
    )
