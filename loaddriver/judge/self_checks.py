"""Self-checks of the harness: limits on what it may lose or delay, each with its reason.

A value above its limit makes the run invalid, and so does a value that was not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loaddriver.judge.audit_section import Audit
from loaddriver.judge.facts import HarnessHealth, RunFacts
from loaddriver.judge.gates import format_number
from loaddriver.judge.schema import Pods, Requests, SelfCheck


@dataclass(frozen=True)
class CheckLimit:
    """The maximum of a value; `what` describes the value in messages."""

    maximum: float
    unit: str
    what: str
    reason: str


LOOP_STALL = CheckLimit(
    1.0,
    "seconds",
    "the longest stall of the runner's event loop",
    "Steps of load are released 1.5 s ahead; a stall of more than 1 s may release them late.",
)
LATENESS_MAX = CheckLimit(
    2.0,
    "seconds",
    "the largest lateness of a request of the load",
    "Beyond 2 s, a burst is no longer the plan's.",
)
LATENESS_P99 = CheckLimit(
    0.5,
    "seconds",
    "lateness of the load's requests, p99",
    "A driver that is usually late is saturated: arrivals follow its pace, not the plan's.",
)
CLOCK_STEP = CheckLimit(
    0.05,
    "seconds",
    "the largest step of this machine's clock",
    "Every wait that spans a step is wrong by it; two clock readings on a busy machine differ by "
    "some milliseconds anyway.",
)
CPU_SHARE = CheckLimit(
    0.25,
    "share of the run's CPU",
    "CPU used by the harness itself",
    "It runs on the cores that it measures and takes CPU from the clusters. It should need a "
    "tenth; beyond a quarter it determines the result.",
)
OTHERS_SHARE = CheckLimit(
    0.25,
    "share of this machine's CPU",
    "CPU used by other processes or the hypervisor during the load",
    "The clusters lack that CPU, and a slow release is indistinguishable from a busy neighbour. An "
    "idle machine's services need some hundredths; above a quarter, waits increase as much as by a "
    "bad regression.",
)
WATCH_GAPS = CheckLimit(
    0,
    "gaps",
    "watches that expired, without an audit log",
    "Changes within a gap may have been missed.",
)
AUDIT_LINES_LOST = CheckLimit(
    0,
    "lines",
    "lines of the audit log lost, undecodable or without their pod",
    "Any of them may be that of the slowest pod.",
)
AUDIT_EVENTS_LOST = CheckLimit(
    0,
    "events",
    "audit events that the API servers count and the log lacks",
    "Timestamps from an incomplete log are incomplete.",
)
ROWS_LOST = CheckLimit(
    0,
    "pods",
    "pods or bindings that a watch has and the audit log lacks",
    "Their timestamps would be from another clock.",
)
LOAD_LOST = CheckLimit(
    0,
    "requests",
    "successful requests of the load without a line or row",
    "The driver records all responses; what the recording lacks was lost.",
)


_FEWEST_FOR_P99 = 100
# Above this share the report mentions other processes.
_SHARED_MACHINE_SHARE = 0.05


def self_checks(
    facts: RunFacts, pods: Pods, requests: Requests | None, audit: Audit
) -> dict[str, SelfCheck]:
    """All self-checks, keyed by their names for gates."""
    own, load = facts.harness_health, facts.load
    made = pods.created + (requests.created if requests else 0)
    return {
        "loopStallMaxSeconds": check_of(LOOP_STALL, own.loop_stall_max_seconds if own else None),
        "loadLatenessMaxSeconds": check_of(LATENESS_MAX, load.get("maxLatenessSeconds")),
        "loadLatenessP99Seconds": _lateness_p99(load),
        "clockStepMaxSeconds": check_of(CLOCK_STEP, own.clock_step_max_seconds if own else None),
        "harnessCpuShare": check_of(CPU_SHARE, own.harness_cpu_share if own else None),
        "othersCpuShare": _others(own),
        "harnessCpuSecondsPerPod": SelfCheck(
            value=own.harness_cpu_seconds / made if own and made else None,
            unit="seconds",
            what="CPU of the harness per created pod",
        ),
        "loopStalls": SelfCheck(
            value=own.loop_stalls if own else None,
            unit="stalls",
            what="stalls of the runner's event loop",
        ),
        **_losses(audit),
    }


def _others(own: HarnessHealth | None) -> SelfCheck:
    """CPU used by others; a legitimate reason for an unknown value keeps the run valid."""
    if own is not None and own.others_unknown:
        what = f"{OTHERS_SHARE.what}: unknown, because {own.others_unknown}"
        return SelfCheck(value=None, unit=OTHERS_SHARE.unit, what=what)
    return check_of(OTHERS_SHARE, own.others_cpu_share if own else None)


def disclosures(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """Remarks on a valid run."""
    others = checks.get("othersCpuShare")
    if others is not None and others.value is not None and others.value > _SHARED_MACHINE_SHARE:
        yield (
            f"Other processes used {100 * others.value:.0f} % of this machine's CPU, so waits may "
            "be longer than on an idle machine."
        )


def _lateness_p99(load: Mapping[str, Any]) -> SelfCheck:
    """Lateness, p99; of fewer than 100 requests it is the maximum, which has its own limit."""
    value = load.get("p99LatenessSeconds")
    if value is None or load.get("requestsSent", _FEWEST_FOR_P99) >= _FEWEST_FOR_P99:
        return check_of(LATENESS_P99, value)
    what = f"{LATENESS_P99.what} (of fewer than {_FEWEST_FOR_P99})"
    return SelfCheck(value=float(value), unit=LATENESS_P99.unit, what=what)


def _losses(audit: Audit) -> dict[str, SelfCheck]:
    """Losses of the recording. With an audit log, gaps of watches are informational; without one,
    there is no log to be incomplete.
    """
    unreadable = audit.undecodable + audit.without_uid + audit.restarts
    of_load = (audit.load_without_line, audit.load_without_row)
    known = [number for number in of_load if number is not None]
    gaps = check_of(WATCH_GAPS, audit.watch.gaps)
    if audit.available:
        gaps = SelfCheck(value=gaps.value, unit=gaps.unit, what="watches that expired")
    return {
        "watchGaps": gaps,
        "auditLinesLost": check_of(AUDIT_LINES_LOST, unreadable),
        "auditEventsLost": check_of(AUDIT_EVENTS_LOST, audit.events_lost),
        "rowsLost": check_of(ROWS_LOST, audit.missed_pods + audit.missed_bindings),
        "loadLost": check_of(LOAD_LOST, sum(known) if len(known) == len(of_load) else None),
    }


def exceeded_limits(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """A sentence for each value above its limit."""
    for check in checks.values():
        if check.value is not None and check.limit is not None and not check.within:
            unit = check.unit.removesuffix("s") if check.value == 1 else check.unit
            excess = f"{format_number(check.value)} {unit}, limit {format_number(check.limit)}"
            yield f"{check.what[:1].upper()}{check.what[1:]}: {excess}. {check.reason}"


def unmeasured(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """One sentence if values with a limit were not measured."""
    missing = [
        check.what for check in checks.values() if check.value is None and check.limit is not None
    ]
    if missing:
        yield f"Not measured by the harness: {'; '.join(missing)}."


def check_of(limit: CheckLimit, value: float | None) -> SelfCheck:
    """The check of a value against its limit; None was not measured."""
    return SelfCheck(
        value=None if value is None else float(value),
        limit=limit.maximum,
        unit=limit.unit,
        what=limit.what,
        within=value is not None and value <= limit.maximum,
        reason=limit.reason,
    )
