"""Every check, in the order in which it is asked: reading first, then orders, then crashes."""

from __future__ import annotations

from collections.abc import Sequence

from bigfleet.conformance.judging import Check
from bigfleet.conformance.rules import (
    crash,
    fencing,
    lifecycle,
    metadata,
    promptness,
    readiness,
    reading,
    retries,
    taints,
)

CHECKS: Sequence[Check] = (
    reading.well_formed,
    reading.unknown_ids,
    reading.states_select,
    reading.listed_under_way,
    reading.answers_are_bounded,
    reading.changes_since_a_revision,
    lifecycle.whole_life,
    lifecycle.forbidden_orders,
    lifecycle.grace,
    lifecycle.machines_apart,
    retries.same_operation,
    fencing.stale_sequence,
    fencing.stale_epoch,
    fencing.stale_first,
    fencing.failed_order_counts,
    fencing.new_epoch,
    fencing.marks_apart,
    fencing.reads,
    metadata.echoed,
    metadata.of_create,
    metadata.gone_after_drain,
    taints.kept,
    promptness.orders_answer_at_once,
    readiness.configured_only_when_ready,
    crash.orders_survive,
    crash.marks_survive,
)
