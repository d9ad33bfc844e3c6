"""Follows etcd's elections: claims leadership when this replica's member leads, else steps down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.ports.coordination import (
    CoordinationStore,
    LeadershipLost,
    LeadershipStatus,
    OutcomeUnknown,
)
from bigfleet.services.coordinator.leader_term import LeaderTerm, SequenceNumbers
from bigfleet.services.coordinator.mirror import Mirror
from bigfleet.services.coordinator.rows import Leader, encode, leader_decoder

_LOG = logging.getLogger(__name__)
# How soon a change of leader is noticed; a request to the own member takes half a millisecond.
_POLL_INTERVAL_SECONDS = 0.05


@dataclass(frozen=True)
class Replica:
    """Id and client address (HOST:PORT) of this replica."""

    id: str
    address: str


OnElected = Callable[[Leader | None, Leader], None]


class Leadership:
    """`leader_term` is set while this replica leads. `keepalive` is called at every poll with
    whether the member answers, `on_elected` with the previous and the new leader on a takeover.
    """

    def __init__(
        self,
        replica: Replica,
        store: CoordinationStore,
        keepalive: Callable[[bool], None],
        on_elected: OnElected,
        clock: Clock,
    ) -> None:
        self._replica, self._store, self._keepalive = replica, store, keepalive
        self._on_elected, self._clock = on_elected, clock
        self.leader_term: LeaderTerm | None = None
        self.leadership_status: LeadershipStatus | None = None
        self._sequence_numbers = SequenceNumbers()
        self._mirror = Mirror(store)
        self._mirror_task: asyncio.Task[None] | None = None
        self._claim_task: asyncio.Task[None] | None = None
        self._last_leader: Leader | None = None
        # The member's status at the present claim; any other status ends the claim.
        self._claimed_status: LeadershipStatus | None = None
        self._resigned = False

    @property
    def leader(self) -> Leader | None:
        """The leader, if this replica knows it."""
        leadership_status = self.leadership_status
        if leadership_status is None:
            return None
        known = self._last_leader if self.leader_term else self._mirror.leader
        return (
            known if known is not None and known.member_id == leadership_status.leader_id else None
        )

    def not_ready(self) -> str:
        """Why this replica is not ready; "" when it leads or knows the leader."""
        return "" if self.leader is not None else "no leader known"

    async def run(self) -> None:
        """Until cancelled. BigFleetError when the store's content cannot be read."""
        self._restart_mirror()
        try:
            while True:
                await self._poll()
                self._keepalive(self.leadership_status is not None)
                self._raise_failures()
                await asyncio.sleep(_POLL_INTERVAL_SECONDS)
        finally:
            self._step_down("stopping")
            for task in (self._mirror_task, self._claim_task):
                if task is not None:
                    task.cancel()

    async def resign(self) -> None:
        """Step down, and record in the store that it was voluntary."""
        self._resigned = True
        leader_term, self.leader_term = self.leader_term, None
        if leader_term is None or leader_term.ended or self._last_leader is None:
            return
        leader_term.end("resigning")
        row = msgspec.structs.replace(self._last_leader, resigned=True)
        try:
            await self._store.claim(encode(row), leader_term.claim_revision)
        except (LeadershipLost, OutcomeUnknown) as error:
            _LOG.info("resignation not recorded: %s", error)

    async def _poll(self) -> None:
        try:
            leadership_status = await self._store.leadership_status()
        except Unavailable:
            self.leadership_status = None
            if self.leader_term and not self.leader_term.lease_valid:
                self._step_down("the etcd member does not answer")
            return
        self._update_leadership(leadership_status)
        self.leadership_status = leadership_status
        metrics.coordinator_raft_term.set(leadership_status.term)

    def _update_leadership(self, leadership_status: LeadershipStatus) -> None:
        ended = self.leader_term is not None and self.leader_term.ended
        if self._claimed_status is not None and (
            ended or leadership_status != self._claimed_status
        ):
            self._step_down(
                "another replica leads"
                if leadership_status != self._claimed_status
                else "restarting the claim"
            )
        if not leadership_status.is_leader or self._resigned:
            return
        if self.leader_term is not None:
            self.leader_term.renew_lease()
        elif self._claim_task is None:
            self._claimed_status = leadership_status
            self._claim_task = asyncio.create_task(self._claim(leadership_status))

    async def _claim(self, leadership_status: LeadershipStatus) -> None:
        """Write the leader row, and lead once the mirror has it: then no earlier row is missing."""
        await self._mirror.wait_for_revision(0)
        held, revision = await self._store.leader_row()
        predecessor = leader_decoder.decode(held) if held else None
        term = leadership_status.term + self._mirror.registry.term_base
        if predecessor is not None and predecessor.term > term:
            raise LeadershipLost(f"{predecessor.id} leads in term {predecessor.term}")
        row = Leader(self._replica.id, leadership_status.member_id, term, self._replica.address)
        claim_revision = await self._store.claim(encode(row), revision)
        await self._mirror.wait_for_revision(claim_revision)
        if self._mirror_task is not None:
            self._mirror_task.cancel()
        self._last_leader = row
        registry = self._mirror.registry
        store, sequence_numbers = self._store, self._sequence_numbers
        self.leader_term = LeaderTerm(
            store, registry, term, claim_revision, sequence_numbers, self._clock
        )
        metrics.coordinator_is_leader.set(1)
        _LOG.info("leading", extra={"term": term, "rows": len(registry.rows)})
        self._on_elected(predecessor, row)

    def _step_down(self, why: str) -> None:
        self._claimed_status = None
        if self._claim_task is not None:
            self._claim_task.cancel()
            self._claim_task = None
        if self.leader_term is not None:
            self.leader_term.end(why)
            self.leader_term = None
            self._restart_mirror()
        metrics.coordinator_is_leader.set(0)

    def _restart_mirror(self) -> None:
        """Read all rows again: a deposed leader's registry may be wrong."""
        if self._mirror_task is not None:
            self._mirror_task.cancel()
        self._mirror = Mirror(self._store)
        self._mirror_task = asyncio.create_task(self._mirror.run())

    def _raise_failures(self) -> None:
        """Retry a failed claim; a row that cannot be read ends the replica."""
        claim_task, mirror_task = self._claim_task, self._mirror_task
        if claim_task is not None and claim_task.done():
            self._claim_task = None
            if not claim_task.cancelled() and (error := claim_task.exception()) is not None:
                if not isinstance(error, Unavailable | LeadershipLost | OutcomeUnknown):
                    raise error
                _LOG.info("claim failed: %s", error)
        if mirror_task is not None and mirror_task.done() and not mirror_task.cancelled():
            mirror_task.result()
