"""The coordination store in memory: members that share one dictionary.

A test or a simulation decides the elections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from bigfleet.model.errors import BigFleetError, Unavailable
from bigfleet.ports.coordination import (
    LEADER_KEY,
    Changes,
    LeadershipLost,
    LeadershipStatus,
    Member,
    WatchUpdate,
)


class MemoryCluster:
    """The members' shared state; `elect` makes one of them leader of the next term."""

    def __init__(self, names: Sequence[str]) -> None:
        self.members = [
            Member(number, name, f"memory://{name}", learner=False, started=True)
            for number, name in enumerate(names, start=1)
        ]
        self.leader_id, self.term, self.revision = 0, 0, 0
        self.rows: dict[str, bytes] = {}
        self.revisions: dict[str, int] = {}
        self._history: list[WatchUpdate] = []
        self._advanced = asyncio.Event()

    def elect(self, name: str) -> None:
        """Make a member the leader of the next term."""
        self.leader_id, self.term = self.named(name).id, self.term + 1

    def named(self, name: str) -> Member:
        """The member of this name."""
        return next(member for member in self.members if member.name == name)

    def store(self, name: str) -> MemoryStore:
        """One member's store."""
        return MemoryStore(self, self.named(name).id)

    def write(self, changes: Changes) -> int:
        """Write all changes at a new revision."""
        self.revision += 1
        for key, value in changes.items():
            self.revisions[key] = self.revision
            if value is None:
                self.rows.pop(key, None)
            else:
                self.rows[key] = value
        self._history.append(WatchUpdate(self.revision, dict(changes)))
        self._advanced.set()
        self._advanced = asyncio.Event()
        return self.revision

    async def after(self, revision: int) -> Sequence[WatchUpdate]:
        """The updates after `revision`; waits until there is one."""
        while not (news := [each for each in self._history if each.revision > revision]):
            await self._advanced.wait()
        return news


class MemoryStore:
    """The `CoordinationStore` of one member. `silent`: it does not respond, as if stopped."""

    def __init__(self, cluster: MemoryCluster, member_id: int) -> None:
        self._cluster, self._member_id = cluster, member_id
        self.silent = False

    async def leadership_status(self) -> LeadershipStatus:
        """The member's own view."""
        self._require_responsive()
        return LeadershipStatus(self._member_id, self._cluster.leader_id, self._cluster.term)

    async def watch(self) -> AsyncIterator[WatchUpdate]:
        """All rows, then every change in order."""
        self._require_responsive()
        revision = self._cluster.revision
        yield WatchUpdate(revision, dict(self._cluster.rows), is_snapshot=True)
        while True:
            for update in await self._cluster.after(revision):
                self._require_responsive()
                revision = update.revision
                yield update

    async def leader_row(self) -> tuple[bytes, int]:
        """The leader row and its revision; (b"", 0) if there is none."""
        self._require_responsive()
        revision = self._cluster.revisions.get(LEADER_KEY, 0)
        return self._cluster.rows.get(LEADER_KEY, b""), revision

    async def claim(self, row: bytes, expected_revision: int) -> int:
        """Replace the leader row if it has the expected revision; return the new revision."""
        self._require(expected_revision)
        return self._cluster.write({LEADER_KEY: row})

    async def commit(self, claim_revision: int, changes: Changes) -> None:
        """Write all changes in one transaction if the leader row still has the claim's revision."""
        self._require(claim_revision)
        self._cluster.write(changes)

    async def members(self) -> Sequence[Member]:
        """All replicas."""
        self._require_responsive()
        return tuple(self._cluster.members)

    async def add_learner(self, peer_url: str) -> None:
        """Add a replica as a learner."""
        self._require_responsive()
        number = max(member.id for member in self._cluster.members) + 1
        name = peer_url.rpartition("/")[2]
        self._cluster.members.append(Member(number, name, peer_url, True, False))

    async def promote(self, member_id: int) -> bool:
        """Make a learner a voter."""
        self._require_responsive()
        self._cluster.members = [
            replace(m, learner=False, started=True) if m.id == member_id else m
            for m in self._cluster.members
        ]
        return True

    async def remove(self, member_id: int) -> None:
        """Remove a replica; BigFleetError for the last one."""
        self._require_responsive()
        rest = [member for member in self._cluster.members if member.id != member_id]
        if not rest:
            raise BigFleetError("the last replica cannot be removed")
        self._cluster.members = rest

    async def move_leader(self, member_id: int) -> None:
        """Transfer leadership to another member."""
        self._require_responsive()
        if self._cluster.leader_id != self._member_id:
            raise BigFleetError("only the leader can transfer leadership")
        self._cluster.leader_id, self._cluster.term = member_id, self._cluster.term + 1

    async def close(self) -> None:
        """Does nothing."""

    def _require(self, leader_revision: int) -> None:
        self._require_responsive()
        if self._cluster.revisions.get(LEADER_KEY, 0) != leader_revision:
            raise LeadershipLost("another replica has become leader")

    def _require_responsive(self) -> None:
        if self.silent:
            raise Unavailable("the member does not answer")
