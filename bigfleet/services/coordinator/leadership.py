"""Follows the store's own elections: claims leadership when its member leads, and gives it up."""

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
from bigfleet.services.coordinator.mirror import Mirror
from bigfleet.services.coordinator.reign import Numbers, Reign
from bigfleet.services.coordinator.rows import Leader, encode, leader_decoder

_LOG = logging.getLogger(__name__)
# How soon a change of leader is noticed; a question to one's own member costs half a millisecond.
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Replica:
    """Who this is, and where its calls are answered (HOST:PORT)."""

    id: str
    address: str


Succession = Callable[[Leader | None, Leader], None]


class Leadership:
    """`reign` is set while this replica leads. `pulse` is called as long as it is at work, with
    whether its member answers;
    `succeeded` with the leader before, when this one takes over.
    """

    def __init__(
        self,
        replica: Replica,
        store: CoordinationStore,
        pulse: Callable[[bool], None],
        succeeded: Succession,
        clock: Clock,
    ) -> None:
        self._replica, self._store, self._pulse = replica, store, pulse
        self._succeeded, self._clock = succeeded, clock
        self.reign: Reign | None = None
        self.leadership_status: LeadershipStatus | None = None
        self._numbers = Numbers()
        self._mirror = Mirror(store)
        self._following: asyncio.Task[None] | None = None
        self._claiming: asyncio.Task[None] | None = None
        self._last_leader: Leader | None = None
        # How the member stood at the present claim; any other standing ends it.
        self._claimed: LeadershipStatus | None = None
        self._resigned = False

    @property
    def leader(self) -> Leader | None:
        """Who leads, if this replica knows."""
        leadership_status = self.leadership_status
        if leadership_status is None:
            return None
        known = self._last_leader if self.reign else self._mirror.leader
        return (
            known if known is not None and known.member_id == leadership_status.leader_id else None
        )

    def not_ready(self) -> str:
        """Why a caller is better off elsewhere; "" for one that leads or knows who does."""
        return "" if self.leader is not None else "no leader known"

    async def run(self) -> None:
        """Until cancelled. BigFleetError when the store's content cannot be read."""
        self._follow()
        try:
            while True:
                await self._look()
                self._pulse(self.leadership_status is not None)
                self._raise_failures()
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._end("stopping")
            for task in (self._following, self._claiming):
                if task is not None:
                    task.cancel()

    async def resign(self) -> None:
        """Stop leading, and let the successor know that it was of one's own will."""
        self._resigned = True
        reign, self.reign = self.reign, None
        if reign is None or reign.over or self._last_leader is None:
            return
        reign.end("resigning")
        row = msgspec.structs.replace(self._last_leader, resigned=True)
        try:
            await self._store.claim(encode(row), reign.claim_revision)
        except (LeadershipLost, OutcomeUnknown) as error:
            _LOG.info("resigned without a word: %s", error)

    async def _look(self) -> None:
        try:
            leadership_status = await self._store.leadership_status()
        except Unavailable:
            self.leadership_status = None
            if self.reign and not self.reign.confirmed_lately:
                self._end("the etcd member does not answer")
            return
        self._judge(leadership_status)
        self.leadership_status = leadership_status
        metrics.coordinator_raft_term.set(leadership_status.term)

    def _judge(self, leadership_status: LeadershipStatus) -> None:
        over = self.reign is not None and self.reign.over
        if self._claimed is not None and (over or leadership_status != self._claimed):
            self._end(
                "another replica leads" if leadership_status != self._claimed else "starting over"
            )
        if not leadership_status.is_leader or self._resigned:
            return
        if self.reign is not None:
            self.reign.confirm()
        elif self._claiming is None:
            self._claimed = leadership_status
            self._claiming = asyncio.create_task(self._claim(leadership_status))

    async def _claim(self, leadership_status: LeadershipStatus) -> None:
        """Write one's name, and begin once that has come back: then nothing earlier is missing."""
        await self._mirror.reached(0)
        held, revision = await self._store.leader_row()
        before = leader_decoder.decode(held) if held else None
        term = leadership_status.term + self._mirror.registry.term_base
        if before is not None and before.term > term:
            raise LeadershipLost(f"{before.id} leads in term {before.term}")
        row = Leader(self._replica.id, leadership_status.member_id, term, self._replica.address)
        claim_revision = await self._store.claim(encode(row), revision)
        await self._mirror.reached(claim_revision)
        if self._following is not None:
            self._following.cancel()
        self._last_leader = row
        registry = self._mirror.registry
        store, numbers = self._store, self._numbers
        self.reign = Reign(store, registry, term, claim_revision, numbers, self._clock)
        metrics.coordinator_leads.set(1)
        _LOG.info("leading", extra={"term": term, "rows": len(registry.rows)})
        self._succeeded(before, row)

    def _end(self, why: str) -> None:
        self._claimed = None
        if self._claiming is not None:
            self._claiming.cancel()
            self._claiming = None
        if self.reign is not None:
            self.reign.end(why)
            self.reign = None
            self._follow()
        metrics.coordinator_leads.set(0)

    def _follow(self) -> None:
        """Read everything anew: what a deposed leader remembers may be wrong."""
        if self._following is not None:
            self._following.cancel()
        self._mirror = Mirror(self._store)
        self._following = asyncio.create_task(self._mirror.run())

    def _raise_failures(self) -> None:
        """A failed claim is tried again; what a follower cannot read ends the replica."""
        claiming, following = self._claiming, self._following
        if claiming is not None and claiming.done():
            self._claiming = None
            if not claiming.cancelled() and (error := claiming.exception()) is not None:
                if not isinstance(error, Unavailable | LeadershipLost | OutcomeUnknown):
                    raise error
                _LOG.info("could not take over: %s", error)
        if following is not None and following.done() and not following.cancelled():
            following.result()
