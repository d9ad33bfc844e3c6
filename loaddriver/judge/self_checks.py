"""Whether the harness can be believed: what it lost or suffered, against what it may.

Every bound is here, once, with its reason. A value beyond its bound voids the run, and so does one
that nobody measured: a harness that does not watch itself proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loaddriver.judge.facts import HarnessHealth, RunFacts
from loaddriver.judge.gates import format_number
from loaddriver.judge.schema import Audit, Pods, Requests, SelfCheck


@dataclass(frozen=True)
class CheckLimit:
    """The most that a value may be; `what` completes the sentence "<value> <unit> ... "."""

    maximum: float
    unit: str
    what: str
    reason: str


LOOP_STALL = CheckLimit(
    1.0,
    "seconds",
    "the longest time that the runner's event loop stood still",
    "Steps of load are released 1.5 s ahead; a loop that stands still for longer than 1 s may "
    "release them late.",
)
LATENESS_MAX = CheckLimit(
    2.0,
    "seconds",
    "the latest request of the load, after its due time",
    "Beyond 2 s, a burst has become another load than the plan's.",
)
LATENESS_P99 = CheckLimit(
    0.5,
    "seconds",
    "lateness of the load's requests, p99",
    "A driver that is late as a rule is saturated: arrivals then follow its pace, not the plan's.",
)
CLOCK_STEP = CheckLimit(
    0.05,
    "seconds",
    "the largest step of this machine's clock",
    "Every wait that spans a step is wrong by it; reading two clocks on a busy machine differs "
    "by some milliseconds by itself.",
)
CPU_SHARE = CheckLimit(
    0.25,
    "share of the run's CPU",
    "CPU used by the harness itself",
    "It runs on the cores that it measures: what it takes, the clusters lack. A tenth is what it "
    "should need; beyond a quarter the result is the harness's own doing.",
)
OTHERS_SHARE = CheckLimit(
    0.25,
    "share of this machine's CPU",
    "CPU taken by others while the load ran (other processes, or the hypervisor)",
    "What others take, the clusters lack, and a slow release cannot be told from a busy neighbour. "
    "An idle machine's own services need some hundredths; from a quarter on, waits are longer for "
    "it by as much as a bad regression would make them.",
)
WATCH_GAPS = CheckLimit(
    0,
    "gaps",
    "times a watch lost its place, where the watch is the clock",
    "What came and went within a gap was never seen.",
)
AUDIT_LINES_LOST = CheckLimit(
    0,
    "lines",
    "lines of the audit log lost, unreadable or without their pod",
    "Any of them may be the slowest pod's.",
)
AUDIT_EVENTS_LOST = CheckLimit(
    0,
    "events",
    "audit events that the API servers counted and the log does not have",
    "A log that is short is no clock, however well it reads.",
)
ROWS_LOST = CheckLimit(
    0,
    "pods",
    "pods or bindings that the audit log lacks although a watch saw them",
    "A pod without stamps of its own clock would be measured by another one.",
)
LOAD_LOST = CheckLimit(
    0,
    "requests",
    "requests of the load that were granted and left no line or no row",
    "The driver knows what it was promised; what is missing from the record was lost.",
)


_FEWEST_FOR_P99 = 100
# From here on a run was not alone, and its report says so.
_SHARED_MACHINE_SHARE = 0.05


def self_checks(
    facts: RunFacts, pods: Pods, requests: Requests | None, audit: Audit
) -> dict[str, SelfCheck]:
    """Every value beside its bound, by the names under which gates can read them."""
    own, load = facts.harness_health, facts.load
    made = pods.created + (requests.created if requests else 0)
    return {
        "loopStallMaxSeconds": _check(LOOP_STALL, own.loop_stall_max_seconds if own else None),
        "loadLatenessMaxSeconds": _check(LATENESS_MAX, load.get("maxLatenessSeconds")),
        "loadLatenessP99Seconds": _lateness_p99(load),
        "clockStepMaxSeconds": _check(CLOCK_STEP, own.clock_step_max_seconds if own else None),
        "harnessCpuShare": _check(CPU_SHARE, own.harness_cpu_share if own else None),
        "othersCpuShare": _others(own),
        "harnessCpuSecondsPerPod": SelfCheck(
            value=own.harness_cpu_seconds / made if own and made else None,
            unit="seconds",
            what="CPU of the harness per pod created and observed",
        ),
        "loopStalls": SelfCheck(
            value=own.loop_stalls if own else None,
            unit="stalls",
            what="times the runner's event loop came back late",
        ),
        **_losses(audit),
    }


def _others(own: HarnessHealth | None) -> SelfCheck:
    """Where nobody can tell, for a good reason, that is no reason to doubt the run."""
    if own is not None and own.others_unknown:
        what = f"{OTHERS_SHARE.what}: not known, because {own.others_unknown}"
        return SelfCheck(value=None, unit=OTHERS_SHARE.unit, what=what)
    return _check(OTHERS_SHARE, own.others_cpu_share if own else None)


def disclosures(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """What a reader must know of a run that is valid all the same."""
    others = checks.get("othersCpuShare")
    if others is not None and others.value is not None and others.value > _SHARED_MACHINE_SHARE:
        yield (
            f"This machine was not the run's alone: others took {100 * others.value:.0f} % of its "
            "CPU, so waits may be longer than on an idle one."
        )


def _lateness_p99(load: Mapping[str, Any]) -> SelfCheck:
    """Of fewer than a hundred requests the p99 is their maximum, which has a bound of its own."""
    value = load.get("p99LatenessSeconds")
    if value is None or load.get("requestsSent", _FEWEST_FOR_P99) >= _FEWEST_FOR_P99:
        return _check(LATENESS_P99, value)
    what = f"{LATENESS_P99.what} (of fewer than {_FEWEST_FOR_P99})"
    return SelfCheck(value=float(value), unit=LATENESS_P99.unit, what=what)


def _losses(audit: Audit) -> dict[str, SelfCheck]:
    """Where the audit log is the clock, gaps of the watches change no number: they are only shown;
    where it is not, there is no log to be short.
    """
    unreadable = audit.undecodable + audit.without_uid + audit.restarts
    of_load = (audit.load_without_line, audit.load_without_row)
    known = [number for number in of_load if number is not None]
    gaps = _check(WATCH_GAPS, audit.watch.gaps)
    if audit.available:
        gaps = SelfCheck(value=gaps.value, unit=gaps.unit, what="times a watch lost its place")
    return {
        "watchGaps": gaps,
        "auditLinesLost": _check(AUDIT_LINES_LOST, unreadable),
        "auditEventsLost": _check(AUDIT_EVENTS_LOST, audit.events_lost),
        "rowsLost": _check(ROWS_LOST, audit.missed_pods + audit.missed_bindings),
        "loadLost": _check(LOAD_LOST, sum(known) if len(known) == len(of_load) else None),
    }


def exceeded_limits(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """A sentence for each value that is beyond its bound."""
    for check in checks.values():
        if check.value is not None and check.limit is not None and not check.within:
            unit = check.unit.removesuffix("s") if check.value == 1 else check.unit
            excess = (
                f"{format_number(check.value)} {unit}, at most {format_number(check.limit)} may be"
            )
            yield f"{check.what[:1].upper()}{check.what[1:]}: {excess}. {check.reason}"


def unmeasured(checks: Mapping[str, SelfCheck]) -> Iterator[str]:
    """One sentence, if there are values with a bound that nobody measured."""
    missing = [
        check.what for check in checks.values() if check.value is None and check.limit is not None
    ]
    if missing:
        yield f"The harness did not watch itself; not measured: {'; '.join(missing)}."


def _check(limit: CheckLimit, value: float | None) -> SelfCheck:
    return SelfCheck(
        value=None if value is None else float(value),
        limit=limit.maximum,
        unit=limit.unit,
        what=limit.what,
        within=value is not None and value <= limit.maximum,
        reason=limit.reason,
    )
