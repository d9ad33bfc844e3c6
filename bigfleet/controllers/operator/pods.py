"""Pods, as far as they matter to the emptying of their Node."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_MIRROR = "kubernetes.io/config.mirror"


class _Owner(msgspec.Struct):
    kind: str
    uid: str = ""
    controller: bool = False


class _PodMetadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None


class _PodStatus(msgspec.Struct):
    phase: str = ""


class PodOnNode(msgspec.Struct):
    """A Pod as far as it matters to the emptying of its Node."""

    metadata: _PodMetadata
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def owner(self) -> str:
        """The UID of the controller that it belongs to, or its own."""
        owners = self.metadata.owner_references or ()
        return next((owner.uid for owner in owners if owner.controller), self.metadata.uid)


def keeping(pods: Iterable[PodOnNode]) -> list[PodOnNode]:
    """Those for whose sake a Node is not empty: not what runs on every Node, nor what has ended."""
    return [pod for pod in pods if not _belongs_to_node(pod) and not _ended(pod)]


def _belongs_to_node(pod: PodOnNode) -> bool:
    owners = pod.metadata.owner_references or ()
    daemon = any(o.controller and o.kind == "DaemonSet" for o in owners)
    return daemon or _MIRROR in (pod.metadata.annotations or {})


def _ended(pod: PodOnNode) -> bool:
    return pod.status.phase in ("Succeeded", "Failed")
