"""Joining and removing replicas: membership of the etcd cluster."""

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
    """A replica that asks to join, and the peer addresses of its --peers."""

    id: str
    address: str
    known_peers: Sequence[str] = ()

    def check(self) -> None:
        """InvalidInput for a malformed name or address."""
        validation.name("node_id", self.id)
        for address in (self.address, *self.known_peers):
            validation.address("raft_address", address)


class Membership:
    """The leader's changes of membership. `scheme` is that of the peers' URLs."""

    def __init__(self, store: CoordinationStore, own_id: str, scheme: str) -> None:
        self._store, self._own_id, self._scheme = store, own_id, scheme

    async def join(self, leader_term: LeaderTerm, joining_member: JoiningMember) -> None:
        """Add a replica as a learner. No effect for a member that has never started.

        InvalidInput when it has another address than before, has lost its state, or lists other
        peers than there are; Unavailable while another learner is not promoted yet, because etcd
        allows one at a time.
        """
        joining_member.check()
        leader_term.require_leadership()
        members = await self._store.members()
        _validate_joining(joining_member, members)
        if joining_member.address in (member.peer_address for member in members):
            return
        if waiting := [_display_name(member) for member in members if member.learner]:
            raise Unavailable(
                f"{waiting[0]} has no vote yet, and replicas join one at a time; to give up on "
                f"it, run `bigfleet fleet remove-replica {waiting[0]}`"
            )
        await self._store.add_learner(f"{self._scheme}://{joining_member.address}")
        _LOG.info(
            "replica added", extra={"replica": joining_member.id, "address": joining_member.address}
        )

    async def leave(self, leader_term: LeaderTerm, node_id: str) -> None:
        """Remove a replica by name, or by peer address if it has never started. The leader first
        hands leadership over, and the caller retries.
        """
        validation.name("node_id", node_id)
        leader_term.require_leadership()
        members = await self._store.members()
        leaving = next((m for m in members if node_id in (m.name, m.peer_address)), None)
        if leaving is None:
            known = ", ".join(sorted(_display_name(member) for member in members))
            raise UnknownObject(f"no replica {node_id}; replicas: {known}")
        if leaving.name == self._own_id:
            await self._hand_off(members)
        await self._store.remove(leaving.id)
        _LOG.info("replica removed", extra={"replica": node_id})

    async def _hand_off(self, members: Sequence[Member]) -> None:
        for transfer_target in members:
            if transfer_target.name not in ("", self._own_id) and not transfer_target.learner:
                await self._store.move_leader(transfer_target.id)
                raise NotLeader(f"leadership moved to {transfer_target.name}; retry there")
        raise BigFleetError(f"{self._own_id} is the only replica and cannot be removed")

    async def promote_learners(self) -> None:
        """Promote learners that have caught up to voting members."""
        try:
            for member in await self._store.members():
                if member.learner and member.started and await self._store.promote(member.id):
                    _LOG.info("replica promoted to voter", extra={"replica": member.name})
        except Unavailable as error:
            _LOG.debug("promotion deferred: %s", error)


def _display_name(member: Member) -> str:
    """Its name, or its peer address before its first start."""
    return member.name or member.peer_address


def _validate_joining(joining_member: JoiningMember, members: Sequence[Member]) -> None:
    """InvalidInput for a replica that could not start, or with which writes could be lost."""
    for member in members:
        if member.peer_address == joining_member.address and member.started:
            hint = (
                f"has an empty state directory, but is a member already, as {member.name}: writes "
                f"that it confirmed would be lost. First run `{_remove_command(member.name)}`"
            )
            raise InvalidInput("node_id", joining_member.id, hint)
        if member.name == joining_member.id and member.peer_address != joining_member.address:
            command = _remove_command(joining_member.id)
            hint = f"is a member at {member.peer_address}; first run `{command}`"
            raise InvalidInput("node_id", joining_member.id, hint)
    present = {member.peer_address for member in members} | {joining_member.address}
    if joining_member.known_peers and set(joining_member.known_peers) != present:
        hint = f"differ from the peers of this coordinator: {', '.join(sorted(present))}"
        raise InvalidInput("--peers", ", ".join(joining_member.known_peers), hint)


def _remove_command(replica: str) -> str:
    return f"bigfleet fleet remove-replica {replica}"
