"""Sends roll-ups, each with a cluster's whole demand: after changes, and at regular intervals."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from bigfleet.api.transport import MAX_ROLLUP_BYTES
from bigfleet.api.v1alpha1.capacity_pb2 import ClusterCapacityNeeds, NodeLimit, NodeOverhead
from bigfleet.api.v1alpha1.shard_pb2 import Acknowledgement, RollUpTooLarge
from bigfleet.api.wellknown import ROLLUP_REJECTED, ROLLUP_TOO_LARGE
from bigfleet.controllers.operator.aggregate import NeedKey, RollUpContent
from bigfleet.controllers.operator.request_cache import RequestCache
from bigfleet.observe import metrics

_LOG = logging.getLogger(__name__)


class Shard(Protocol):
    """The receiver of roll-ups."""

    async def deliver(self, rollup: ClusterCapacityNeeds) -> Acknowledgement: ...

    def report_too_large(self, too_large: RollUpTooLarge) -> None: ...


class Pace(NamedTuple):
    """When a roll-up is sent: a debounce after a change, but not sooner than `least_seconds` after
    the last one that was sent for a change, and `most_seconds` after any at the latest.

    Each contains the whole demand. Where pods come all the time, their operator would otherwise
    send one five times a second, and its shard decide as often.
    """

    most_seconds: float
    least_seconds: float = 1.0
    debounce_seconds: float = 0.2


class RollUpSender:
    """Sends one roll-up at a time; changes meanwhile go into the next.

    `accepted` is called with the version of the aggregate that the shard accepted, and the rows
    excluded from it; `refused` with the rows that the shard rejected, and why; `withheld` with the
    reason and message when a whole roll-up was not accepted, both "" when it was, and with the
    version in effect. `now` is in monotonic seconds. `overheads` are those of DaemonSets; `limits`
    are the machines that serve no new pods.
    """

    def __init__(
        self,
        cluster_id: str,
        request_cache: RequestCache,
        pace: Pace,
        accepted: Callable[[int, Set[NeedKey]], None],
        now: Callable[[], float],
        overheads: Callable[[], Sequence[NodeOverhead]] = tuple,
        refused: Callable[[Mapping[NeedKey, str]], None] = lambda _: None,
        limits: Callable[[], Awaitable[Sequence[NodeLimit]]] | None = None,
        withheld: Callable[[str, str, int], None] = lambda *_: None,
    ) -> None:
        self._withheld, self._in_force = withheld, -1
        self._overheads, self._refused, self._limits = overheads, refused, limits
        self._limits_now: Sequence[NodeLimit] = ()
        self._cluster_id, self._request_cache, self._accepted = cluster_id, request_cache, accepted
        self._now, self._pace = now, pace
        self._last_nanos = 0
        self._logged_reasons: Set[str] = frozenset()

    async def send_over(self, shard: Shard) -> None:
        """Send until cancelled; the first at once, because a new session has no demand yet."""
        # An empty cache that is not listed yet must not count as no demand.
        await self._request_cache.listed.wait()
        has_changed = False
        while True:
            self._request_cache.changed.clear()
            if self._limits is not None:
                self._limits_now = await self._limits()
            await self._send(shard)
            least_seconds = self._pace.least_seconds if has_changed else 0.0
            has_changed = await self._wait_for_change(least_seconds)

    async def _wait_for_change(self, least_seconds: float) -> bool:
        """Wait until the next roll-up is due; return whether it is sent for a change."""
        pace, earliest_seconds = self._pace, self._now() + least_seconds
        try:
            async with asyncio.timeout(pace.most_seconds):
                await self._request_cache.changed.wait()
                await asyncio.sleep(max(pace.debounce_seconds, earliest_seconds - self._now()))
        except TimeoutError:
            return self._request_cache.changed.is_set()
        return True

    async def _send(self, shard: Shard) -> None:
        version = self._request_cache.aggregate.version
        started = time.perf_counter()
        rollup, content = self._build()
        built = time.perf_counter()
        metrics.operator_rollup_seconds.labels("build").observe(built - started)
        size = rollup.ByteSize()
        metrics.operator_rollup_bytes.set(size)
        metrics.operator_rollup_needs.set(len(rollup.needs))
        if size > MAX_ROLLUP_BYTES:
            self._report_oversized(shard, rollup.timestamp_unix_nanos, size)
            return
        answer = await shard.deliver(rollup)
        metrics.operator_rollup_seconds.labels("send").observe(time.perf_counter() - built)
        if answer.rejected:
            metrics.operator_rollups_rejected.inc()
            _LOG.error("roll-up rejected, the last valid one stays in effect: %s", answer.rejected)
            self._withheld(ROLLUP_REJECTED, answer.rejected, self._in_force)
        else:
            self._in_force = version
            self._withheld("", "", version)
            if answer.unconfirmed_reductions:
                _LOG.warning(
                    "reductions in the roll-up are not confirmed yet: %s",
                    answer.unconfirmed_reductions,
                )
            refused = self._record_rejected(answer, content.rows)
            self._accepted(version, content.incomplete | refused)

    def _record_rejected(self, answer: Acknowledgement, rows: Sequence[NeedKey]) -> Set[NeedKey]:
        """The rows that the shard rejected; each reason is logged once."""
        reasons = {each.why for each in answer.rejected_items}
        if answer.left_out:
            reasons.add(answer.left_out_why)
        for reason in sorted(reasons - self._logged_reasons):
            _LOG.error("the shard rejected a part of the roll-up: %s", reason)
        self._logged_reasons = reasons
        known = [each for each in answer.rejected_items if not each.is_overhead]
        why = {each.index: each.why for each in known} | dict.fromkeys(
            answer.left_out, answer.left_out_why
        )
        refused = {rows[index]: why[index] for index in why if 0 <= index < len(rows)}
        metrics.operator_needs_rejected.set(len(refused))
        self._refused(refused)
        return refused.keys()

    def _report_oversized(self, shard: Shard, timestamp_unix_nanos: int, size: int) -> None:
        """Report it instead of sending it, which would end the session each time."""
        metrics.operator_rollups_rejected.inc()
        why = (
            f"the roll-up of this cluster is not sent: its {size} bytes exceed the limit of "
            f"{MAX_ROLLUP_BYTES}; use fewer co-location groups and fewer distinct profiles"
        )
        _LOG.error("roll-up not sent, the last valid one stays in effect: %s", why)
        self._withheld(ROLLUP_TOO_LARGE, why, self._in_force)
        too_large = RollUpTooLarge(
            timestamp_unix_nanos=timestamp_unix_nanos, bytes=size, max_bytes=MAX_ROLLUP_BYTES
        )
        shard.report_too_large(too_large)

    def build(self) -> tuple[ClusterCapacityNeeds, Set[NeedKey]]:
        """The current demand, with a timestamp later than all before, and the rows of incomplete
        gangs, which it does not contain.
        """
        rollup, content = self._build()
        return rollup, content.incomplete

    def _build(self) -> tuple[ClusterCapacityNeeds, RollUpContent]:
        self._last_nanos = max(self._last_nanos + 1, time.time_ns())
        content = self._request_cache.aggregate.content(self._now())
        rollup = ClusterCapacityNeeds(
            cluster_id=self._cluster_id,
            timestamp_unix_nanos=self._last_nanos,
            needs=content.needs,
            node_overheads=self._overheads(),
            node_limits=self._limits_now,
            requests_observed=self._request_cache.observed,
        )
        return rollup, content
