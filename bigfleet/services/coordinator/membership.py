"""Replicas that come and go: members of the store's own cluster."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from bigfleet.model.errors import BigFleetError, InvalidInput, Unavailable, UnknownObject
from bigfleet.ports.coordination import CoordinationStore, Member
from bigfleet.services.coordinator import validation
from bigfleet.services.coordinator.leader_term import LeaderTerm, NotLeader

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class JoiningMember:
    """A replica that asks for admission, and the peer addresses of all that it was told of."""

    id: str
    address: str
    known_peers: Sequence[str] = ()

    def check(self) -> None:
        """InvalidInput unless all of it can be."""
        validation.name("node_id", self.id)
        for address in (self.address, *self.known_peers):
            validation.address("raft_address", address)


class Membership:
    """What the leader does about replicas. `scheme` is that of the peers' URLs."""

    def __init__(self, store: CoordinationStore, own_id: str, scheme: str) -> None:
        self._store, self._own_id, self._scheme = store, own_id, scheme

    async def join(self, leader_term: LeaderTerm, joining_member: JoiningMember) -> None:
        """Let a replica in, first without a vote. Harmless when it is in and never ran.

        InvalidInput when it is to have another address than before, has lost what it wrote down, or
        was told of other replicas than there are; Unavailable while another one still waits for its
        vote, because the store bears one such at a time.
        """
        joining_member.check()
        leader_term.require_leadership()
        members = await self._store.members()
        _validate_joining(joining_member, members)
        if joining_member.address in (member.peer_address for member in members):
            return
        if waiting := [_display_name(member) for member in members if member.learner]:
            raise Unavailable(
                f"{waiting[0]} has no vote yet, and replicas join one by one; if it is not to "
                f"come, `bigfleet fleet remove-replica {waiting[0]}` takes it out"
            )
        await self._store.add_learner(f"{self._scheme}://{joining_member.address}")
        _LOG.info(
            "replica added", extra={"replica": joining_member.id, "address": joining_member.address}
        )

    async def leave(self, leader_term: LeaderTerm, node_id: str) -> None:
        """Take a replica out; one that never ran goes by its peer address. The leader itself first
        hands over, and the caller asks again.
        """
        validation.name("node_id", node_id)
        leader_term.require_leadership()
        members = await self._store.members()
        leaving = next((m for m in members if node_id in (m.name, m.peer_address)), None)
        if leaving is None:
            known = ", ".join(sorted(_display_name(member) for member in members))
            raise UnknownObject(f"no replica {node_id}; there are: {known}")
        if leaving.name == self._own_id:
            await self._hand_off(members)
        await self._store.remove(leaving.id)
        _LOG.info("replica removed", extra={"replica": node_id})

    async def _hand_off(self, members: Sequence[Member]) -> None:
        for transfer_target in members:
            if transfer_target.name not in ("", self._own_id) and not transfer_target.learner:
                await self._store.move_leader(transfer_target.id)
                raise NotLeader(f"leadership has gone to {transfer_target.name}; ask again there")
        raise BigFleetError(f"{self._own_id} is the only replica; without it nothing is left")

    async def promote_learners(self) -> None:
        """Give a vote to those that have caught up."""
        try:
            for member in await self._store.members():
                if member.learner and member.started and await self._store.promote(member.id):
                    _LOG.info("replica has a vote now", extra={"replica": member.name})
        except Unavailable as error:
            _LOG.debug("learners wait: %s", error)


def _display_name(member: Member) -> str:
    """By what people can name it."""
    return member.name or member.peer_address


def _validate_joining(joining_member: JoiningMember, members: Sequence[Member]) -> None:
    """InvalidInput for one with which the store could not begin, or could lose what it holds."""
    for member in members:
        if member.peer_address == joining_member.address and member.started:
            hint = (
                "has an empty state directory, but is a member already, as "
                f"{_display_name(member)}: what "
                "it confirmed would be lost with it. `bigfleet fleet remove-replica "
                f"{_display_name(member)}` comes first"
            )
            raise InvalidInput("node_id", joining_member.id, hint)
        if member.name == joining_member.id and member.peer_address != joining_member.address:
            command = f"bigfleet fleet remove-replica {joining_member.id}"
            hint = f"is a member at {member.peer_address}; `{command}` comes first"
            raise InvalidInput("node_id", joining_member.id, hint)
    present = {member.peer_address for member in members} | {joining_member.address}
    if joining_member.known_peers and set(joining_member.known_peers) != present:
        hint = f"does not name all replicas, as they name each other: {', '.join(sorted(present))}"
        raise InvalidInput("--peers", ", ".join(joining_member.known_peers), hint)
