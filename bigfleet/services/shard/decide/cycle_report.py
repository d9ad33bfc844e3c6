"""What a decision cycle says of itself: as metrics, in the journal and in the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bigfleet.api.journal import JournalEvent
from bigfleet.engine.explain.shortfall_report import ESCALATE_AFTER_CYCLES
from bigfleet.engine.need_columns import need_columns_of
from bigfleet.engine.snapshot import EngineConfig
from bigfleet.observe import metrics
from bigfleet.services.shard.decide.compute import CycleResult, Decide, compute
from bigfleet.services.shard.decide.cycle_inputs import CycleInputs
from bigfleet.services.shard.demand.needs import NeedsTable
from bigfleet.services.shard.fleet.inventory import Inventory
from bigfleet.services.shard.records.journal import Journal

_LOG = logging.getLogger(__name__)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Observe the duration of a phase of the cycle."""
    with metrics.shard_cycle_phase_seconds.labels(name).time():
        yield


def measured_compute(inputs: CycleInputs, decide: Decide, config: EngineConfig) -> CycleResult:
    """`compute`, with its CPU observed: the duration alone grows with whoever else computes."""
    began = time.thread_time()
    try:
        return compute(inputs, decide, config)
    finally:
        metrics.shard_decision_cpu_seconds.observe(time.thread_time() - began)


def observe_result(
    result: CycleResult, needs: NeedsTable, inventory: Inventory, draining: int
) -> None:
    """Publish the numbers of a cycle; `draining` Nodes have an eviction under way."""
    decision = result.decision
    metrics.shard_demand_needs.set(len(needs))
    metrics.shard_needs_left_out.set(sum(needs.left_out.values()))
    metrics.shard_nodes_draining.set(draining)
    metrics.shard_shortfalls.set(len(decision.shortfalls))
    metrics.shard_needs_at_ceiling.set(len(decision.at_ceiling))
    capped = need_columns_of(result.demand.needs).capped
    metrics.shard_needs_capped_priority.set(int(capped.sum()))
    aged = sum(1 for short in decision.shortfalls if short.age_cycles > ESCALATE_AFTER_CYCLES)
    metrics.shard_shortfalls_aged.set(aged)
    metrics.shard_needs_quarantined.set(len(result.quarantine))
    metrics.shard_reclaims_capped.inc(decision.reclaims_capped)
    for state, count in inventory.count_by_state().items():
        metrics.shard_inventory.labels(state.name).set(count)


def note_troubled_needs(result: CycleResult, journal: Journal) -> None:
    """Note the needs that have been short for long, and those on which deciding failed anew."""
    for aged_shortfall in result.aged_shortfalls:
        journal.note(JournalEvent.NEED_SHORT, **aged_shortfall.fields())
    for key in result.newly_quarantined:
        error = result.quarantine[key].error if key in result.quarantine else ""
        fields = {"cluster": key.cluster, "need": key.fingerprint}
        journal.note(JournalEvent.NEED_QUARANTINED, **fields)
        _LOG.error("need quarantined: deciding on it failed", extra={**fields, "error": error})
