"""The cluster that machines under test join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bigfleet.conformance.expectations import Skipped


class Cluster(Protocol):
    """The cluster as checks use it. Skipped if it cannot do what a check needs."""

    @property
    def id(self) -> str:
        """The cluster id in Configure."""
        ...

    def blob(self, machine: str) -> bytes:
        """The bootstrap blob of `machine`."""
        ...

    async def remove(self, machine: str) -> None:
        """Delete the machine's Node if there is one, as an operator does before a drain."""
        ...

    async def joined(self, machine: str, seconds: float) -> bool:
        """Whether a Node of the machine registers within `seconds`."""
        ...

    async def taints(self, machine: str) -> Sequence[Mapping[str, str]] | None:
        """The taints of the machine's Node; None if they cannot be read."""
        ...

    def readiness_withheld(self) -> AbstractAsyncContextManager[None]:
        """A context in which no new Node becomes Ready."""
        ...


class ExternalCluster:
    """A cluster that the suite cannot access. `template` is a bootstrap blob with `{machine}` in
    place of the machine's id.
    """

    def __init__(self, cluster_id: str, template: bytes) -> None:
        self.id, self._template = cluster_id, template

    def blob(self, machine: str) -> bytes:
        """The template, filled in."""
        return self._template.replace(b"{machine}", machine.encode())

    async def remove(self, machine: str) -> None:
        """Does nothing: the drain ends with its grace period."""

    async def joined(self, machine: str, seconds: float) -> bool:  # noqa: ARG002
        """Skipped: the Nodes cannot be read."""
        raise Skipped(_NEEDS_FAKE_CLUSTER)

    async def taints(self, machine: str) -> Sequence[Mapping[str, str]] | None:  # noqa: ARG002
        """None: the Nodes cannot be read."""
        return None

    def readiness_withheld(self) -> AbstractAsyncContextManager[None]:
        """Skipped: the Nodes cannot be controlled."""
        raise Skipped(_NEEDS_FAKE_CLUSTER)


_NEEDS_FAKE_CLUSTER = (
    "needs a cluster whose Nodes the suite controls: omit --bootstrap-blob and let the machines "
    "join the cluster that the suite serves"
)
