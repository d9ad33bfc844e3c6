"""Who deletes pods: an eviction shows in a condition of the pod, a plain DELETE nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

# We, whoever plays the kubelets, and Kubernetes itself, whose controllers have their reasons.
_KUBERNETES = ("system:serviceaccount:kube-system:", "system:kube-")
_OURS = ("admin", "kwok", "substrate-check")


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Line(msgspec.Struct, rename="camel"):
    verb: str = ""
    user: _User = msgspec.field(default_factory=_User)
    object_ref: _Object = msgspec.field(default_factory=_Object)


class Deletions:
    """Reads an API server's audit log as it grows."""

    def __init__(self, audit_log: Path) -> None:
        self._path = audit_log
        self._read = audit_log.stat().st_size
        self._decoder = msgspec.json.Decoder(_Line)

    def by_others(self) -> Iterator[tuple[str, str, str]]:
        """Namespace, name and deleter of pods that the autoscaler, or a stranger, has deleted since
        the last time that somebody asked.
        """
        with self._path.open("rb") as log:
            log.seek(self._read)
            content = log.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        for raw in whole.splitlines():
            line = self._decoder.decode(raw)
            about, who = line.object_ref, line.user.username
            is_pod = about.resource == "pods" and not about.subresource and about.name
            known = who in _OURS or who.startswith(_KUBERNETES)
            if line.verb == "delete" and is_pod and not known:
                yield about.namespace, about.name, who
