"""Keeps the etcd member running: started again when it dies, given up when it cannot live."""

from __future__ import annotations

import asyncio
import logging
import time

from bigfleet.adapters.coordination import etcd_log
from bigfleet.adapters.coordination.etcd_member import EtcdMember, MemberSettings
from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_AGAIN_SECONDS = 0.1
# A member that dies so young, so many times in a row, would do so for ever.
_QUICK_SECONDS = 10.0
_QUICK_DEATHS = 4
# How long a member must have been well for its leader to count as unharmed.
_WELL_SECONDS = 3.0

_TAKEN_OUT = (
    "this replica was taken out of the coordinator (`bigfleet fleet leave`); to let it in again, "
    "start it with --join and an empty state directory"
)


class Keeper:
    """`run` until cancelled. `pulse` and `answered` are what the coordinator tells it."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._member: EtcdMember | None = None
        self._answering_since: float | None = None
        self._answered_seconds = 0.0

    async def run(self) -> None:
        """Unavailable with the member's last words when it does not stay alive."""
        deaths = 0
        while True:
            self._member = await EtcdMember.start(self._settings)
            born = time.monotonic()
            how = await self._member.ended()
            if self._member.was_removed:
                raise Unavailable(_TAKEN_OUT)
            deaths = deaths + 1 if time.monotonic() - born < _QUICK_SECONDS else 1
            if deaths >= _QUICK_DEATHS:
                raise Unavailable(f"{how}\nit was started {deaths} times and did not stay alive")
            _LOG.warning("starting etcd again: %s", how)
            metrics.coordinator_etcd_restarts.inc()
            await asyncio.sleep(_AGAIN_SECONDS)

    async def stop(self) -> None:
        """End the member for good; `run` must have been cancelled before."""
        if self._member is not None:
            await self._member.stop()

    async def shorten_log(self) -> None:
        """Nobody else would, however long the member lives."""
        await asyncio.to_thread(etcd_log.shorten, self._settings.log)

    def pulse(self, answers: bool) -> None:
        """The coordinator is at work; `answers`: its member has just answered a question."""
        if self._member is not None:
            self._member.pulse()
        now = time.monotonic()
        if not answers or now - self._answered_seconds > 1.0:
            self._answering_since = None
        if answers:
            self._answered_seconds = now
            self._answering_since = self._answering_since or now

    @property
    def health(self) -> str:
        """`well`, `starting` (it answers, but not for long yet) or `silent`."""
        if self._answering_since is None:
            return "silent"
        long_enough = time.monotonic() - self._answering_since > _WELL_SECONDS
        return "well" if long_enough else "starting"
