"""Offsets between clocks are proven by what one clock has between two moments of another."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from loaddriver.load.files import EventResult
from loaddriver.load.workers import WorkerRecord
from loaddriver.plan.records import CreateEvent
from loaddriver.record.audit import AuditTimestamps
from loaddriver.record.clocks import largest_clock_offset_seconds
from loaddriver.record.journal import Journal, RollUp
from loaddriver.record.recorder import Observations
from tests.record.record_rig import at, observations, result

CREATE = CreateEvent(
    id="a",
    cluster=0,
    step=1,
    offset_seconds=0,
    path="/apis/apps/v1/namespaces/load/deployments",
    name="web",
    body=msgspec.Raw(b"{}"),
)
WRITE = ("create deployments", ("load", "web"))


def answered(sent: float, done: float, attempts: int = 1) -> EventResult:
    """What the driver recorded of a creation, in seconds of its clock."""
    made = result("a", "web", attempts=attempts)
    return msgspec.structs.replace(made, due=sent, sent=at(sent) / 1e6, done=at(done) / 1e6)


def log(received: float, complete: float, **more: object) -> Observations:
    """An API server that has received and answered it, in seconds of its own clock."""
    timestamps = AuditTimestamps(load_creations={WRITE: (at(received), at(complete))})
    for name, value in more.items():
        setattr(timestamps, name, value)
    return replace(observations([]), audit=timestamps)


def offset(
    result: EventResult, observed: Observations, journal: Journal | None = None
) -> float | None:
    return largest_clock_offset_seconds([CREATE], [result], [observed], journal)


@pytest.mark.parametrize(
    ("ahead", "proven"), [(0, 0), (0.02, 0), (3, 2.97), (-3, 2.98), (-0.01, 0)]
)
def test_a_server_whose_clock_is_off_is_proven_by_its_exchanges(
    ahead: float, proven: float
) -> None:
    """It received the request 20 ms after it was sent and had answered 30 ms before the answer
    came: all of the offset but that is proven, in either direction.
    """
    found = offset(answered(10, 10.06), log(10.02 + ahead, 10.03 + ahead))
    assert found == pytest.approx(proven)


def test_what_was_sent_again_proves_nothing() -> None:
    """Which of the attempts the server answered is not recorded."""
    assert offset(answered(10, 20, attempts=2), log(50, 51)) is None


def test_a_shard_whose_clock_is_off_is_proven_by_its_roll_ups() -> None:
    """It accepts what its operator has built before, and that its operator reports afterwards."""
    journal = Journal({}, 0, {"c0": [RollUp(at(5), at(7.1)), RollUp(at(8), at(10.1))]})
    reported = {("load", "a"): at(5.2), ("load", "b"): at(8.2)}
    observed = log(10.02, 10.03, accepted=reported)
    assert offset(answered(10, 10.06), observed, journal) == pytest.approx(1.9)
    sound = Journal({}, 0, {"c0": [RollUp(at(5), at(5.1)), RollUp(at(8), at(8.1))]})
    assert offset(answered(10, 10.06), observed, sound) == 0


def test_workers_of_the_load_with_clocks_of_their_own_are_compared_one_by_one() -> None:
    """Two workers, of which each agrees with the API server at another time, disagree."""
    early, late = answered(10, 10.06), answered(13, 13.06)
    named = [
        msgspec.structs.replace(early, worker="a"),
        msgspec.structs.replace(late, worker="b"),
    ]
    found = largest_clock_offset_seconds([CREATE], named, [log(10.02, 10.03)], None)
    assert found == pytest.approx(2.98)


def test_the_offset_of_a_worker_to_its_master_counts() -> None:
    workers = [WorkerRecord("a", 1, clock_offset_bounds=(-0.3, -0.2)), WorkerRecord("b", 1)]
    assert largest_clock_offset_seconds([], [], [], None, workers) == 0.2
