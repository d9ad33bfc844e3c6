"""A history that a test writes itself."""

from __future__ import annotations

from typing import Any

from tests.scenarios.history import History

ZONE = "topology.kubernetes.io/zone"


class Story:
    """A history that a test writes itself, moment by moment."""

    def __init__(self) -> None:
        self.now = 0.0
        self.seen = History(lambda: self.now)

    def node(self, name: str, gone: bool = False, **labels: str) -> None:
        """A Node in zone-a of type m-8, unless the labels say otherwise."""
        facts = {"kubernetes.io/hostname": name, ZONE: labels.pop("zone", "zone-a"), **labels}
        body = {"metadata": {"name": name, "uid": f"node-{name}", "labels": facts}, "spec": {}}
        self.seen.see_node(body, gone)

    def cordon(self, name: str) -> None:
        """Somebody cordons it."""
        body = self.seen.nodes[f"node-{name}"].latest
        self.seen.see_node({**body, "spec": {"unschedulable": True}})

    def pod(self, name: str, node: str = "", app: str = "web", **changes: Any) -> None:
        """A pod that runs on `node`, or waits."""
        phase = changes.pop("phase", "Running" if node else "Pending")
        conditions = changes.pop("conditions", [])
        gone = changes.pop("gone", False)
        metadata = {"name": name, "uid": name, "namespace": "scenario", "labels": {"app": app}}
        status = {"phase": phase, "conditions": conditions}
        self.seen.see_pod(
            {"metadata": {**metadata, **changes}, "spec": {"nodeName": node}, "status": status},
            gone,
        )
