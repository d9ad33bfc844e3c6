"""The cluster that machines under test join, and who says when their Nodes are Ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from bigfleet.conformance.expectations import Skipped


class Cluster(Protocol):
    """What checks ask of a cluster. NotChecked where it cannot do what is asked."""

    @property
    def id(self) -> str:
        """As the provider is told it in Configure."""
        ...

    def blob(self, machine: str) -> bytes:
        """What `machine` needs to join."""
        ...

    async def remove(self, machine: str) -> None:
        """Delete the machine's Node if there is one, as an operator does before a drain."""
        ...

    async def joined(self, machine: str, seconds: float) -> bool:
        """Whether a Node of the machine registers within `seconds`."""
        ...

    async def taints(self, machine: str) -> Sequence[Mapping[str, str]] | None:
        """Those of the machine's Node; None where they cannot be seen."""
        ...

    def readiness_withheld(self) -> AbstractAsyncContextManager[None]:
        """An `async with` inside which no new Node becomes Ready."""
        ...


class ExternalCluster:
    """A cluster of the provider's own, which the suite does not see: its `template` is a bootstrap
    blob in which `{machine}` stands for the machine's id.
    """

    def __init__(self, cluster_id: str, template: bytes) -> None:
        self.id, self._template = cluster_id, template

    def blob(self, machine: str) -> bytes:
        """The template, filled in."""
        return self._template.replace(b"{machine}", machine.encode())

    async def remove(self, machine: str) -> None:
        """Nothing: the drain's grace ends it."""

    async def joined(self, machine: str, seconds: float) -> bool:  # noqa: ARG002
        """Cannot be seen."""
        raise Skipped(_NEEDS_FAKE_CLUSTER)

    async def taints(self, machine: str) -> Sequence[Mapping[str, str]] | None:  # noqa: ARG002
        """Cannot be seen."""
        return None

    def readiness_withheld(self) -> AbstractAsyncContextManager[None]:
        """Cannot be done."""
        raise Skipped(_NEEDS_FAKE_CLUSTER)


_NEEDS_FAKE_CLUSTER = (
    "needs a cluster whose Nodes the suite can keep from being Ready: leave --bootstrap-blob away, "
    "and let the machines join the one that the suite serves"
)
