"""Replicas that come and go: members of the store's own cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject
from bigfleet.ports.coordination import CoordinationStore, Member
from bigfleet.services.coordinator import checks
from bigfleet.services.coordinator.reign import NotLeading, Reign

_LOG = logging.getLogger(__name__)


class Membership:
    """What the leader does about replicas. `scheme` is that of the peers' URLs."""

    def __init__(self, store: CoordinationStore, own_id: str, scheme: str) -> None:
        self._store, self._own_id, self._scheme = store, own_id, scheme

    async def join(self, reign: Reign, node_id: str, raft_address: str) -> None:
        """Let a replica in, first without a vote. Harmless when it is in already.

        InvalidInput when one of that name has another address; Unavailable while another one still
        waits for its vote, because the store bears one such at a time.
        """
        checks.name("node_id", node_id)
        checks.address("raft_address", raft_address)
        reign.require()
        url = f"{self._scheme}://{raft_address}"
        members = await self._store.members()
        if any(member.peer_url == url for member in members):
            return
        if any(member.name == node_id for member in members):
            cure = f"is a member with another address; `bigfleet fleet leave {node_id}` comes first"
            raise InvalidInput("node_id", node_id, cure)
        if waiting := [member.name or member.peer_url for member in members if member.learner]:
            raise Unavailable(f"{', '.join(waiting)} has no vote yet; replicas join one by one")
        await self._store.add_learner(url)
        _LOG.info("replica added", extra={"replica": node_id, "address": raft_address})

    async def leave(self, reign: Reign, node_id: str) -> None:
        """Take a replica out. The leader itself first hands over, and the caller asks again."""
        checks.name("node_id", node_id)
        reign.require()
        members = await self._store.members()
        leaver = next((member for member in members if member.name == node_id), None)
        if leaver is None:
            known = ", ".join(sorted(member.name or "(not started)" for member in members))
            raise UnknownObject(f"no replica {node_id}; there are: {known}")
        if node_id == self._own_id:
            await self._abdicate(members)
        await self._store.remove(leaver.id)
        _LOG.info("replica removed", extra={"replica": node_id})

    async def _abdicate(self, members: Sequence[Member]) -> None:
        for heir in members:
            if heir.name not in ("", self._own_id) and not heir.learner:
                await self._store.hand_over(heir.id)
                raise NotLeading(f"leadership has gone to {heir.name}; ask again there")
        raise BigFleetError(f"{self._own_id} is the only replica; without it nothing is left")

    async def promote_learners(self) -> None:
        """Give a vote to those that have caught up."""
        try:
            for member in await self._store.members():
                if member.learner and member.name and await self._store.promote(member.id):
                    _LOG.info("replica has a vote now", extra={"replica": member.name})
        except Unavailable as error:
            _LOG.debug("learners wait: %s", error)
