"""Replicas that come and go: members of the store's own cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject
from bigfleet.ports.coordination import CoordinationStore, Member
from bigfleet.services.coordinator import checks
from bigfleet.services.coordinator.reign import NotLeading, Reign

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Newcomer:
    """A replica that asks for admission, and the peer addresses of all that it was told of."""

    id: str
    address: str
    told_of: Sequence[str] = ()

    def check(self) -> None:
        """InvalidInput unless all of it can be."""
        checks.name("node_id", self.id)
        for address in (self.address, *self.told_of):
            checks.address("raft_address", address)


class Membership:
    """What the leader does about replicas. `scheme` is that of the peers' URLs."""

    def __init__(self, store: CoordinationStore, own_id: str, scheme: str) -> None:
        self._store, self._own_id, self._scheme = store, own_id, scheme

    async def join(self, reign: Reign, newcomer: Newcomer) -> None:
        """Let a replica in, first without a vote. Harmless when it is in and never ran.

        InvalidInput when it is to have another address than before, has lost what it wrote down, or
        was told of other replicas than there are; Unavailable while another one still waits for its
        vote, because the store bears one such at a time.
        """
        newcomer.check()
        reign.require()
        members = await self._store.members()
        _refuse_confused(newcomer, members)
        if newcomer.address in (member.peer_address for member in members):
            return
        if waiting := [_title(member) for member in members if member.learner]:
            raise Unavailable(
                f"{waiting[0]} has no vote yet, and replicas join one by one; if it is not to "
                f"come, `bigfleet fleet leave {waiting[0]}` takes it out"
            )
        await self._store.add_learner(f"{self._scheme}://{newcomer.address}")
        _LOG.info("replica added", extra={"replica": newcomer.id, "address": newcomer.address})

    async def leave(self, reign: Reign, node_id: str) -> None:
        """Take a replica out; one that never ran goes by its peer address. The leader itself first
        hands over, and the caller asks again.
        """
        checks.name("node_id", node_id)
        reign.require()
        members = await self._store.members()
        leaver = next((m for m in members if node_id in (m.name, m.peer_address)), None)
        if leaver is None:
            known = ", ".join(sorted(_title(member) for member in members))
            raise UnknownObject(f"no replica {node_id}; there are: {known}")
        if leaver.name == self._own_id:
            await self._abdicate(members)
        await self._store.remove(leaver.id)
        _LOG.info("replica removed", extra={"replica": node_id})

    async def _abdicate(self, members: Sequence[Member]) -> None:
        for heir in members:
            if heir.name not in ("", self._own_id) and not heir.learner:
                await self._store.move_leader(heir.id)
                raise NotLeading(f"leadership has gone to {heir.name}; ask again there")
        raise BigFleetError(f"{self._own_id} is the only replica; without it nothing is left")

    async def promote_learners(self) -> None:
        """Give a vote to those that have caught up."""
        try:
            for member in await self._store.members():
                if member.learner and member.started and await self._store.promote(member.id):
                    _LOG.info("replica has a vote now", extra={"replica": member.name})
        except Unavailable as error:
            _LOG.debug("learners wait: %s", error)


def _title(member: Member) -> str:
    """By what people can name it."""
    return member.name or member.peer_address


def _refuse_confused(newcomer: Newcomer, members: Sequence[Member]) -> None:
    """InvalidInput for one with which the store could not begin, or could lose what it holds."""
    for member in members:
        if member.peer_address == newcomer.address and member.started:
            hint = (
                f"has an empty state directory, but is a member already, as {_title(member)}: what "
                "it confirmed would be lost with it. `bigfleet fleet leave "
                f"{_title(member)}` comes first"
            )
            raise InvalidInput("node_id", newcomer.id, hint)
        if member.name == newcomer.id and member.peer_address != newcomer.address:
            hint = f"is a member at {member.peer_address}; `bigfleet fleet leave {newcomer.id}` "
            raise InvalidInput("node_id", newcomer.id, hint + "comes first")
    present = {member.peer_address for member in members} | {newcomer.address}
    if newcomer.told_of and set(newcomer.told_of) != present:
        hint = f"does not name all replicas, as they name each other: {', '.join(sorted(present))}"
        raise InvalidInput("--peers", ", ".join(newcomer.told_of), hint)
