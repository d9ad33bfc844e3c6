"""How often tests look whether what they wait for has come."""

from __future__ import annotations

import pytest

from tests.support.waiting import pause_seconds


def questions(wait_seconds: float, question_seconds: float) -> tuple[int, float]:
    """How many fit into a wait, and how much of it they take."""
    waited, number = 0.0, 0
    while waited < wait_seconds:
        number += 1
        waited += question_seconds
        waited += pause_seconds(waited, question_seconds)
    return number, number * question_seconds / waited


def test_what_comes_soon_is_seen_at_once() -> None:
    """In the first moment there is a question each fiftieth of a second."""
    assert questions(0.19, 0.0)[0] == 10


def test_a_long_wait_keeps_nobody_from_working() -> None:
    """However long a question takes, a third of the time at most; a usual one, much less."""
    assert questions(60.0, 0.2)[1] == pytest.approx(1 / 3)
    number, share = questions(30.0, 0.005)
    assert number < 250
    assert share < 0.05


def test_no_wait_ends_much_later_than_it_could() -> None:
    """By a twentieth, or by what a question takes twice, and never by more than half a second."""
    for waited in (0.5, 3.0, 60.0):
        assert pause_seconds(waited, 0.001) <= max(0.02, 0.05 * waited)
        assert pause_seconds(waited, 10.0) == 0.5
