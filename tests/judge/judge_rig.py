"""Rows and facts, as small as tests of the judgement need them."""

from __future__ import annotations

from typing import Any, Literal

from loaddriver.judge.facts import HarnessHealth, RunFacts
from loaddriver.judge.schema import Summary
from loaddriver.judge.summary import make_summary
from loaddriver.load.files import LOCUST
from loaddriver.profile.gates import Gate
from loaddriver.record.cpu import RUNNER, CpuTimes, CpuUse, CpuWindow
from loaddriver.record.live_counts import NullListener
from loaddriver.record.losses import LoadLosses
from loaddriver.record.recorder import Observations
from loaddriver.record.rows import PodRow
from loaddriver.record.watching import WatchTimestamps

SECOND = 1_000_000
START = 1_790_000_000 * SECOND


def window(
    harness: float = 0.2,
    others: float = 0.0,
    throttled: float = 0.0,
    busy: float = 0.5,
    waited: float = 0.0,
) -> CpuWindow:
    """Ten seconds on two cores; shares are of their CPU, the harness's CPU and wait in seconds."""
    capacity = 20.0
    run = (busy - others) * capacity
    used = {RUNNER: harness / 2, LOCUST: harness / 2, "c1/kube-apiserver": 0.6 * run}
    used["shard-0"] = run - sum(used.values())
    times = CpuTimes(busy * capacity, capacity)
    other = {"make (7)": others * capacity}
    return CpuWindow(10.0, times, run, used, other, throttled, {RUNNER: waited, LOCUST: waited})


def health(*windows: CpuWindow, **more: Any) -> HarnessHealth:
    """A harness that was well, with this use of CPU."""
    known: dict[str, Any] = {
        "loop_stall_max_seconds": 0.1,
        "loop_stalls": 0,
        "clock_step_max_seconds": 0.001,
        "cpu": CpuUse(windows or 10 * (window(),), {"shard-0": 200 << 20}),
    }
    return HarnessHealth(**{**known, **more})


SOUND = health()
"""A harness that was well."""
IN_TIME = {
    "maxLatenessSeconds": 0.1,
    "p99LatenessSeconds": 0.01,
    "requestsSent": 200,
    "requestsRetried": 0,
}
"""A load that was played when it was due."""


def at(seconds: float) -> int:
    """So many seconds after the start, in microseconds."""
    return START + round(seconds * SECOND)


def row(
    uid: str,
    created: float = 0,
    bound: float | None = None,
    deleted: float | None = None,
    **more: Any,
) -> PodRow:
    """A pod; times are seconds after the start."""
    known: dict[str, Any] = {
        "cluster": "c0",
        "namespace": "load",
        "name": f"pod-{uid}",
        "uid": uid,
        "archetype": "tiny-stateless",
        "workload": f"web-{uid}",
        "group": "",
        "step": "1",
        "created_micros": at(created),
        "seen_micros": None,
        "acknowledged_micros": None,
        "rolled_up_micros": None,
        "decided_micros": None,
        "provisioned_micros": None,
        "node": "" if bound is None else "n1",
        "rack": "" if bound is None else "r1",
        "node_created_micros": None,
        "node_ready_micros": None,
        "bound_micros": None if bound is None else at(bound),
        "bound_by": "" if bound is None else "scheduler",
        "deleted_micros": None if deleted is None else at(deleted),
        "observed_until_micros": at(100),
        "source": "watch",
        "node_was_ready": None,
    }
    return PodRow(**{**known, **more})


def facts(**more: Any) -> RunFacts:
    """A run of 100 seconds, the last 60 of them soak."""
    known: dict[str, Any] = {
        "id": "r1",
        "profile": "smoke",
        "seed": 1,
        "substrate": "local",
        "started_micros": at(0),
        "soak_started_micros": at(40),
        "ended_micros": at(100),
        "planned_pods": 1,
        "planned_groups": {},
        "versions": {},
        "environment": {},
        "load": IN_TIME,
        "harness_health": SOUND,
        "clock_offset_seconds": 0.0,
    }
    return RunFacts(**{**known, **more})


def unseen(cluster: str = "c0") -> Observations:
    """A cluster whose recorder saw nothing and has no audit log."""
    return Observations(cluster, None, WatchTimestamps(NullListener()), 0, 2, 0, at(100))


def gate(
    metric: str,
    limit: float,
    op: Literal["<=", ">=", "=="] = "<=",
    ratio_to: Literal["bare"] | None = None,
) -> Gate:
    """A gate on `metric`."""
    return Gate(
        name=f"the {metric}",
        metric=metric,
        op=op,
        limit=limit,
        unit="units",
        origin="Made up for a test.",
        ratio_to=ratio_to,
    )


def summarised(*evidence: Any, **more: Any) -> Summary:
    """What `make_summary` makes of it, for a load whose every request left its trace."""
    return make_summary(*evidence, **{"losses": LoadLosses(0, 0), **more})
