"""The link to the coordinator: reports every few seconds, and takes instructions back.

Nothing in the shard waits for it. Without a coordinator the shard continues with what it owns.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from bigfleet.api.v1alpha1 import coordinator_pb2 as wire
from bigfleet.model.errors import BigFleetError, Fenced
from bigfleet.observe import metrics
from bigfleet.ports.coordinator import Coordinator
from bigfleet.services.shard.coordination.instruction_handler import InstructionHandler
from bigfleet.services.shard.fleet.ownership import Ownership

# How often a domain to be released is checked for orders under way.
POLL_INTERVAL_SECONDS = 0.2

_LOG = logging.getLogger(__name__)


class Link:
    """`compose` makes the report without acknowledgements; `acknowledged` is called with a
    delivered report and the leader's term; `fence` stops all ordering, with the reason and
    whether that is an incident.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        ownership: Ownership,
        handler: InstructionHandler,
        compose: Callable[[], Awaitable[wire.ShardReport]],
        acknowledged: Callable[[wire.ShardReport, int], None],
        fence: Callable[[str, bool], None],
        report_seconds: float,
    ) -> None:
        self._coordinator, self._ownership, self._handler = coordinator, ownership, handler
        self._compose, self._acknowledged, self._fence = compose, acknowledged, fence
        self._report_seconds = report_seconds
        self._term = ownership.record.newest.term
        self._problem = "not connected to a coordinator yet"
        self._has_left = False

    @property
    def term(self) -> int:
        """The highest term received."""
        return self._term

    @property
    def problem(self) -> str:
        """Why the last report was not acknowledged, "" if it was."""
        return self._problem

    async def run(self) -> None:
        """Report until cancelled, or until the shard has left the fleet."""
        while not self._has_left:
            try:
                await self.once()
            except Exception:  # noqa: BLE001  the next report starts afresh
                _LOG.exception("report failed")
            await self._pause()

    async def once(self) -> None:
        """Report once, and carry out the instructions received."""
        self._ownership.save()
        self._handler.settle()
        report = await self._compose()
        answers = self._handler.due
        report.instruction_acks.extend(answers)
        try:
            ack = await self._coordinator.report(report)
        except Fenced as error:
            self._missed(str(error))
            self._stop(error)
        except BigFleetError as error:
            self._missed(str(error))
        else:
            self._take(report, answers, ack)

    def _take(
        self, report: wire.ShardReport, answers: Sequence[wire.InstructAck], ack: wire.ReportAck
    ) -> None:
        if ack.coordinator_term < self._term:
            metrics.shard_incidents.labels("deposed-coordinator").inc()
            fields = {"term": ack.coordinator_term, "newest": self._term}
            _LOG.critical("incident: answer from a deposed coordinator", extra=fields)
            return
        if self._problem or ack.coordinator_term != self._term:
            _LOG.info("connected to coordinator", extra={"term": ack.coordinator_term})
        self._term, self._problem = ack.coordinator_term, ""
        metrics.shard_coordinator_reports.labels("acknowledged").inc()
        metrics.shard_coordinator_term.set(ack.coordinator_term)
        self._handler.delivered(answers)
        self._acknowledged(report, ack.coordinator_term)
        self._handler.take(ack.instructions)

    def _stop(self, error: Fenced) -> None:
        # One that was removed after it had released everything owns nothing that others order for.
        self._has_left = not self._ownership.record.domains
        if not self._has_left:
            metrics.shard_incidents.labels("fenced-by-coordinator").inc()
        self._fence(f"fenced by the coordinator: {error}", not self._has_left)

    def _missed(self, why: str) -> None:
        metrics.shard_coordinator_reports.labels("missed").inc()
        if not self._problem:
            _LOG.warning(
                "coordinator unavailable; continuing with current ownership", extra={"why": why}
            )
        self._problem = why

    async def _pause(self) -> None:
        """Wait for the next report; it is sent early to acknowledge what was carried out."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._report_seconds
        while loop.time() < until:
            await asyncio.sleep(min(POLL_INTERVAL_SECONDS, until - loop.time()))
            self._ownership.save()
            self._handler.settle()
            if self._handler.has_accepted and not self._problem:
                return
