"""Events are dispatched by the plan's due times, to enough users."""

from __future__ import annotations

import pytest

from loaddriver.load.dispatch import Dispatcher, DueEvent, users_for
from loaddriver.load.files import Control, StepReleased
from loaddriver.plan.records import DeleteEvent
from tests.loaddriver.load_rig import planned


def deletes(*offsets: float) -> list[DeleteEvent]:
    return [
        DeleteEvent(id=str(n), cluster=0, step=1, offset_seconds=offset, path="/x", name="x")
        for n, offset in enumerate(offsets)
    ]


@pytest.mark.parametrize(("a_second", "users"), [(0, 24), (1, 60), (10, 600), (50, 1024)])
def test_users_suffice_for_responses_of_half_a_minute_and_are_bounded(
    a_second: int, users: int
) -> None:
    """An event that waits for a free user is late, and lateness makes a run invalid."""
    events = deletes(*(n / a_second for n in range(60 * a_second)))
    assert users_for(events) == users


def test_a_load_without_pods_gets_more_users_than_one_of_objects() -> None:
    """One request for each pod is some twenty times as many."""
    cr = ("load.mode=cr", "anchors=off", "ramp.pacing=fixed")
    assert users_for(planned("dev-50")[1].events) < 256
    assert users_for(planned("dev-50", *cr)[1].events) == 1024


def test_events_come_in_order_each_with_the_time_it_was_due() -> None:
    """Due times follow from release and offset, however late an event is taken."""
    events = deletes(0.0, 0.25, 0.5)
    dispatcher = Dispatcher(events, clock=lambda: 2000.0)
    release = StepReleased(step=1, at=1000.0)
    assert dispatcher.follow(Control().released(release)) == [release]
    assert dispatcher.follow(Control().released(release)) == []
    played: list[DueEvent] = []
    for _ in events:
        dispatcher.play_next(played.append)
    assert [(due.event.id, due.at) for due in played] == [
        ("0", 1000),
        ("1", 1000.25),
        ("2", 1000.5),
    ]
    assert dispatcher.idle


def test_a_stretched_step_is_played_more_slowly_in_the_same_order() -> None:
    """The plan stays as it is; only its rate is that of the release."""
    dispatcher = Dispatcher(deletes(0.0, 0.25, 0.5), clock=lambda: 2000.0)
    dispatcher.follow(Control().released(StepReleased(step=1, at=1000.0, stretch=4.0)))
    played: list[DueEvent] = []
    for _ in range(3):
        dispatcher.play_next(played.append)
    assert [due.at for due in played] == [1000, 1001, 1002]
