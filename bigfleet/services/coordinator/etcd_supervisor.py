"""Keeps the etcd member running: restarts it when it exits, and gives up on a crash loop."""

from __future__ import annotations

import asyncio
import logging
import time

from bigfleet.adapters.coordination import etcd_log
from bigfleet.adapters.coordination.etcd_member import EtcdMember, EtcdMemberConfig
from bigfleet.model.errors import Unavailable
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)
_RETRY_INTERVAL_SECONDS = 0.1
# This many exits in a row, each within this time of the start, count as a crash loop.
_CRASH_LOOP_SECONDS = 10.0
_CRASH_LOOP_EXITS = 4
# How long the member must have answered without a gap to count as healthy.
_HEALTHY_SECONDS = 3.0

_REMOVED_MESSAGE = (
    "this replica was removed from the coordinator (`bigfleet fleet remove-replica`); to add it "
    "again, start it with --join and an empty state directory"
)


class EtcdSupervisor:
    """Supervises the member in `run`; the coordinator calls `keepalive` while it is working."""

    def __init__(self, config: EtcdMemberConfig) -> None:
        self._config = config
        self._member: EtcdMember | None = None
        self._answering_since: float | None = None
        self._answered_seconds = 0.0

    async def run(self) -> None:
        """Until cancelled; Unavailable with the last log lines when the member does not stay up."""
        quick_exits = 0
        while True:
            self._member = await EtcdMember.start(self._config)
            started = time.monotonic()
            exit_message = await self._member.ended()
            if self._member.was_removed:
                raise Unavailable(_REMOVED_MESSAGE)
            quick_exits = quick_exits + 1 if time.monotonic() - started < _CRASH_LOOP_SECONDS else 1
            if quick_exits >= _CRASH_LOOP_EXITS:
                raise Unavailable(
                    f"{exit_message}\nit was started {quick_exits} times and did not stay up"
                )
            _LOG.warning("restarting etcd: %s", exit_message)
            metrics.coordinator_etcd_restarts.inc()
            await asyncio.sleep(_RETRY_INTERVAL_SECONDS)

    async def stop(self) -> None:
        """Stop the member; `run` must have been cancelled before."""
        if self._member is not None:
            await self._member.stop()

    async def rotate_log(self) -> None:
        """Rotate the member's log; etcd does not do so itself."""
        await asyncio.to_thread(etcd_log.rotate, self._config.log)

    def keepalive(self, answers: bool) -> None:
        """Renew the watchdog; `answers`: the member has just answered a request."""
        if self._member is not None:
            self._member.keepalive()
        now = time.monotonic()
        if not answers or now - self._answered_seconds > 1.0:
            self._answering_since = None
        if answers:
            self._answered_seconds = now
            self._answering_since = self._answering_since or now

    @property
    def health(self) -> str:
        """`healthy`, `starting` (answering for a short time only) or `silent`."""
        if self._answering_since is None:
            return "silent"
        long_enough = time.monotonic() - self._answering_since > _HEALTHY_SECONDS
        return "healthy" if long_enough else "starting"
