"""Where the coordinator's state is kept: a small store that agrees on one leader."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bigfleet.model.errors import BigFleetError

# Holds whoever leads; every commit compares it.
LEADER_KEY = "leader"

Changes = Mapping[str, bytes | None]


class LeadershipLost(BigFleetError):
    """Somebody else has claimed leadership since: nothing was written."""


class OutcomeUnknown(BigFleetError):
    """The store gave no answer: what was asked may have been written, or may yet be."""


@dataclass(frozen=True, slots=True)
class LeadershipStatus:
    """How one member stands in the store's own election.

    `leader_id` is 0 while there is no leader that this member knows of.
    """

    member_id: int
    leader_id: int
    term: int

    @property
    def is_leader(self) -> bool:
        """Whether this member is the leader, as far as it knows."""
        return self.member_id == self.leader_id


@dataclass(frozen=True, slots=True)
class WatchUpdate:
    """Changes up to and with `revision`; None is a row that is gone.

    `is_snapshot`: these are all rows there are, and whatever was known before is void.
    """

    revision: int
    changes: Changes
    is_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A replica of the store. A learner follows but has no vote yet; `started`: it has ever run.
    `name` may be "" before.
    """

    id: int
    name: str
    peer_url: str
    learner: bool
    started: bool

    @property
    def peer_address(self) -> str:
        """Where the others reach it, without the scheme."""
        return self.peer_url.partition("://")[2]


class CoordinationStore(Protocol):
    """One member's access to the replicated store.

    Every call raises Unavailable when the member does not answer in time.
    """

    async def leadership_status(self) -> LeadershipStatus:
        """The member's own view, without asking the others."""
        ...

    def watch(self) -> AsyncIterator[WatchUpdate]:
        """First all rows, then every change to them in order; ends with Unavailable."""
        ...

    async def leader_row(self) -> tuple[bytes, int]:
        """The leader row as the majority knows it, and its revision; (b"", 0) before the first."""
        ...

    async def claim(self, row: bytes, expected_revision: int) -> int:
        """Replace the leader row if its revision is still the expected one; the new revision.

        Deposed when it is not; OutcomeUnknown when there was no answer.
        """
        ...

    async def commit(self, claim_revision: int, changes: Changes) -> None:
        """Write all of it or nothing, if the leader row still has the claim's revision.

        Deposed when it does not; OutcomeUnknown when there was no answer.
        """
        ...

    async def members(self) -> Sequence[Member]:
        """All replicas, as this member knows them."""
        ...

    async def add_learner(self, peer_url: str) -> None:
        """Let a new replica follow; it is to be promoted once it has caught up."""
        ...

    async def promote(self, member_id: int) -> bool:
        """Give a learner its vote; False while it has not caught up."""
        ...

    async def remove(self, member_id: int) -> None:
        """Take a replica out; BigFleetError says why not where the rest could not go on."""
        ...

    async def move_leader(self, member_id: int) -> None:
        """Make another member the store's leader; only the leader can."""
        ...

    async def close(self) -> None:
        """Give up the connection."""
        ...
