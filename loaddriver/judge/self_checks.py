"""Self-checks of the harness: limits on what it may lose or delay, each with its reason.

A value above its limit makes the run invalid, and so does a value that was not measured, unless
the system under test was the cause (`loaddriver.judge.overload`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from loaddriver.judge.audit_section import Audit
from loaddriver.judge.check_limits import (
    AUDIT_EVENTS_LOST,
    AUDIT_LINES_LOST,
    CLOCK_STEP,
    CPU_SHARE,
    DRIVER_CORES,
    LATENESS_MAX,
    LATENESS_P99,
    LOAD_LOST,
    LOOP_COMPUTING,
    LOOP_STALL,
    OTHERS_SHARE,
    OTHERS_WINDOW,
    ROWS_LOST,
    THROTTLED_SHARE,
    THROTTLED_WINDOW,
    UNANSWERED,
    WATCH_GAPS,
    CheckLimit,
)
from loaddriver.judge.facts import HarnessHealth, InvalidReason, RunFacts
from loaddriver.judge.gates import format_number
from loaddriver.judge.overload import largest
from loaddriver.judge.schema import Pods, Requests, SelfCheck
from loaddriver.record.cpu import CpuWindow

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
        "loopComputingMaxSeconds": check_of(
            LOOP_COMPUTING, own.loop_computing_max_seconds if own else None
        ),
        "loadLatenessMaxSeconds": check_of(LATENESS_MAX, load.get("maxLatenessSeconds")),
        "loadLatenessP99Seconds": _lateness_p99(load),
        "clockStepMaxSeconds": check_of(CLOCK_STEP, own.clock_step_max_seconds if own else None),
        "harnessCpuShare": check_of(CPU_SHARE, own.harness_cpu_share if own else None),
        "harnessCoresMax10s": check_of(DRIVER_CORES, own.busiest_driver_cores if own else None),
        **_others(own),
        "harnessCpuSecondsPerPod": SelfCheck(
            value=own.harness_cpu_seconds / made if own and made else None,
            unit="seconds",
            what="CPU of the harness per created pod",
        ),
        "harnessWaitShareMax10s": SelfCheck(
            value=own.worst_driver_wait_share if own else None,
            unit="share of the time",
            what="time that runner or load waited for a core in the worst 10 s",
        ),
        "loopStalls": SelfCheck(
            value=own.loop_stalls if own else None,
            unit="stalls",
            what="stalls of the runner's event loop",
        ),
        **_losses(audit),
    }


def _others(own: HarnessHealth | None) -> dict[str, SelfCheck]:
    """CPU used by others or withheld; a legitimate reason for an unknown value keeps the run valid.

    A quota's throttling is known in any case, and 0 without a quota.
    """
    parts = own.cpu.windows if own else ()
    share, worst = check_of(OTHERS_SHARE, None), check_of(OTHERS_WINDOW, None)
    throttled, most = check_of(THROTTLED_SHARE, None), check_of(THROTTLED_WINDOW, None)
    if own is not None and parts:
        share = _others_of(OTHERS_SHARE, own.cpu.whole)
        worst = _others_of(OTHERS_WINDOW, max(parts, key=lambda part: part.others_share))
        throttled = check_of(THROTTLED_SHARE, own.cpu.whole.throttled_share)
        most = check_of(THROTTLED_WINDOW, max(part.throttled_share for part in parts))
    if own is not None and own.others_unknown:
        share = _unknown(OTHERS_SHARE, own.others_unknown)
        worst = _unknown(OTHERS_WINDOW, own.others_unknown)
    return {
        **_other_run(own),
        "othersCpuShare": share,
        "othersCpuShareMax10s": worst,
        "throttledShare": throttled,
        "throttledShareMax10s": most,
    }


def _other_run(own: HarnessHealth | None) -> dict[str, SelfCheck]:
    """The CPU of the run that a comparison plays at the same time, if there is one."""
    share = own.cpu.whole.other_run_share if own is not None else 0.0
    if not share:
        return {}
    what = "CPU used by the run that is played at the same time"
    return {"otherRunCpuShare": SelfCheck(value=share, unit="share of the machine", what=what)}


def _others_of(limit: CheckLimit, window: CpuWindow) -> SelfCheck:
    """The share of others in a window; beyond the limit, the reason names who used most."""
    check, named = check_of(limit, window.others_share), largest(window.others, window.machine.all)
    if check.within or not named:
        return check
    reason = f"{check.reason} Those that used most: {named}."
    return msgspec.structs.replace(check, reason=reason)


def _unknown(limit: CheckLimit, reason: str) -> SelfCheck:
    what = f"{limit.what}: unknown, because {reason}"
    return SelfCheck(value=None, unit=limit.unit, what=what)


def disclosures(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """Remarks on a valid run."""
    stamps = checks.get("stampErrorP99Seconds")
    if stamps is not None and stamps.value is not None:
        yield (
            "All times are receipts by watch, because the API servers' audit logs cannot be read: "
            f"measured beside the load, 99 % of receipts were late by at most {stamps.value:.3f} s."
        )
    other = checks.get("otherRunCpuShare")
    if other is not None and other.value is not None:
        yield (
            f"Another run was played at the same time and used {100 * other.value:.0f} % of this "
            "machine's CPU, so waits are longer than those of a run that has it alone."
        )
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
        "apiServersUnanswered": check_of(UNANSWERED, audit.unanswered),
        "auditEventsLost": _unknown(AUDIT_EVENTS_LOST, "not every API server answered")
        if audit.unanswered
        else check_of(AUDIT_EVENTS_LOST, audit.events_lost),
        "rowsLost": check_of(ROWS_LOST, audit.missed_pods + audit.missed_bindings),
        "loadLost": check_of(LOAD_LOST, sum(known) if len(known) == len(of_load) else None),
    }


def exceeded_limits(checks: Mapping[str, SelfCheck]) -> Iterator[InvalidReason]:
    """A reason for each value above its limit."""
    for check in checks.values():
        if check.value is not None and check.limit is not None and not check.within:
            unit = check.unit.removesuffix("s") if check.value == 1 else check.unit
            excess = f"{format_number(check.value)} {unit}, limit {format_number(check.limit)}"
            sentence = f"{check.what[:1].upper()}{check.what[1:]}: {excess}. {check.reason}"
            yield InvalidReason(sentence, overload=check.overload, starved=check.starved)


def unmeasured(checks: Mapping[str, SelfCheck]) -> Iterator[InvalidReason]:
    """One reason if values with a limit were not measured."""
    missing = [
        check.what for check in checks.values() if check.value is None and check.limit is not None
    ]
    if missing:
        yield InvalidReason(f"Not measured by the harness: {'; '.join(missing)}.")


def check_of(limit: CheckLimit, value: float | None) -> SelfCheck:
    """The check of a value against its limit; None was not measured."""
    return SelfCheck(
        value=None if value is None else float(value),
        limit=limit.maximum,
        unit=limit.unit,
        what=limit.what,
        within=value is not None and value <= limit.maximum,
        reason=limit.reason,
        overload=limit.overload,
        starved=limit.starved,
    )
