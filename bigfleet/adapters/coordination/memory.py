"""The coordination store in memory: members that agree because they share one dictionary.

Whoever drives it decides the elections, so that a test or a simulation says when a leader falls.
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
    """What the members share; `elect` makes one of them leader in the next term."""

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
        """As if the others had voted for it."""
        self.leader_id, self.term = self.named(name).id, self.term + 1

    def named(self, name: str) -> Member:
        """The member of this name."""
        return next(member for member in self.members if member.name == name)

    def store(self, name: str) -> MemoryStore:
        """One member's access."""
        return MemoryStore(self, self.named(name).id)

    def write(self, changes: Changes) -> int:
        """All of it, at a new revision."""
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
        """What was written since, waiting for it if need be."""
        while not (news := [each for each in self._history if each.revision > revision]):
            await self._advanced.wait()
        return news


class MemoryStore:
    """`CoordinationStore` of one member. `silent`: it answers nothing, as if it were stopped."""

    def __init__(self, cluster: MemoryCluster, member_id: int) -> None:
        self._cluster, self._member_id = cluster, member_id
        self.silent = False

    async def leadership_status(self) -> LeadershipStatus:
        """The member's own view, without asking the others."""
        self._answer()
        return LeadershipStatus(self._member_id, self._cluster.leader_id, self._cluster.term)

    async def watch(self) -> AsyncIterator[WatchUpdate]:
        """First all rows, then every change to them in order."""
        self._answer()
        revision = self._cluster.revision
        yield WatchUpdate(revision, dict(self._cluster.rows), is_snapshot=True)
        while True:
            for update in await self._cluster.after(revision):
                self._answer()
                revision = update.revision
                yield update

    async def leader_row(self) -> tuple[bytes, int]:
        """The leader row and its revision; (b"", 0) before the first."""
        self._answer()
        revision = self._cluster.revisions.get(LEADER_KEY, 0)
        return self._cluster.rows.get(LEADER_KEY, b""), revision

    async def claim(self, row: bytes, expected_revision: int) -> int:
        """Replace the leader row if its revision is still the expected one; the new revision."""
        self._require(expected_revision)
        return self._cluster.write({LEADER_KEY: row})

    async def commit(self, claim_revision: int, changes: Changes) -> None:
        """Write all of it or nothing, if the leader row still has the claim's revision."""
        self._require(claim_revision)
        self._cluster.write(changes)

    async def members(self) -> Sequence[Member]:
        """All replicas."""
        self._answer()
        return tuple(self._cluster.members)

    async def add_learner(self, peer_url: str) -> None:
        """Let a new replica follow."""
        self._answer()
        number = max(member.id for member in self._cluster.members) + 1
        name = peer_url.rpartition("/")[2]
        self._cluster.members.append(Member(number, name, peer_url, True, False))

    async def promote(self, member_id: int) -> bool:
        """Give a learner its vote."""
        self._answer()
        self._cluster.members = [
            replace(m, learner=False, started=True) if m.id == member_id else m
            for m in self._cluster.members
        ]
        return True

    async def remove(self, member_id: int) -> None:
        """Take a replica out; BigFleetError for the last one."""
        self._answer()
        rest = [member for member in self._cluster.members if member.id != member_id]
        if not rest:
            raise BigFleetError("the last replica cannot be removed")
        self._cluster.members = rest

    async def move_leader(self, member_id: int) -> None:
        """Make another member the store's leader."""
        self._answer()
        if self._cluster.leader_id != self._member_id:
            raise BigFleetError("only the leader can hand over")
        self._cluster.leader_id, self._cluster.term = member_id, self._cluster.term + 1

    async def close(self) -> None:
        """Nothing to give up."""

    def _require(self, leader_revision: int) -> None:
        self._answer()
        if self._cluster.revisions.get(LEADER_KEY, 0) != leader_revision:
            raise LeadershipLost("another replica has become leader")

    def _answer(self) -> None:
        if self.silent:
            raise Unavailable("the member does not answer")
