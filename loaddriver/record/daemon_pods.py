"""The pods of DaemonSets: not measured, but they use capacity on every node."""

from __future__ import annotations

from collections import Counter

from loaddriver.plan.setup_manifests import DAEMON_SET_LABEL
from loaddriver.record.audit import AuditTimestamps, Name
from loaddriver.record.recorder import Observations

DaemonPod = tuple[str, str]
"""A node and the DaemonSet of a pod on it."""


def daemon_pods_at_end(observed: Observations) -> Counter[DaemonPod]:
    """The number of pods of each DaemonSet bound to each node when observation ended.

    Empty without an audit log that the harness can read.
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
