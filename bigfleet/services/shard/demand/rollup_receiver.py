"""Receives roll-ups: validates, applies, counts and journals them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from bigfleet.api.journal import JournalEvent
from bigfleet.api.v1alpha1 import capacity_pb2 as wire
from bigfleet.api.v1alpha1.shard_pb2 import Acknowledgement, RejectedItem, RollUpTooLarge
from bigfleet.model.errors import InvalidInput
from bigfleet.observe import metrics
from bigfleet.ports.clock import Clock
from bigfleet.services.shard.demand.demand_limit import MAX_DEMAND_BYTES
from bigfleet.services.shard.demand.needs import NeedsTable, RollUpOutcome
from bigfleet.services.shard.records.journal import Journal

MAX_REJECTED_ITEMS = 1000
_MAX_JOURNALED_REASONS = 3
_MAX_CHARACTERS = 500

_LEFT_OUT = (
    f"left out: the needs of this cluster exceed {MAX_DEMAND_BYTES} bytes, and those that would be "
    "served last are not served. Use fewer co-location groups and fewer distinct profiles"
)

_LOG = logging.getLogger(__name__)


class RollUpReceiver:
    """Applies roll-ups to the needs table; `accepted` is called after each change."""

    def __init__(
        self, needs: NeedsTable, journal: Journal, clock: Clock, accepted: Callable[[], None]
    ) -> None:
        self._needs = needs
        self._journal = journal
        self._clock = clock
        self._accepted = accepted

    def take(self, cluster: str, rollup: wire.ClusterCapacityNeeds) -> Acknowledgement:
        """Apply a roll-up from `cluster`'s session; the acknowledgement has what was rejected."""
        try:
            if rollup.cluster_id != cluster:
                raise InvalidInput(
                    "roll-up: cluster_id", rollup.cluster_id, f"is not the session's, {cluster}"
                )
            before = self._needs.version
            taken = self._needs.replace(rollup, self._clock.monotonic_seconds())
        except InvalidInput as error:
            self._record("rejected", cluster, rollup, str(error))
            return Acknowledgement(rejected=str(error))
        rejected_items = [*_rejected_items(taken)]
        in_part = rejected_items or taken.left_out
        outcome = "held" if taken.held else "accepted-in-part" if in_part else "accepted"
        left_out = f"{len(taken.left_out)} needs are {_LEFT_OUT}" if taken.left_out else ""
        why = [taken.held, left_out]
        why += [each.why for each in rejected_items[:_MAX_JOURNALED_REASONS]]
        self._record(outcome, cluster, rollup, "; ".join(filter(None, why)))
        metrics.shard_rollup_entries_rejected.inc(len(rejected_items) + len(taken.left_out))
        if self._needs.version != before:
            self._accepted()
        return Acknowledgement(
            unconfirmed_reductions=taken.held,
            rejected_items=rejected_items[:MAX_REJECTED_ITEMS],
            left_out=sorted(taken.left_out),
            left_out_why=_LEFT_OUT if taken.left_out else "",
        )

    def note_too_large(self, cluster: str, report: RollUpTooLarge) -> str:
        """Record a roll-up that its operator could not send; return the message for it."""
        why = (
            f"cluster {cluster}: its roll-up of {report.bytes} bytes exceeds the message limit of "
            f"{report.max_bytes}; the last valid one stays in effect. "
            "Aggregate its requests: fewer co-location groups, fewer distinct profiles"
        )
        unsent = wire.ClusterCapacityNeeds(timestamp_unix_nanos=report.timestamp_unix_nanos)
        self._record("too-large", cluster, unsent, why)
        return why

    def _record(
        self, outcome: str, cluster: str, rollup: wire.ClusterCapacityNeeds, why: str
    ) -> None:
        metrics.shard_rollups.labels(outcome).inc()
        if why:
            _LOG.warning(f"roll-up {outcome}", extra={"cluster": cluster, "why": why})
        self._journal.note(
            JournalEvent(f"rollup-{outcome}"),
            cluster=cluster,
            needs=len(rollup.needs),
            sequence=rollup.timestamp_unix_nanos,
            requests=rollup.requests_observed,
            note=why,
        )


def _rejected_items(taken: RollUpOutcome) -> Iterator[RejectedItem]:
    for index, why in taken.needs.items():
        yield RejectedItem(index=index, why=why[:_MAX_CHARACTERS])
    for index, why in taken.overheads.items():
        yield RejectedItem(index=index, why=why[:_MAX_CHARACTERS], is_overhead=True)
