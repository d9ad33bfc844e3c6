"""The summary's audit section: what the recorders read and missed, and what the fleet's own audit
found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.clocks import receipt_lags_seconds
from loaddriver.record.fleet_audit import FleetAudit, FleetDifference
from loaddriver.record.journal import Journal
from loaddriver.record.losses import LoadLosses
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow


class WatchHealth(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The harness's watches: events, lists, and reconnections without loss.

    `gaps` counts watches that expired, so that changes may have been missed.
    """

    events: int
    resumed: int
    listed: int
    gaps: int


class Clock(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Receipt by watch minus the audit log's timestamp."""

    samples: int
    median_seconds: float | None
    p99_seconds: float | None
    min_seconds: float | None


class StampError(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How late receipts by watch were at most, in seconds, where they are the timestamps."""

    samples: int
    p50_seconds: float | None
    p99_seconds: float | None
    max_seconds: float | None


class Audit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The completeness of the recording, and of the fleet's own books.

    `differences` is how many `bigfleet audit` found between the parts of the fleet once the load
    had ended, null if it did not run or failed, for which `fleet_error` has the reason; `found`
    names each.

    `events_lost` is the number of events that the servers count and the harness did not read, null
    if unknown; `unanswered` servers did not give their metrics. `missed_pods` and `missed_bindings`
    are in the watch and not in the log. `load_without_line` and `load_without_row` are successful
    requests of the load that the log or the rows lack; null if not compared.
    """

    available: bool
    lines: int
    undecodable: int
    without_uid: int
    restarts: int
    events_lost: int | None
    missed_pods: int
    missed_bindings: int
    load_without_line: int | None
    load_without_row: int | None
    bound_by: dict[str, int]
    requests: dict[str, int]
    failed_requests: dict[str, int]
    watch: WatchHealth
    clock: Clock
    journal_undecodable: int | None
    unanswered: int = 0
    differences: int | None = None
    found: list[FleetDifference] = []
    fleet_error: str = ""
    stamp_error: StampError | None = None


def audit_section(
    observed: Sequence[Observations],
    rows: Sequence[PodRow],
    journal: Journal | None,
    losses: LoadLosses | None,
    fleet: FleetAudit | None,
) -> Audit:
    """The section; `losses` is None if load and recording were not compared, `fleet` if no audit
    ran.
    """
    logs = [each.audit for each in observed if each.audit is not None]
    logged = {each.cluster for each in observed if each.audit is not None}
    logged_rows = [row for row in rows if row.cluster in logged]
    found = fleet.differences if fleet else None
    binders = Counter(row.bound_by or "unknown" for row in rows if row.bound_micros is not None)
    return Audit(
        available=len(logs) == len(observed),
        lines=sum(log.lines for log in logs),
        undecodable=sum(log.undecodable for log in logs),
        without_uid=sum(log.without_uid for log in logs),
        restarts=sum(each.audit_restarts for each in observed),
        events_lost=_events_lost(observed),
        missed_pods=sum(_missed_pod(row, observed) for row in logged_rows if row.source != "audit"),
        missed_bindings=sum(
            row.bound_micros is not None and not row.bound_by for row in logged_rows
        ),
        load_without_line=losses.without_line if losses else None,
        load_without_row=losses.without_row if losses else None,
        bound_by=dict(sorted(binders.items())),
        requests=_summed(logs, lambda log: log.succeeded),
        failed_requests=_summed(logs, lambda log: log.failed),
        watch=WatchHealth(
            events=sum(each.watch_events for each in observed),
            resumed=sum(each.watch_resumed for each in observed),
            listed=sum(each.watch_listed for each in observed),
            gaps=sum(each.watch_gaps for each in observed),
        ),
        clock=_clock(receipt_lags_seconds(observed)),
        journal_undecodable=None if journal is None else journal.undecodable,
        stamp_error=_stamp_error(observed),
        unanswered=sum(
            each.audit is not None and each.audit_events_lost is None for each in observed
        ),
        differences=None if found is None else len(found),
        found=found or [],
        fleet_error=fleet.error if fleet else "",
    )


def _events_lost(observed: Sequence[Observations]) -> int | None:
    """Lost events of all logs; None if the count of any server is unknown."""
    lost = [each.audit_events_lost for each in observed if each.audit is not None]
    known = [number for number in lost if number is not None]
    return sum(known) if len(known) == len(lost) else None


def _missed_pod(row: PodRow, observed: Sequence[Observations]) -> bool:
    log = next(each.audit for each in observed if each.cluster == row.cluster)
    return log is not None and row.uid not in log.pods


def _summed(
    logs: Sequence[AuditTimestamps], counter: Callable[[AuditTimestamps], Counter[str]]
) -> dict[str, int]:
    total: Counter[str] = Counter()
    for log in logs:
        total.update(counter(log))
    return dict(sorted(total.items()))


def _stamp_error(observed: Sequence[Observations]) -> StampError | None:
    """None if every cluster has an audit log."""
    probed = [e.stamp_errors_seconds for e in observed if e.stamp_errors_seconds is not None]
    if not probed:
        return None
    found = [seconds for of_cluster in probed for seconds in of_cluster]
    if not found:
        return StampError(samples=0, p50_seconds=None, p99_seconds=None, max_seconds=None)
    p50, p99 = np.quantile(found, [0.5, 0.99], method="inverted_cdf")
    return StampError(
        samples=len(found),
        p50_seconds=float(p50),
        p99_seconds=float(p99),
        max_seconds=max(found),
    )


def _clock(lags: Sequence[float]) -> Clock:
    if not lags:
        return Clock(samples=0, median_seconds=None, p99_seconds=None, min_seconds=None)
    median, p99 = np.quantile(lags, [0.5, 0.99], method="inverted_cdf")
    return Clock(
        samples=len(lags),
        median_seconds=float(median),
        p99_seconds=float(p99),
        min_seconds=min(lags),
    )
