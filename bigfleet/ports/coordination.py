"""The coordinator's state: a small replicated store that elects one leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigfleet.model.errors import BigFleetError

# Holds the current leader; every commit is conditional on its revision.
LEADER_KEY = "leader"

Changes = Mapping[str, bytes | None]


class LeadershipLost(BigFleetError):
    """Another replica has claimed leadership; nothing was written."""


class OutcomeUnknown(BigFleetError):
    """The store did not answer: the write may have happened, or may still happen."""


@dataclass(frozen=True, slots=True)
class LeadershipStatus:
    """A member's view of the store's own election."""

    member_id: int
    #: 0 if the member knows no leader
    leader_id: int
    term: int

    @property
    def is_leader(self) -> bool:
        """Whether this member considers itself the leader."""
        return self.member_id == self.leader_id


@dataclass(frozen=True, slots=True)
class WatchUpdate:
    """Changes up to and including `revision`; None is a deleted row."""

    revision: int
    changes: Changes
    #: the changes are all existing rows; discard whatever was known before
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A replica of the store."""

    id: int
    #: may be "" until the member has started
    name: str
    peer_url: str
    #: replicates, but has no vote yet
    learner: bool
    #: has run at least once
    started: bool

    @property
    def peer_address(self) -> str:
        """The address for other replicas, without the scheme."""
        return self.peer_url.partition("://")[2]


class CoordinationStore(Protocol):
    """The replicated store, accessed through one member.

    Every call raises Unavailable if the member does not answer in time.
    """

    async def leadership_status(self) -> LeadershipStatus:
        """The member's own view, without asking the others."""
        ...

    def watch(self) -> AsyncIterator[WatchUpdate]:
        """Yield all rows, then all changes to them in order; ends with Unavailable."""
        ...

    async def leader_row(self) -> tuple[bytes, int]:
        """The leader row in a linearizable read, and its revision; (b"", 0) before the first."""
        ...

    async def claim(self, row: bytes, expected_revision: int) -> int:
        """Replace the leader row if it has the expected revision; returns the new revision.

        Raises LeadershipLost if it has another one, OutcomeUnknown if there was no answer.
        """
        ...

    async def commit(self, claim_revision: int, changes: Changes) -> None:
        """Write all changes atomically if the leader row still has the claim's revision.

        Raises LeadershipLost if it has another one, OutcomeUnknown if there was no answer.
        """
        ...

    async def members(self) -> Sequence[Member]:
        """All replicas known to this member."""
        ...

    async def add_learner(self, peer_url: str) -> None:
        """Add a replica without a vote, to be promoted once it has caught up."""
        ...

    async def promote(self, member_id: int) -> bool:
        """Give a learner its vote; False if it has not caught up."""
        ...

    async def remove(self, member_id: int) -> None:
        """Remove a replica; raises BigFleetError if the others would lose quorum."""
        ...

    async def move_leader(self, member_id: int) -> None:
        """Transfer the store's leadership to another member; only the leader can."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...
