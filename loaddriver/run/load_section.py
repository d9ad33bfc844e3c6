"""What the summary says of the load, as a whole and by worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from loaddriver.judge.facts import InvalidReason
from loaddriver.load.progress import LoadProgress
from loaddriver.load.workers import WorkerRecord
from loaddriver.run.load_phases import RunProgress
from loaddriver.run.measurement import MeasurementResult


def load_section(
    measured: MeasurementResult, run_progress: RunProgress, pacing: str
) -> dict[str, Any]:
    """The section `load` of the summary; empty if the load never started."""
    load = measured.load
    if load is None:
        return {}
    return {
        "requestsPlanned": load.planned,
        "requestsSent": load.sent,
        "requestsFailed": load.failed,
        "requestsUnserved": load.unserved,
        "requestsRetried": load.retried,
        "churnsWithoutTarget": load.without_target,
        "maxLatenessSeconds": load.max_lateness_seconds,
        "p99LatenessSeconds": load.p99_lateness_seconds,
        "rampPacing": pacing,
        "rampBreaches": len(run_progress.breaches),
        "shownPodsPerSecond": run_progress.shown_pods_per_second,
        **_workers_section(measured.load_workers),
    }


def _workers_section(workers: Sequence[WorkerRecord]) -> dict[str, Any]:
    """What each worker of the load did; empty if one process played it."""
    if not workers:
        return {}
    found = {
        worker.name: {
            "requestsPlanned": worker.events,
            "requestsSent": worker.sent,
            "requestsFailed": worker.failed,
            "requestsRetried": worker.retried,
            "maxLatenessSeconds": worker.max_lateness_seconds,
            "p99LatenessSeconds": worker.p99_lateness_seconds,
            "cpuSeconds": worker.cpu_seconds,
            "coresMax10s": worker.busiest_cores,
            "waitShareMax10s": worker.worst_wait_share,
            "clockOffsetProvenSeconds": worker.proven_clock_offset_seconds,
            "clockOffsetAtMostSeconds": worker.largest_clock_offset_seconds,
        }
        for worker in workers
    }
    return {"workers": found}


def unplayed_reasons(load: LoadProgress | None, unsent: str) -> Iterator[InvalidReason]:
    """Requests that failed or were not sent. One that was served and refused is the harness's."""
    if unsent:
        yield InvalidReason(unsent, overload=True)
    if load is not None and load.failed:
        sentence = f"{load.failed} of the load's requests failed; first failure: "
        yield InvalidReason(
            f"{sentence}{load.first_failure}.", overload=load.unserved == load.failed
        )
