"""All checks in order: reads first, then operations, then crashes."""

from __future__ import annotations

from collections.abc import Sequence

from bigfleet.conformance.check import Check
from bigfleet.conformance.rules import (
    crash,
    fencing,
    latency,
    lifecycle,
    metadata,
    readiness,
    reading,
    retries,
    taints,
)

CHECKS: Sequence[Check] = (
    reading.well_formed,
    reading.unknown_ids,
    reading.states_select,
    reading.listed_in_progress,
    reading.listed_in_pages,
    reading.changes_since_a_revision,
    lifecycle.full_lifecycle,
    lifecycle.forbidden_orders,
    lifecycle.grace,
    lifecycle.independent_machines,
    retries.same_operation,
    fencing.stale_sequence,
    fencing.stale_epoch,
    fencing.fence_checked_first,
    fencing.failed_order_counts,
    fencing.new_epoch,
    fencing.fencing_per_shard_and_machine,
    fencing.reads,
    metadata.echoed,
    metadata.of_create,
    metadata.gone_after_drain,
    taints.kept,
    latency.orders_answer_at_once,
    readiness.configured_only_when_ready,
    crash.orders_survive,
    crash.fencing_survives,
)
