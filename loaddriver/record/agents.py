"""The pods of DaemonSets: no part of what is measured, but they take room on every node."""

from __future__ import annotations

from collections import Counter

from loaddriver.record.audit import AuditStamps, Name
from loaddriver.record.recorder import Observations
from loaddriver.setup_manifests import DAEMON_SET_LABEL

NodeAgent = tuple[str, str]
"""A node and the DaemonSet of which a pod was there."""


def agents_at_end(observed: Observations) -> Counter[NodeAgent]:
    """How many pods of each DaemonSet were bound to each node and had not been removed when
    observation ended; none where the API server's log is not ours.
    """
    log = observed.audit or AuditStamps()
    agents: dict[Name, str] = {
        (made.pod.namespace, made.pod.name): made.pod.labels[DAEMON_SET_LABEL]
        for made in log.pods.values()
        if DAEMON_SET_LABEL in made.pod.labels
    }
    gone = {removal.name for removal in log.removals}
    return Counter(
        (binding.node, agents[binding.name])
        for binding in log.bindings
        if binding.name in agents and binding.name not in gone
    )
