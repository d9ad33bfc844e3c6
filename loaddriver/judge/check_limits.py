"""The limits of the self-checks, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CheckLimit:
    """The maximum of a value; `what` describes the value in messages.

    An overloaded system under test can cause an excess if `overload` is set; with `starved`, only
    if the harness waited for cores. Otherwise only the harness or the machine can.
    """

    maximum: float
    unit: str
    what: str
    reason: str
    overload: bool = False
    starved: bool = False


LOOP_STALL = CheckLimit(
    1.0,
    "seconds",
    "the longest stall of the runner's event loop",
    "Steps of load are released 1.5 s ahead; a stall of more than 1 s may release them late.",
    overload=True,
    starved=True,
)
LOOP_COMPUTING = CheckLimit(
    1.0,
    "seconds",
    "the most CPU that the runner's event loop used in one stall",
    "Such a stall is the runner's own work, and not a wait for a core.",
)
LATENESS_MAX = CheckLimit(
    2.0,
    "seconds",
    "the largest lateness of a request of the load",
    "Beyond 2 s, a burst is no longer the plan's.",
    overload=True,
    starved=True,
)
LATENESS_P99 = CheckLimit(
    0.5,
    "seconds",
    "lateness of the load's requests, p99",
    "A driver that is usually late is saturated: arrivals follow its pace, not the plan's.",
    overload=True,
    starved=True,
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
OTHERS_WINDOW = CheckLimit(
    0.5,
    "share of this machine's CPU",
    "CPU used by other processes or the hypervisor in the worst 10 s",
    "Pods of these seconds had half of the machine or less, which the average over the run hides.",
)
THROTTLED_SHARE = CheckLimit(
    0.25,
    "share of the quota's periods",
    "periods in which the container's CPU quota was used up",
    "For the rest of such a period nothing runs, so waits are those of the quota.",
)
THROTTLED_WINDOW = CheckLimit(
    0.5,
    "share of the quota's periods",
    "periods in which the container's CPU quota was used up, in the worst 10 s",
    "Pods of these seconds were stopped and resumed with the quota, which the average hides.",
)
DRIVER_CORES = CheckLimit(
    0.9,
    "cores",
    "cores kept busy by the runner or by a process of the load in the busiest 10 s",
    "Each has one thread: near a whole core it is saturated by its own work.",
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
UNANSWERED = CheckLimit(
    0,
    "servers",
    "API servers that did not give their metrics at the end",
    "A server that does not answer for a minute is overloaded, and what it counted is unknown.",
    overload=True,
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
