"""Rules of counting attempts that a permanent fault makes futile."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

from bigfleet.services.shard.sessions.session import ANSWER_TIMEOUT_SECONDS
from bigfleet.simulation.liveness import Attempts, max_attempts
from bigfleet.simulation.runtime.permanent_faults import PermanentFaults
from bigfleet.simulation.story import StoryEvent
from bigfleet.simulation.world import World

_SECONDS = 1800.0


def _problems(
    event: str, times_seconds: Sequence[float], clusters: Sequence[str] = ("silent",)
) -> list[str]:
    """What is found when the event happens at these times to each of the clusters, of which
    `silent` has a silent operator, and a machine that never boots.
    """
    broken = PermanentFaults(machine="m-0", silent_operator="silent", unready_cluster="unready")
    events: list[StoryEvent] = []
    world = SimpleNamespace(
        spec=SimpleNamespace(broken=broken, machines=()), story=SimpleNamespace(events=events)
    )
    attempts = Attempts(cast(World, world))
    for cluster in clusters:
        fields = {"machine": "m-0", "cluster": cluster}
        events += [StoryEvent(at_seconds, event, fields) for at_seconds in times_seconds]
    return list(attempts.problems(_SECONDS))


def test_questions_asked_before_the_first_answer_is_overdue_are_one_attempt() -> None:
    assert not _problems("bootstrap-requested", [0.1 * number for number in range(100)])


def test_an_operator_that_is_asked_whenever_an_answer_is_overdue_is_a_problem() -> None:
    number = max_attempts(_SECONDS) + 1
    times_seconds = [ANSWER_TIMEOUT_SECONDS * each for each in range(number)]
    (problem,) = _problems("bootstrap-requested", times_seconds)
    assert "never answers, was asked 9 times" in problem


def test_every_boot_of_a_machine_that_never_boots_is_an_attempt() -> None:
    (problem,) = _problems("configure-sent", [0.0] * (max_attempts(_SECONDS) + 1))
    assert "which never boots, was booted 9 times" in problem


def test_attempts_of_a_cluster_of_which_no_machine_becomes_ready_count_apart() -> None:
    """They say nothing of the machine, so others need not wait for longer; those of two others are
    attempts with one machine.
    """
    half = [0.0] * (max_attempts(_SECONDS) // 2 + 1)
    assert not _problems("configure-sent", half, ["east", "unready"])
    (problem,) = _problems("configure-sent", half, ["east", "west"])
    assert "m-0, which never boots, was booted 10 times" in problem
    (problem,) = _problems("create-sent", [0.0] * (max_attempts(_SECONDS) + 1), ["unready"])
    assert "m-0, which never boots, was bought for unready 9 times" in problem
