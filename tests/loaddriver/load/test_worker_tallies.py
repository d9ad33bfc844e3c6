"""What each worker did follows from its lines alone."""

from __future__ import annotations

import pytest

from loaddriver.load.files import EventResult, WorkerReading
from loaddriver.load.workers import WorkerTally, nearest_p99


def reading(at: float, cpu: float = 0.0, waited: float = 0.0, ahead: float = 0.0) -> WorkerReading:
    """An answer to what was asked 10 ms before, 10 ms under way, of a clock that is `ahead`."""
    return WorkerReading(
        worker="w",
        sent=at - 0.01,
        at=at + ahead,
        received=at + 0.01,
        cpu_seconds=cpu,
        wait_seconds=waited,
    )


def result(step: int, lateness: float, attempts: int = 1, ok: bool = True) -> EventResult:
    return EventResult(
        id=str(lateness),
        cluster=0,
        step=step,
        verb="create",
        name="x",
        due=0,
        sent=lateness,
        done=1,
        lateness_seconds=lateness,
        status=201,
        attempts=attempts,
        ok=ok,
        detail="",
        worker="w",
    )


def test_lateness_leaves_out_the_set_up_and_retries_and_failures_count() -> None:
    tally = WorkerTally(events=4)
    for each in (
        result(0, 9.0),
        result(1, 0.1),
        result(1, 0.3, attempts=2),
        result(2, 0.2, ok=False),
    ):
        tally.take(each)
    record = tally.record("w", elsewhere=False)
    assert (record.events, record.sent, record.failed, record.retried) == (4, 4, 1, 1)
    assert record.max_lateness_seconds == record.p99_lateness_seconds == 0.3


def test_a_worker_without_events_has_no_lateness() -> None:
    record = WorkerTally().record("w", elsewhere=False)
    assert record.max_lateness_seconds is record.p99_lateness_seconds is None
    assert record.proven_clock_offset_seconds is record.largest_clock_offset_seconds is None


@pytest.mark.parametrize("ahead", [-0.5, 0.5])
def test_round_trips_bound_the_offset_of_a_clock(ahead: float) -> None:
    """Each is an interval of 20 ms; together they are no wider."""
    tally = WorkerTally(readings=[reading(at, ahead=ahead) for at in (1.0, 2.0)])
    record = tally.record("w", elsewhere=True)
    assert record.proven_clock_offset_seconds == pytest.approx(0.49)
    assert record.largest_clock_offset_seconds == pytest.approx(0.51)


def test_a_clock_within_the_round_trip_may_agree() -> None:
    record = WorkerTally(readings=[reading(1.0, ahead=0.005)]).record("w", elsewhere=True)
    assert record.proven_clock_offset_seconds == 0
    assert record.largest_clock_offset_seconds == pytest.approx(0.015)


def test_a_clock_that_moved_is_found_even_if_it_agreed_before() -> None:
    tally = WorkerTally(readings=[reading(1.0), reading(2.0, ahead=0.3)])
    assert tally.record("w", elsewhere=True).proven_clock_offset_seconds == pytest.approx(0.29)


def test_the_busiest_window_has_at_least_five_seconds() -> None:
    """The first readings come at once, to know the clock; CPU over so little time says nothing."""
    tally = WorkerTally(
        readings=[
            reading(0.0),
            reading(0.1, cpu=0.1),
            reading(10.0, cpu=2.0, waited=1.0),
            reading(20.0, cpu=10.0, waited=4.0),
        ]
    )
    record = tally.record("w", elsewhere=True)
    assert record.cpu_seconds == 10.0
    assert record.busiest_cores == pytest.approx(0.8)
    assert record.worst_wait_share == pytest.approx(0.3)


def test_p99_is_the_nearest_rank() -> None:
    assert nearest_p99([]) is None
    assert nearest_p99([1.0]) == 1.0
    assert nearest_p99([float(n) for n in range(1, 201)]) == 198.0
